package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func recoverCases() []testCase {
	return []testCase{
		{"claims under lease are left alone", recoverLive},
		{"an expired claim ends and its messages have crashed once more", recoverExpired},
		{"without solo the crashes stop one short", recoverNotSolo},
		{"a solo crash can reach the limit and poisons", recoverPoison},
		{"neighbours of a poisoned message survive", recoverNeighbours},
		{"a limit of one needs one solo crash", recoverLimitOne},
		{"twenty claims are recovered at a time, oldest first", recoverTwenty},
		{"only what is still claimed has crashed", recoverPart},
		{"a removed message is no crash", recoverRemoved},
		{"a message in a transaction has not crashed", recoverLocked},
		{"a clock that is set back delays the messages of the dead by a lease at most", recoverSetBack},
		{"eight recoveries at once count each crash once", recoverAtOnce},
	}
}

func recoverLive(k *kit) {
	ids := k.add("c", 2)
	k.take("a", "c", ids...)
	messages, claims := k.messages(), k.claims()
	k.pass(lease)
	equal(k, "recovered when the lease ends", k.recover(3), store.Recovered{})
	equal(k, "messages", k.messages(), messages)
	equal(k, "claims", k.claims(), claims)
	k.pass(time.Microsecond)
	equal(k, "recovered a microsecond later", k.recover(3), store.Recovered{Claims: 1, Crashed: 2})
}

func recoverExpired(k *kit) {
	ids := k.add("c", 3)
	k.settle("a", store.Result{Claim: k.take("a", "c", ids...).ID, Message: ids[0], Outcome: store.Failed, Errors: "e"})
	k.must("disclaim", k.store.Claims.Disclaim(k.ctx, k.db, "a", []int64{k.claims()[0].ID}))
	lost := k.claim(request("lost", want("c", 2)))
	k.pass(lease)
	live := k.claim(request("live", want("c", 2)))
	k.pass(time.Second)
	wants := k.messages()
	for i := range wants {
		if slices.Contains(idsOf(lost), wants[i].ID) {
			wants[i].Crashes = 1
		}
	}
	equal(k, "recovered", k.recover(3), store.Recovered{Claims: 1, Crashed: 2})
	equal(k, "messages", k.messages(), wants)
	equal(k, "claims left", []int64{k.claims()[0].ID}, []int64{live.ID})
	equal(k, "recovered again", k.recover(3), store.Recovered{})
}

// vanish claims crashed messages and lets the lease run out.
func (k *kit) vanish(solo bool, selection store.Selection) {
	k.Helper()
	r := crashed("vanishing", selection, 10, want("c", 10))
	r.Solo = solo
	if c := k.claim(r); c.ID == 0 {
		k.Fatalf("claim of selection %d: got nothing, want messages", selection)
	}
	k.pass(lease + time.Second)
}

func recoverNotSolo(k *kit) {
	ids := k.add("c", 2)
	for i, want := range []int{1, 2, 2, 2} {
		k.vanish(false, store.Selection(min(i, 2)))
		equal(k, fmt.Sprintf("recovered %d", i), k.recover(3), store.Recovered{Claims: 1, Crashed: 2})
		equal(k, fmt.Sprintf("crashes after %d", i+1), []int{k.row(ids[0]).Crashes, k.row(ids[1]).Crashes}, []int{want, want})
	}
	equal(k, "poisoned", k.poisoned(), nil)
}

func recoverPoison(k *kit) {
	_, want := k.suspect()
	k.pass(2 * lease)
	equal(k, "recovered", k.recover(3), store.Recovered{Claims: 1, Crashed: 1, Poisoned: 0})
	k.vanish(false, store.Killers)
	equal(k, "recovered without solo", k.recover(3), store.Recovered{Claims: 1, Crashed: 1})
	k.vanish(true, store.Killers)
	equal(k, "recovered with solo", k.recover(3), store.Recovered{Claims: 1, Crashed: 1, Poisoned: 1})
	want.Crashes, want.Reason, want.Poisoned = 3, store.CrashReason(3), k.now()
	equal(k, "poisoned", k.poisoned(), []row{want})
	equal(k, "messages", k.pending(), nil)
	equal(k, "claims", k.claims(), nil)
}

func recoverNeighbours(k *kit) {
	killer := k.add("c", 1)
	k.crash("c", 2)
	innocent := k.add("d", 1)
	k.crash("d", 1)
	waiting := k.add("c", 1)
	for _, w := range []struct {
		selection store.Selection
		consumer  string
	}{{store.Killers, "c"}, {store.Suspects, "d"}} {
		r := crashed("vanishing", w.selection, 1, want(w.consumer, 1))
		r.Solo = true
		k.claim(r)
	}
	k.pass(2 * lease)
	equal(k, "recovered", k.recover(3), store.Recovered{Claims: 2, Crashed: 2, Poisoned: 1})
	equal(k, "poisoned", k.poisoned()[0].ID, killer[0])
	equal(k, "messages", k.pending(), slices.Concat(innocent, waiting))
	equal(k, "crashes", []int{k.row(innocent[0]).Crashes, k.row(waiting[0]).Crashes}, []int{2, 0})
}

func recoverLimitOne(k *kit) {
	k.add("c", 1)
	k.vanish(false, store.Clean)
	equal(k, "recovered without solo", k.recover(1), store.Recovered{Claims: 1, Crashed: 1})
	k.vanish(true, store.Clean)
	equal(k, "recovered with solo", k.recover(1), store.Recovered{Claims: 1, Crashed: 1, Poisoned: 1})
	equal(k, "crashes", k.poisoned()[0].Crashes, 1)
}

