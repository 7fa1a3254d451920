package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func transactionCases() []testCase {
	return []testCase{
		{"a claimed message is fenced once", fenceOnce},
		{"the fence opens only to the message as it was claimed", fenceRefuses},
		{"the fence is closed once the message is settled", fenceSettled},
		{"the fence is closed once the claim was taken away", fenceTakenAway},
		{"the fence is closed to the second transaction", fenceContended},
		{"the fence leaves the message as it was", fenceUntouched},
		{"several messages are fenced at once", fenceSeveral},
		{"what came after a savepoint is undone", undoPart},
		{"a transaction that rolls back leaves the message claimed", fenceRolledBack},
		{"a message is removed once", removeOnce},
		{"a message that is there exists", exists},
		{"whether a message exists waits for a transaction that removes it", existsWaits},
	}
}

// fenceOf identifies a message of a claim.
func fenceOf(c store.Claim, i int, owner string) store.Fence {
	m := c.Messages[i]
	return store.Fence{
		Owner: owner, Idle: 10 * time.Second,
		Messages: []store.Fenced{{Claim: c.ID, ID: m.ID, Attempts: m.Attempts, Crashes: m.Crashes}},
	}
}

// fence asks in a transaction of its own whether the fence opens, and runs fn
// in it when it does.
func (k *kit) fence(f store.Fence, fn func(ctx context.Context, tx bun.Tx) error) (held bool, err error) {
	refused := errors.New("refused")
	err = k.inTx(func(ctx context.Context, tx bun.Tx) (err error) {
		ids, err := k.store.Claims.Fence(ctx, tx, f)
		switch held = len(ids) > 0; {
		case err != nil:
			return err
		case !held:
			return refused
		case fn != nil:
			return fn(ctx, tx)
		}
		return nil
	})
	if errors.Is(err, refused) {
		err = nil
	}
	return held, err
}

func (k *kit) fenced(what string, f store.Fence, want bool) {
	k.Helper()
	held, err := k.fence(f, nil)
	k.must("fence", err)
	equal(k, "fence, "+what, held, want)
}

// removing removes the message of a fence.
func (k *kit) removing(f store.Fence) func(context.Context, bun.Tx) error {
	return func(ctx context.Context, tx bun.Tx) error {
		if removed, err := k.store.Claims.Remove(ctx, tx, store.Session{}, f.Messages[0].ID); err != nil || removed != 1 {
			return fmt.Errorf("remove: got %d, error %v, want 1", removed, err)
		}
		return nil
	}
}

func fenceOnce(k *kit) {
	ids := k.add("c", 3)
	c := k.take("a", "c", ids...)
	f := fenceOf(c, 1, "a")
	held, err := k.fence(f, k.removing(f))
	k.must("transaction", err)
	equal(k, "fence", held, true)
	k.fenced("once the message is removed", f, false)
	equal(k, "messages", k.pending(), []int64{ids[0], ids[2]})
	equal(k, "released from its claim", k.settle("a", results(c, store.Release, ids[1])...), store.Settled{Live: []int64{c.ID}, Applied: 1})
	equal(k, "still claimed", k.claims()[0].Messages, list(ids[0], ids[2]))
}

func fenceRefuses(k *kit) {
	ids := k.add("c", 3)
	c := k.take("a", "c", ids[0], ids[1])
	foreign := k.take("b", "c", ids[2])
	for what, change := range map[string]func(*store.Fence){
		"other attempts":           func(f *store.Fence) { f.Messages[0].Attempts++ },
		"other crashes":            func(f *store.Fence) { f.Messages[0].Crashes++ },
		"another owner":            func(f *store.Fence) { f.Owner = "b" },
		"another owner's claim":    func(f *store.Fence) { f.Messages[0].Claim = foreign.ID },
		"a foreign claim":          func(f *store.Fence) { f.Messages[0].Claim, f.Owner = foreign.ID, "b" },
		"an unknown claim":         func(f *store.Fence) { f.Messages[0].Claim += 1000 },
		"another claim's message":  func(f *store.Fence) { f.Messages[0].ID = ids[2] },
		"a message that never was": func(f *store.Fence) { f.Messages[0].ID = 1_000_000 },
	} {
		f := fenceOf(c, 0, "a")
		change(&f)
		k.fenced(what, f, false)
	}
	k.fenced("as claimed", fenceOf(c, 0, "a"), true)
}

// fenceSeveral mixes two claims, and a message that is no longer as it was claimed.
func fenceSeveral(k *kit) {
	ids := k.add("c", 5)
	first, second := k.take("a", "c", ids[:3]...), k.take("a", "c", ids[3:]...)
	f := fenceOf(first, 0, "a")
	for _, other := range []store.Fence{fenceOf(first, 1, "a"), fenceOf(second, 0, "a"), fenceOf(second, 1, "a")} {
		f.Messages = append(f.Messages, other.Messages...)
	}
	f.Messages[1].Attempts++
	err := k.inTx(func(ctx context.Context, tx bun.Tx) error {
		held, err := k.store.Claims.Fence(ctx, tx, f)
		if err != nil {
			return err
		}
		slices.Sort(held)
		equal(k, "fenced", held, []int64{ids[0], ids[3], ids[4]})
		removed, err := k.store.Claims.Remove(ctx, tx, store.Session{}, held...)
		equal(k, "removed", removed, 3)
		return err
	})
	k.must("transaction", err)
	equal(k, "messages", k.pending(), []int64{ids[1], ids[2]})
	removed, err := k.store.Claims.Remove(k.ctx, k.db, store.Session{}, ids[0], ids[1])
	k.must("remove again", err)
	equal(k, "removed, though one was gone", removed, 1)
}

