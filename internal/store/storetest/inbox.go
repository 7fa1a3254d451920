package storetest

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

func inboxCases() []testCase {
	return []testCase{
		{"each hash of a receiver is new once", inboxOnce},
		{"what is rolled back is new again", inboxRolledBack},
		{"of many that receive the same one has it", inboxTogether},
		{"the oldest is forgotten, a piece at a time", inboxForgets},
		{"the types of a receiver are kept for a time", inboxTypes},
		{"what waits is counted up to a limit", inboxWaiting},
	}
}

// hash is a hash, in hex.
func hash(n int) string { return fmt.Sprintf("%032x", n) }

func (k *kit) receive(receiver string, hashes ...string) (added []string) {
	k.Helper()
	err := txn.InTx(k.ctx, k.db, func(tx bun.Tx) error {
		found, err := k.store.Inbox.Receive(k.ctx, tx, receiver, hashes)
		added = slices.Sorted(maps.Keys(found))
		return err
	})
	k.must("receive", err)
	return added
}

func inboxOnce(k *kit) {
	equal(k, "the first time", k.receive("a", hash(3), hash(1), hash(3)), []string{hash(1), hash(3)})
	equal(k, "some are new", k.receive("a", hash(3), hash(2), hash(1), hash(4)), []string{hash(2), hash(4)})
	equal(k, "none is new", len(k.receive("a", hash(1), hash(2))), 0)
	equal(k, "another receiver", k.receive("b", hash(1)), []string{hash(1)})
	var many []string
	for n := range 2500 {
		many = append(many, hash(n))
	}
	equal(k, "many", len(k.receive("a", many...)), 2496)
}

func inboxTypes(k *kit) {
	keep := func(receiver string, kept time.Duration, types ...string) {
		k.Helper()
		k.must("keep", k.store.Inbox.KeepTypes(k.ctx, k.db, receiver, types, kept))
	}
	kept := func(receiver string, want ...string) {
		k.Helper()
		types, err := k.store.Inbox.KeptTypes(k.ctx, k.db, receiver)
		k.must("kept", err)
		if !slices.Equal(types, want) {
			k.Errorf("types of %s: got %q, want %q", receiver, types, want)
		}
	}
	kept("a")
	keep("a", time.Minute, "y", "x")
	keep("b", time.Minute, "X ")
	kept("a", "x", "y")
	k.pass(50 * time.Second)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { keep("a", time.Minute, "z", "x") })
	}
	all.Wait()
	kept("a", "x", "y", "z")
	k.pass(20 * time.Second)
	kept("a", "x", "z")
	kept("b")
	k.pass(time.Minute)
	kept("a")
}

func inboxRolledBack(k *kit) {
	err := txn.InTx(k.ctx, k.db, func(tx bun.Tx) error {
		if _, err := k.store.Inbox.Receive(k.ctx, tx, "a", []string{hash(1)}); err != nil {
			return err
		}
		return fmt.Errorf("the process vanishes")
	})
	if err == nil {
		k.Error("got no error, want one")
	}
	equal(k, "again", k.receive("a", hash(1)), []string{hash(1)})
}

func inboxTogether(k *kit) {
	const processes, hashes = 4, 200
	var mu sync.Mutex
	had := make(map[string]int)
	var wg sync.WaitGroup
	for p := range processes {
		wg.Go(func() {
			for from := 0; from < hashes; from += 20 {
				var batch []string
				for n := range 40 { // in orders of their own
					batch = append(batch, hash((from+n*(2*p+1))%hashes))
				}
				added := k.receive("a", batch...)
				mu.Lock()
				for _, h := range added {
					had[h]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for h, n := range had {
		if n != 1 {
			k.Errorf("hash %s: got it new %d times, want once", h, n)
		}
	}
}

func inboxForgets(k *kit) {
	for n := range 5 {
		k.receive("a", hash(n))
		k.receive("b", hash(n))
		k.pass(time.Minute)
	}
	for _, want := range []int{2, 1, 0} {
		n, err := k.store.Inbox.Forget(k.ctx, k.db, "a", 150*time.Second, 2)
		k.must("forget", err)
		equal(k, "forgotten", n, want)
	}
	for receiver, want := range map[string]int{"a": 2, "b": 5, "c": 0} {
		inbox, err := k.store.Inbox.Size(k.ctx, k.db, receiver, 10)
		k.must("inbox", err)
		equal(k, "left of "+receiver, inbox.Hashes, want)
		if want > 0 {
			equal(k, "oldest of "+receiver, inbox.Now.Sub(inbox.Oldest.Time), time.Duration(want)*time.Minute)
		} else if !inbox.Oldest.IsZero() {
			k.Errorf("oldest of %s: got %s, want none", receiver, inbox.Oldest)
		}
	}
	equal(k, "new again", k.receive("a", hash(0), hash(4)), []string{hash(0)})
}

func inboxWaiting(k *kit) {
	var rows []store.NewMessage
	for n := range 6 {
		row := k.message(fmt.Sprintf("c%d", n%2))
		if n >= 4 {
			row.OrderKey = "key"
		}
		rows = append(rows, row)
	}
	k.insert(rows...)
	for _, test := range []struct{ limit, want int }{{10, 6}, {5, 5}, {2, 2}} {
		n, err := k.store.Inbox.Waiting(k.ctx, k.db, []string{"c0", "c1"}, test.limit)
		k.must("waiting", err)
		equal(k, "waiting", n, test.want)
	}
	n, err := k.store.Inbox.Waiting(k.ctx, k.db, []string{"c1"}, 10)
	k.must("waiting", err)
	equal(k, "waiting for one", n, 3)
}
