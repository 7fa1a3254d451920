package storetest

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func leaseSubscriptionCases() []testCase {
	return []testCase{
		{"a shard is leased to one, for a while", leaseShard},
		{"a clock that is set back keeps a shard for a lease at most", leaseSetBack},
		{"a shard is moved by its owner, from where that has read", moveLeasedShard},
		{"a shard is held until the end of a transaction", holdLeased},
		{"a shard that waits, or is halted, is not leased", leaseNothing},
		{"a shard that is rewound has a mark that says so", rewindLeased},
	}
}

// leased returns whether an owner gets the first shard of the reader p, and its state.
func (k *kit) leased(owner string) (store.Subscription, bool) {
	k.Helper()
	sub, ok, err := k.store.Readers.Lease(k.ctx, k.db, reader(1), owner, time.Minute)
	k.must("lease", err)
	return sub, ok
}

func leaseShard(k *kit) {
	k.subscribe(reader(2))
	k.record(k.event("a-1", 1), k.event("a-1", 2))
	k.number(10)
	sub, ok := k.leased("one")
	equal(k, "leased", ok, true)
	equal(k, "head", sub.Head, 2)
	equal(k, "position, shards and mark", []int64{sub.Position, int64(sub.Shards), sub.Mark}, []int64{0, 2, 0})
	_, ok = k.leased("one")
	equal(k, "leased again", ok, true)
	_, ok = k.leased("two")
	equal(k, "by another", ok, false)
	k.pass(time.Minute)
	_, ok = k.leased("two")
	equal(k, "by another when it is over", ok, true)
	_, ok = k.leased("one")
	equal(k, "by its previous owner", ok, false)
	k.must("return", k.store.Readers.ReturnLeases(k.ctx, k.db, []string{"p"}, "one"))
	_, ok = k.leased("one")
	equal(k, "after it was returned by another owner", ok, false)
	k.must("return", k.store.Readers.ReturnLeases(k.ctx, k.db, []string{"q"}, "two"))
	_, ok = k.leased("one")
	equal(k, "after that of another reader was returned", ok, false)
	k.must("return", k.store.Readers.ReturnLeases(k.ctx, k.db, []string{"q", "p"}, "two"))
	_, ok = k.leased("one")
	equal(k, "after it was returned", ok, true)
}

// leaseSetBack has the database's clock set back by an hour. An owner that lives can renew its lease.
func leaseSetBack(k *kit) {
	k.subscribe(reader(1))
	k.pass(time.Hour)
	_, ok := k.leased("one")
	equal(k, "leased", ok, true)
	k.pass(-time.Hour)
	for _, step := range []struct {
		pass  time.Duration
		owner string
		ok    bool
	}{{0, "two", false}, {time.Second, "one", true}, {0, "two", false}, {-time.Second, "two", false}, {time.Minute, "two", true}} {
		k.pass(step.pass)
		_, ok := k.leased(step.owner)
		equal(k, "leased by "+step.owner+" at "+k.now(), ok, step.ok)
	}
}

