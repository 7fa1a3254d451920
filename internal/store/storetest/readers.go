package storetest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

func subscriptionCases() []testCase {
	return []testCase{
		{"a subscription is entered once, by however many", subscribeOnce},
		{"a new version replays what an older one has had", subscribeVersion},
		{"a shard is behind, moves, and no longer is", moveShard},
		{"a shard is locked by one", lockShard},
		{"a shard that fails waits, halts, and resumes", failShard},
		{"a reader is rewound, and older versions retire", rewindReader},
		{"events are parked and unparked", parkEvents},
		{"a parked event is no replay until it was applied", replayEvents},
		{"a new version inherits what no other has applied", inheritEvents},
	}
}

func reader(shards int) store.Subscription {
	return store.Subscription{Name: "p", Version: 1, Shards: shards, Filter: "f"}
}

func (k *kit) subscribe(sub store.Subscription) {
	k.Helper()
	k.must("subscribe", txn.InTx(k.ctx, k.db, func(tx bun.Tx) error { return k.store.Readers.Subscribe(k.ctx, tx, sub) }))
}

// shards describes the shards of the reader p.
func (k *kit) shards() []string {
	k.Helper()
	rows, err := k.store.Readers.List(k.ctx, k.db, "p")
	k.must("subscriptions", err)
	var out []string
	for _, row := range rows {
		out = append(out, fmt.Sprintf(
			"v%d %d/%d at %d, replay %d, %s, %d failed", row.Version, row.Shard, row.Shards, row.Position, row.ReplayUntil, row.Status,
			row.Attempts,
		))
	}
	return out
}

// locked runs fn with a shard that is locked, and fails the case when it is not.
func (k *kit) locked(shard int, fn func(ctx context.Context, tx bun.Tx, sub store.Subscription) error) {
	k.Helper()
	k.must("locked", k.inTx(func(ctx context.Context, tx bun.Tx) error {
		sub, ok, err := k.store.Readers.Lock(ctx, tx, "p", 1, shard, time.Minute)
		k.must("lock", err)
		equal(k, "locked", ok, true)
		return fn(ctx, tx, sub)
	}))
}

// behind lists the shards that are behind.
func (k *kit) behind(names ...string) []string {
	k.Helper()
	rows, _, err := k.store.Readers.Behind(k.ctx, k.db, names)
	k.must("behind", err)
	var out []string
	for _, row := range rows {
		out = append(out, fmt.Sprintf("%s v%d %d", row.Name, row.Version, row.Shard))
	}
	return out
}

func subscribeOnce(k *kit) {
	equal(k, "errors", together(6, func(int) error {
		return txn.InTx(k.ctx, k.db, func(tx bun.Tx) error { return k.store.Readers.Subscribe(k.ctx, tx, reader(2)) })
	}), nil)
	want := []string{"v1 0/2 at 0, replay 0, running, 0 failed", "v1 1/2 at 0, replay 0, running, 0 failed"}
	equal(k, "shards", k.shards(), want)
	other := reader(3)
	other.Position, other.Filter = 9, "other"
	k.subscribe(other)
	equal(k, "entered again, with other shards", k.shards(), want)
}

func subscribeVersion(k *kit) {
	k.subscribe(reader(2))
	k.locked(1, func(ctx context.Context, tx bun.Tx, sub store.Subscription) error {
		_, err := k.store.Readers.Move(ctx, tx, sub, 7)
		return err
	})
	for version, shards := range map[int]int{2: 1, 3: 2, 4: 3, 5: 1} {
		next := reader(shards)
		next.Version = version
		k.subscribe(next)
	}
	equal(k, "shards", k.shards()[2:], []string{
		"v2 0/1 at 0, replay 0, running, 0 failed",
		"v3 0/2 at 0, replay 0, running, 0 failed", "v3 1/2 at 0, replay 7, running, 0 failed",
		"v4 0/3 at 0, replay 0, running, 0 failed", "v4 1/3 at 0, replay 0, running, 0 failed", "v4 2/3 at 0, replay 7, running, 0 failed",
		"v5 0/1 at 0, replay 0, running, 0 failed",
	})
}

func moveShard(k *kit) {
	k.subscribe(reader(2))
	equal(k, "of an empty log", k.behind("p"), nil)
	k.record(k.event("a-1", 1), k.event("a-1", 2))
	if k.numbers() {
		rows, pending, err := k.store.Readers.Behind(k.ctx, k.db, nil)
		k.must("behind", err)
		equal(k, "events to number", pending, true)
		equal(k, "of no reader", len(rows), 0)
	}
	k.number(10)
	equal(k, "with events", k.behind("p", "other"), []string{"p v1 0", "p v1 1"})
	equal(k, "of others", k.behind("other"), nil)
	k.locked(0, func(ctx context.Context, tx bun.Tx, sub store.Subscription) error {
		moved, err := k.store.Readers.Move(ctx, tx, sub, 2)
		equal(k, "moved", moved, true)
		k.must("move", err)
		moved, err = k.store.Readers.Move(ctx, tx, sub, 2)
		equal(k, "moved from where it no longer is", moved, false)
		return err
	})
	equal(k, "with one at the end", k.behind("p"), []string{"p v1 1"})
}

func lockShard(k *kit) {
	k.subscribe(reader(2))
	if !k.store.RowLocks() {
		return // there is one writer at a time
	}
	k.locked(0, func(context.Context, bun.Tx, store.Subscription) error {
		return k.inTx(func(ctx context.Context, tx bun.Tx) error {
			_, ok, err := k.store.Readers.Lock(ctx, tx, "p", 1, 0, time.Minute)
			equal(k, "the same shard", ok, false)
			k.must("lock", err)
			_, ok, err = k.store.Readers.Lock(ctx, tx, "p", 1, 1, time.Minute)
			equal(k, "the other shard", ok, true)
			return err
		})
	})
}