func recoverTwenty(k *kit) {
	ids := k.add("c", 25)
	for i := range ids {
		k.take(fmt.Sprint("owner ", i), "c", ids[i])
	}
	k.pass(2 * lease)
	equal(k, "recovered", k.recover(3), store.Recovered{Claims: 20, Crashed: 20})
	equal(k, "claims left", len(k.claims()), 5)
	equal(k, "oldest left", k.claims()[0].Messages, list(ids[20]))
	equal(k, "the rest", k.recover(3), store.Recovered{Claims: 5, Crashed: 5})
}

func recoverPart(k *kit) {
	ids := k.add("c", 3)
	c := k.take("a", "c", ids...)
	k.settle("a", append(results(c, store.Failed, ids[0]), results(c, store.Release, ids[2])...)...)
	k.pass(2 * lease)
	equal(k, "recovered", k.recover(3), store.Recovered{Claims: 1, Crashed: 1})
	equal(k, "crashes", []int{k.row(ids[0]).Crashes, k.row(ids[1]).Crashes, k.row(ids[2]).Crashes}, []int{0, 1, 0})
}

func recoverRemoved(k *kit) {
	ids := k.add("c", 2)
	k.take("a", "c", ids...)
	_, err := k.db.NewRaw("DELETE FROM ? WHERE id = ?", k.table("consumer_messages"), ids[0]).Exec(k.ctx)
	k.must("delete", err)
	k.pass(2 * lease)
	equal(k, "recovered", k.recover(3), store.Recovered{Claims: 1, Crashed: 1})
	equal(k, "messages", k.pending(), ids[1:])
	equal(k, "claims", k.claims(), nil)
}

// recoverLocked has a transactional consumer outlive its lease. Where rows are
// locked, recovery passes over its message; elsewhere it waits for the end.
func recoverLocked(k *kit) {
	ids := k.add("c", 2)
	c := k.take("a", "c", ids...)
	k.pass(2 * lease)
	type outcome struct {
		store.Recovered
		err error
	}
	recovered := make(chan outcome, 1)
	err := k.inTx(func(ctx context.Context, tx bun.Tx) error {
		if held, err := k.store.Claims.Fence(ctx, tx, fenceOf(c, 0, "a")); err != nil || len(held) == 0 {
			return fmt.Errorf("fence: got %v, error %v, want one message", held, err)
		}
		go func() {
			got, err := k.store.Claims.Recover(k.ctx, k.db, 3)
			recovered <- outcome{got, err}
		}()
		if k.store.RowLocks() {
			equal(k, "recovered", <-recovered, outcome{Recovered: store.Recovered{Claims: 1, Crashed: 1}})
		}
		_, err := k.store.Claims.Remove(ctx, tx, store.Session{}, ids[0])
		return err
	})
	k.must("transaction", err)
	if !k.store.RowLocks() {
		equal(k, "recovered", <-recovered, outcome{Recovered: store.Recovered{Claims: 1, Crashed: 1}})
	}
	equal(k, "messages", k.pending(), ids[1:])
	equal(k, "crashes", k.row(ids[1]).Crashes, 1)
	equal(k, "claims", k.claims(), nil)
}

// recoverSetBack has the database's clock set back by an hour. Polls have claims from before looked at once, although others end
// sooner. An owner that lives renews its claim before it is recovered.
func recoverSetBack(k *kit) {
	ids := k.add("c", 3)
	k.pass(time.Hour) // all are due although the clock is set back
	k.take("dead", "c", ids[0])
	live := k.take("live", "c", ids[1])
	k.pass(-time.Hour)
	k.take("other", "c", ids[2])
	for _, want := range []bool{true, false} {
		poll, err := k.store.Claims.Poll(k.ctx, k.db, nil)
		k.must("poll", err)
		equal(k, "expired", poll.Expired, want)
		equal(k, "overdue by a lease", poll.Overdue == lease, want)
		equal(k, "recovered at once", k.recover(3), store.Recovered{})
	}
	k.pass(lease)
	k.extend("live")
	k.extend("other")
	k.pass(time.Microsecond)
	equal(k, "recovered after a lease", k.recover(3), store.Recovered{Claims: 1, Crashed: 1})
	equal(k, "crashed", k.row(ids[0]).Crashes, 1)
	equal(k, "settled", k.settle("live", results(live, store.Done, ids[1])...), store.Settled{Live: []int64{live.ID}, Applied: 1})
}

func recoverAtOnce(k *kit) {
	const claims, size = 30, 3
	ids := k.add("c", claims*size)
	for i := range claims {
		k.take("a", "c", ids[i*size:(i+1)*size]...)
	}
	k.pass(2 * lease)
	found := make([]store.Recovered, 8)
	for len(k.claims()) > 0 && !k.Failed() {
		errs := together(len(found), func(i int) error {
			got, err := k.store.Claims.Recover(k.ctx, k.db, 3)
			found[i].Claims += got.Claims
			found[i].Crashed += got.Crashed
			return err
		})
		for _, err := range errs {
			k.Errorf("recover: got error %v, want none", err)
		}
	}
	var sum store.Recovered
	for _, f := range found {
		sum.Claims += f.Claims
		sum.Crashed += f.Crashed
	}
	equal(k, "recovered by all", sum, store.Recovered{Claims: claims, Crashed: claims * size})
	for _, m := range k.messages() {
		equal(k, fmt.Sprintf("crashes of message %d", m.ID), m.Crashes, 1)
	}
}