func moveLeasedShard(k *kit) {
	k.subscribe(reader(1))
	move := func(what string, sub store.Subscription, owner string, to, mark int64, want bool) {
		k.Helper()
		moved, err := k.store.Readers.MoveLeased(k.ctx, k.db, sub, owner, to, mark)
		k.must(what, err)
		equal(k, what, moved, want)
	}
	sub, _ := k.leased("one")
	move("moved", sub, "one", 5, 77, true)
	move("moved from where it no longer is", sub, "one", 6, 78, false)
	sub, _ = k.leased("one")
	equal(k, "position and mark", []int64{sub.Position, sub.Mark}, []int64{5, 77})
	k.pass(time.Minute)
	k.leased("two")
	move("moved by its previous owner", sub, "one", 6, 78, false)
	move("moved by the other", sub, "two", 6, 78, true)

	sub, _ = k.leased("two")
	for _, step := range []struct {
		before, after string
		want          int
	}{{"something else", "all", 0}, {sub.Filter, "all", 1}, {"all", `["a"]`, 1}} {
		n, err := k.store.Readers.SetFilter(k.ctx, k.db, sub.Name, sub.Version, step.before, step.after)
		k.must("set filter", err)
		equal(k, "shards whose filter was "+step.before, n, step.want)
	}
	move("moved by who has not seen the filter", sub, "two", 7, 79, false)
	k.must("leave", k.store.Readers.LeaveLeased(k.ctx, k.db, sub, "one", "it is another's"))
	sub, _ = k.leased("two")
	equal(k, "filter", sub.Filter, `["a"]`)
	move("moved by who has", sub, "two", 7, 79, true)
	k.must("leave", k.store.Readers.LeaveLeased(k.ctx, k.db, sub, "two", "not mine"))
	rows, err := k.store.Readers.List(k.ctx, k.db, sub.Name)
	k.must("subscriptions", err)
	equal(k, "reason", rows[0].LastError, "not mine")
	_, ok := k.leased("one")
	equal(k, "leased once it was left", ok, true)
}

func holdLeased(k *kit) {
	k.subscribe(reader(1))
	holds := func(owner string) (held bool) {
		k.Helper()
		k.must("hold", k.inTx(func(ctx context.Context, tx bun.Tx) (err error) {
			held, err = k.store.Readers.HoldLeased(ctx, tx, reader(1), owner)
			return err
		}))
		return held
	}
	equal(k, "held without an owner", holds("one"), false)
	k.leased("one")
	equal(k, "held by its owner", holds("one"), true)
	equal(k, "held by another", holds("two"), false)
	k.pass(time.Minute)
	equal(k, "held after the end of the lease, without another owner", holds("one"), true)
	k.leased("two")
	equal(k, "held by its previous owner", holds("one"), false)
}

func leaseNothing(k *kit) {
	k.subscribe(reader(1))
	fail := func(owner string, f store.Failure) bool {
		k.Helper()
		failed, err := k.store.Readers.FailLeased(k.ctx, k.db, reader(1), owner, f)
		k.must("fail", err)
		return failed
	}
	k.leased("one")
	equal(k, "fails", fail("one", store.Failure{Status: store.Running, Attempts: 1, Delay: time.Minute}), true)
	_, ok := k.leased("one")
	equal(k, "while it waits", ok, false)
	k.pass(time.Minute)
	sub, ok := k.leased("one")
	equal(k, "when it has waited", ok, true)
	equal(k, "attempts", sub.Attempts, 1)
	equal(k, "fails for another owner", fail("two", store.Failure{Status: store.Halted, Attempts: 2}), false)
	_, ok = k.leased("one")
	equal(k, "all the same", ok, true)
	equal(k, "halts", fail("one", store.Failure{Status: store.Halted, Attempts: 2}), true)
	_, ok = k.leased("one")
	equal(k, "halted", ok, false)
	moved, err := k.store.Readers.MoveLeased(k.ctx, k.db, sub, "one", 1, 1)
	k.must("move", err)
	equal(k, "moved while it is halted", moved, false)
}

func rewindLeased(k *kit) {
	k.subscribe(reader(1))
	sub, _ := k.leased("one")
	_, err := k.store.Readers.MoveLeased(k.ctx, k.db, sub, "one", 5, 77)
	k.must("move", err)
	sub, _ = k.leased("one")
	k.must("rewind", k.inTx(func(ctx context.Context, tx bun.Tx) error { return k.store.Readers.Rewind(ctx, tx, "p", 1) }))
	moved, err := k.store.Readers.MoveLeased(k.ctx, k.db, sub, "one", 6, 78)
	k.must("move", err)
	equal(k, "moved from where it was before", moved, false)
	sub, _ = k.leased("one")
	equal(k, "position and mark", []int64{sub.Position, sub.Mark}, []int64{0, store.Rewound})
}