func failShard(k *kit) {
	k.subscribe(reader(1))
	k.record(k.event("a-1", 1))
	k.number(10)
	sub := reader(1)
	fail := func(f store.Failure) { k.Helper(); k.must("fail", k.store.Readers.Fail(k.ctx, k.db, sub, f)) }
	fail(store.Failure{Status: store.Running, Attempts: 1, Delay: time.Minute, Error: "one\x00" + strings.Repeat("x", 100_000)})
	equal(k, "after a failure", k.shards(), []string{"v1 0/1 at 0, replay 0, running, 1 failed"})
	equal(k, "while it waits", k.behind("p"), nil)
	k.must("lock", k.inTx(func(ctx context.Context, tx bun.Tx) error {
		_, ok, err := k.store.Readers.Lock(ctx, tx, "p", 1, 0, time.Minute)
		equal(k, "locked while it waits", ok, false)
		return err
	}))
	k.pass(time.Minute)
	equal(k, "when it has waited", k.behind("p"), []string{"p v1 0"})
	fail(store.Failure{Status: store.Halted, Attempts: 2, Error: "two"})
	rows, err := k.store.Readers.List(k.ctx, k.db, "p")
	k.must("subscriptions", err)
	equal(k, "last error", rows[0].LastError, "two")
	equal(k, "halted", k.behind("p"), nil)
	fail(store.Failure{Status: store.Running})
	equal(k, "a failure of one that is halted", k.shards(), []string{"v1 0/1 at 0, replay 0, halted, 2 failed"})
	for _, want := range []int{1, 0} {
		n, err := k.store.Readers.Resume(k.ctx, k.db, "p", 1)
		k.must("resume", err)
		equal(k, "resumed", n, want)
	}
	equal(k, "resumed", k.behind("p"), []string{"p v1 0"})
	k.locked(0, func(ctx context.Context, tx bun.Tx, sub store.Subscription) error {
		_, err := k.store.Readers.Move(ctx, tx, sub, 1)
		return err
	})
	fail(store.Failure{Status: store.Halted})
	equal(k, "a failure from before it moved", k.shards(), []string{"v1 0/1 at 1, replay 0, running, 0 failed"})
}

func rewindReader(k *kit) {
	k.subscribe(reader(1))
	second := reader(1)
	second.Version = 2
	k.subscribe(second)
	version, ok, err := k.store.Readers.Active(k.ctx, k.db, "p")
	k.must("active", err)
	equal(k, "active of none", ok, false)
	equal(k, "active of none", version, 0)
	k.must("rewind", k.inTx(func(ctx context.Context, tx bun.Tx) error {
		rows, err := k.store.Readers.LockAll(ctx, tx, "p", 2)
		k.must("lock", err)
		equal(k, "shards of the second", len(rows), 1)
		rows, err = k.store.Readers.LockAll(ctx, tx, "p", 0)
		k.must("lock", err)
		equal(k, "shards of all", len(rows), 2)
		_, err = k.store.Readers.Move(ctx, tx, rows[1], 5)
		k.must("move", err)
		return k.store.Readers.Rewind(ctx, tx, "p", 2)
	}))
	k.must("activate", k.inTx(func(ctx context.Context, tx bun.Tx) error { return k.store.Readers.Activate(ctx, tx, "p", 2) }))
	k.must("activate again", k.inTx(func(ctx context.Context, tx bun.Tx) error { return k.store.Readers.Activate(ctx, tx, "p", 2) }))
	equal(k, "shards", k.shards(), []string{"v1 0/1 at 0, replay 0, retired, 0 failed", "v2 0/1 at 0, replay 5, running, 0 failed"})
	version, ok, err = k.store.Readers.Active(k.ctx, k.db, "p")
	k.must("active", err)
	equal(k, "active", version, 2)
	equal(k, "active", ok, true)
}

func parkEvents(k *kit) {
	park := func(name string, version int, position int64) {
		k.must("park", k.inTx(func(ctx context.Context, tx bun.Tx) error {
			return k.store.Readers.Park(
				ctx, tx, store.Parked{Name: name, Version: version, Position: position, Stream: "a-1", Reason: "because\x00"},
			)
		}))
	}
	for _, position := range []int64{9, 4, 4} {
		park("p", 1, position)
	}
	park("p", 2, 1)
	park("q", 1, 1)
	rows, err := k.store.Readers.Parked(k.ctx, k.db, "p", 1, 0, 10)
	k.must("parked", err)
	var positions []int64
	for _, row := range rows {
		positions = append(positions, row.Position)
	}
	equal(k, "parked", positions, []int64{4, 9})
	equal(k, "since", span(rows[0].ParkedAt.Time), k.now())
	n, err := k.store.Readers.CountParked(k.ctx, k.db, "p", 1, 10)
	k.must("count", err)
	equal(k, "count", n, 2)
	n, err = k.store.Readers.CountParked(k.ctx, k.db, "p", 1, 1)
	k.must("count", err)
	equal(k, "count, up to one", n, 1)
	for _, want := range []bool{true, false} {
		k.must("unpark", k.inTx(func(ctx context.Context, tx bun.Tx) error {
			_, was, err := k.store.Readers.Unpark(ctx, tx, "p", 1, 4)
			equal(k, "was parked", was, want)
			return err
		}))
	}
	n, err = k.store.Readers.CountParked(k.ctx, k.db, "p", 1, 10)
	k.must("count", err)
	equal(k, "left", n, 1)
}
