package storetest

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// live lists the positions of a version of the reader p that are no replays.
func (k *kit) live(version int) (positions []int64) {
	k.Helper()
	rows, err := k.store.Readers.List(k.ctx, k.db, "p")
	k.must("subscriptions", err)
	for _, row := range rows {
		if row.Version != version {
			continue
		}
		filter := store.EventFilter{Reader: "p", Version: version}
		filter.SlotFrom, filter.SlotTo = store.SlotsOf(row.Shard, row.Shards)
		events, err := k.store.EventLog.ReadEvents(
			k.ctx, k.db, store.Page{UpTo: 100, Limit: 100, ReplayUntil: row.ReplayUntil, EventFilter: filter},
		)
		k.must("read", err)
		for _, e := range events {
			if !e.Replay {
				positions = append(positions, e.Position)
			}
		}
	}
	return positions
}

// passEvents moves a version of the reader p to a position, and parks events.
func (k *kit) passEvents(version int, to int64, parked ...store.Parked) {
	k.Helper()
	k.must("pass", k.inTx(func(ctx context.Context, tx bun.Tx) error {
		sub, ok, err := k.store.Readers.Lock(ctx, tx, "p", version, 0, lease)
		k.must("lock", err)
		equal(k, "locked", ok, true)
		for _, p := range parked {
			p.Name, p.Version, p.Stream = "p", version, "a-1"
			k.must("park", k.store.Readers.Park(ctx, tx, p))
		}
		_, err = k.store.Readers.Move(ctx, tx, sub, to)
		return err
	}))
}

func (k *kit) applied(version int, positions ...int64) {
	k.Helper()
	k.must("applied", k.inTx(func(ctx context.Context, tx bun.Tx) error {
		return k.store.Readers.Applied(ctx, tx, "p", version, positions)
	}))
}

func (k *kit) rewind() {
	k.Helper()
	k.must("rewind", k.inTx(func(ctx context.Context, tx bun.Tx) error { return k.store.Readers.Rewind(ctx, tx, "p", 1) }))
}

func (k *kit) fiveEvents() {
	k.Helper()
	for version := range int64(5) {
		k.record(k.event("a-1", version+1))
	}
	k.number(10)
}

func replayEvents(k *kit) {
	k.fiveEvents()
	k.subscribe(reader(1))
	k.passEvents(1, 4, store.Parked{Position: 2}, store.Parked{Position: 3})
	equal(k, "of a first run", k.live(1), []int64{1, 2, 3, 4, 5})
	k.rewind()
	equal(k, "of a second run", k.live(1), []int64{2, 3, 5})
	n, err := k.store.Readers.CountParked(k.ctx, k.db, "p", 1, 10)
	k.must("count", err)
	equal(k, "parked after a rewind", n, 0)
	positions, err := k.store.Readers.ParkedPositions(k.ctx, k.db, "p", 1, 10)
	k.must("positions", err)
	equal(k, "positions after a rewind", positions, nil)
	k.must("unpark", k.inTx(func(ctx context.Context, tx bun.Tx) error {
		_, found, err := k.store.Readers.Unpark(ctx, tx, "p", 1, 2)
		equal(k, "unparked after a rewind", found, false)
		return err
	}))
	k.applied(1, 3)
	k.passEvents(1, 3, store.Parked{Position: 1, Replay: true}, store.Parked{Position: 2, Reason: "again"})
	k.applied(1, 2) // not while it is parked
	rows, err := k.store.Readers.Parked(k.ctx, k.db, "p", 1, 0, 10)
	k.must("parked", err)
	equal(k, "parked in the second run", len(rows), 2)
	equal(k, "a replay and another", []bool{rows[0].Replay, rows[1].Replay}, []bool{true, false})
	equal(k, "reason", rows[1].Reason, "again")
	k.rewind()
	equal(k, "of a third run", k.live(1), []int64{2, 5})
	k.passEvents(1, 2, store.Parked{Position: 1, Replay: true}, store.Parked{Position: 2})
	for position, want := range map[int64]bool{1: true, 2: false} {
		k.must("unpark", k.inTx(func(ctx context.Context, tx bun.Tx) error {
			replay, found, err := k.store.Readers.Unpark(ctx, tx, "p", 1, position)
			equal(k, "found and replay", []bool{found, replay}, []bool{true, want})
			return err
		}))
	}
	k.rewind()
	equal(k, "when all were applied", k.live(1), []int64{5})
	k.passEvents(1, 2, store.Parked{Position: 2})
	k.must("drop", k.inTx(func(ctx context.Context, tx bun.Tx) error { return k.store.Readers.DropParked(ctx, tx, "p", 1) }))
	k.rewind()
	equal(k, "of a reader without replays", k.live(1), []int64{5})
}

func inheritEvents(k *kit) {
	k.fiveEvents()
	subscribe := func(version, shards int) {
		next := reader(shards)
		next.Version = version
		k.subscribe(next)
	}
	k.subscribe(reader(1))
	k.passEvents(1, 4, store.Parked{Position: 2}, store.Parked{Position: 3}, store.Parked{Position: 4, Replay: true})
	subscribe(2, 1)
	equal(k, "version 2", k.live(2), []int64{2, 3, 5})
	n, err := k.store.Readers.CountParked(k.ctx, k.db, "p", 2, 10)
	k.must("count", err)
	equal(k, "parked in version 2", n, 0)
	k.applied(2, 2)
	k.passEvents(2, 2)
	k.passEvents(1, 5, store.Parked{Position: 5})
	subscribe(3, 64)
	equal(k, "version 3", k.live(3), []int64{3, 5})
	k.passEvents(2, 5)
	k.rewind()
	subscribe(4, 1)
	equal(k, "version 4, while version 1 starts again", k.live(4), []int64{3})
}