func undoPart(k *kit) {
	ids := k.add("c", 3)
	f := fenceOf(k.take("a", "c", ids...), 0, "a")
	remove := func(ctx context.Context, tx bun.Tx, id int64) error {
		_, err := k.store.Claims.Remove(ctx, tx, store.Session{}, id)
		return err
	}
	err := k.inTx(func(ctx context.Context, tx bun.Tx) error {
		_, err := k.store.Claims.Fence(ctx, tx, f)
		return errors.Join(err,
			k.store.Claims.Savepoint(ctx, tx), remove(ctx, tx, ids[0]),
			k.store.Claims.Savepoint(ctx, tx), remove(ctx, tx, ids[1]), k.store.Claims.Undo(ctx, tx),
			remove(ctx, tx, ids[2]), k.store.Claims.Undo(ctx, tx))
	})
	k.must("transaction", err)
	equal(k, "messages", k.pending(), []int64{ids[1], ids[2]})
}

func fenceSettled(k *kit) {
	ids := k.add("c", 5)
	c := k.take("a", "c", ids...)
	for i, outcome := range []store.Outcome{store.Done, store.Failed, store.Poison, store.Release} {
		k.settle("a", results(c, outcome, ids[i])...)
		k.fenced(string(outcome), fenceOf(c, i, "a"), false)
	}
	k.fenced("not settled", fenceOf(c, 4, "a"), true)
}

func fenceTakenAway(k *kit) {
	ids := k.add("c", 1)
	lost := k.take("a", "c", ids...)
	k.pass(2 * lease)
	k.fenced("expired but not taken", fenceOf(lost, 0, "a"), true)
	k.recover(3)
	k.fenced("recovered", fenceOf(lost, 0, "a"), false)
	again := k.claim(crashed("a", store.Suspects, 1, want("c", 1)))
	k.fenced("recovered and claimed again", fenceOf(lost, 0, "a"), false)
	k.fenced("claimed again", fenceOf(again, 0, "a"), true)
}

func fenceContended(k *kit) {
	c := k.take("a", "c", k.add("c", 1)...)
	f := fenceOf(c, 0, "a")
	second := make(chan bool, 1)
	held, err := k.fence(f, func(ctx context.Context, tx bun.Tx) error {
		go func() {
			held, err := k.fence(f, nil)
			if err != nil {
				k.Errorf("second fence: got error %v, want none", err)
			}
			second <- held
		}()
		return k.removing(f)(ctx, tx)
	})
	k.must("transaction", err)
	equal(k, "first fence", held, true)
	equal(k, "second fence", <-second, false)
	equal(k, "messages", k.pending(), nil)
}

func fenceUntouched(k *kit) {
	c, before := k.suspect()
	claims := k.claims()
	k.fenced("as claimed", fenceOf(c, 0, "a"), true)
	equal(k, "message", k.row(before.ID), before)
	equal(k, "claims", k.claims(), claims)
}

func fenceRolledBack(k *kit) {
	c := k.take("a", "c", k.add("c", 1)...)
	f := fenceOf(c, 0, "a")
	messages, claims := k.messages(), k.claims()
	undo := errors.New("undo")
	_, err := k.fence(f, func(ctx context.Context, tx bun.Tx) error { return errors.Join(undo, k.removing(f)(ctx, tx)) })
	if !errors.Is(err, undo) {
		k.Fatalf("transaction: got error %v, want %v", err, undo)
	}
	equal(k, "messages", k.messages(), messages)
	equal(k, "claims", k.claims(), claims)
	k.fenced("again", f, true)
}

func removeOnce(k *kit) {
	ids := k.add("c", 2)
	for _, want := range []int{1, 0} {
		removed, err := k.store.Claims.Remove(k.ctx, k.db, store.Session{}, ids[0])
		k.must("remove", err)
		equal(k, "removed", removed, want)
	}
	equal(k, "messages", k.pending(), ids[1:])
}

func exists(k *kit) {
	ids := k.add("c", 1)
	for id, want := range map[int64]bool{ids[0]: true, ids[0] + 1000: false} {
		got, err := k.store.Claims.Exists(k.ctx, k.db, id)
		k.must("exists", err)
		equal(k, fmt.Sprintf("message %d exists", id), got, want)
	}
}

// existsWaits asks while a transaction has removed the message but not yet
// committed: the answer has to be what the commit makes of it.
func existsWaits(k *kit) {
	undo := errors.New("undo")
	for _, outcome := range []error{undo, nil} {
		ids := k.add("c", 1)
		answer := make(chan bool, 1)
		err := k.inTx(func(ctx context.Context, tx bun.Tx) error {
			if _, err := k.store.Claims.Remove(ctx, tx, store.Session{}, ids[0]); err != nil {
				return err
			}
			go func() {
				got, err := k.store.Claims.Exists(k.ctx, k.db, ids[0])
				if err != nil {
					k.Errorf("exists: got error %v, want none", err)
				}
				answer <- got
			}()
			select {
			case got := <-answer:
				k.Errorf("exists while undecided: got %t at once, want it to wait", got)
				answer <- got
			case <-time.After(50 * time.Millisecond): // long enough for an answer that does not wait
			}
			return outcome
		})
		if !errors.Is(err, outcome) {
			k.Fatalf("transaction: got error %v, want %v", err, outcome)
		}
		equal(k, fmt.Sprintf("exists after the transaction ended with %v", outcome), <-answer, outcome != nil)
	}
}
