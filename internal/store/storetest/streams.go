package storetest

import (
	"context"
	"encoding/binary"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

func streamCases() []testCase {
	return []testCase{
		{"a stream is reserved as wanted, or left as it is", reserveWanted},
		{"a refused reservation leaves the transaction usable", reserveRefused},
		{"two reservations of one stream wait for each other", reserveTogether},
		{"an erased stream is empty, closed, and without snapshots", eraseStream},
		{"a snapshot is kept unless a later one is", snapshotLater},
		{"a message is filled in with its event", fillIn},
		{"events count towards the bytes of a claim", claimEventBytes},
	}
}

// event makes a row of events. Its stream need not be reserved.
func (k *kit) event(stream string, version int64) *store.NewEvent {
	e := &store.NewEvent{Stream: stream, Version: version, Category: category(stream), Type: "t", Schema: 1, Data: "{}"}
	binary.BigEndian.PutUint64(e.ID[8:], k.made.Add(1))
	return e
}

func category(stream string) string {
	category, _, _ := strings.Cut(stream, "-")
	return category
}

// record writes events in a transaction of their own, and returns their sequence
// numbers.
func (k *kit) record(events ...*store.NewEvent) []int64 {
	k.Helper()
	k.must("insert events", k.inTx(func(ctx context.Context, tx bun.Tx) error { return k.store.EventLog.InsertEvents(ctx, tx, events) }))
	var sequences []int64
	for _, e := range events {
		sequences = append(sequences, e.Sequence)
	}
	return sequences
}

// reserve takes versions of a stream in a transaction of its own.
func (k *kit) reserve(stream string, wanted int64, count int) (r store.Reserved) {
	k.Helper()
	k.must("reserve", k.inTx(func(ctx context.Context, tx bun.Tx) (err error) {
		r, err = k.store.EventLog.Reserve(ctx, tx, store.Reservation{Stream: stream, Category: category(stream), Want: wanted, Count: count})
		return err
	}))
	return r
}

func reserveWanted(k *kit) {
	equal(k, "exact, of no stream", k.reserve("a-1", 2, 1), store.Reserved{})
	equal(k, "old, of no stream", k.reserve("a-1", store.OldStream, 1), store.Reserved{})
	equal(k, "new", k.reserve("a-1", store.NewStream, 2), store.Reserved{OK: true, Version: 2})
	equal(k, "new again", k.reserve("a-1", store.NewStream, 2), store.Reserved{Version: 2})
	equal(k, "exact", k.reserve("a-1", 2, 3), store.Reserved{OK: true, Version: 5})
	equal(k, "exact, too old", k.reserve("a-1", 2, 3), store.Reserved{Version: 5})
	equal(k, "exact, too new", k.reserve("a-1", 6, 3), store.Reserved{Version: 5})
	equal(k, "any", k.reserve("a-1", store.AnyStream, 1), store.Reserved{OK: true, Version: 6})
	equal(k, "old", k.reserve("a-1", store.OldStream, 1), store.Reserved{OK: true, Version: 7})
	equal(k, "any, of a new one", k.reserve("a-2", store.AnyStream, 4), store.Reserved{OK: true, Version: 4})
	// Names that differ in case or in what follows them are different.
	equal(k, "another case", k.reserve("A-2", store.NewStream, 1), store.Reserved{OK: true, Version: 1})
	equal(k, "a space behind", k.reserve("a-2 ", store.NewStream, 1), store.Reserved{OK: true, Version: 1})
}

func reserveRefused(k *kit) {
	k.reserve("a-1", store.NewStream, 1)
	k.must("transaction", k.inTx(func(ctx context.Context, tx bun.Tx) error {
		for _, wanted := range []int64{store.NewStream, 7} {
			r, err := k.store.EventLog.Reserve(ctx, tx, store.Reservation{Stream: "a-1", Category: "a", Want: wanted, Count: 1})
			k.must("refused", err)
			equal(k, "refused", r, store.Reserved{Version: 1})
		}
		r, err := k.store.EventLog.Reserve(ctx, tx, store.Reservation{Stream: "a-1", Category: "a", Want: 1, Count: 1})
		equal(k, "then", r, store.Reserved{OK: true, Version: 2})
		return err
	}))
	equal(k, "after the commit", k.reserve("a-1", 2, 1), store.Reserved{OK: true, Version: 3})
}

func reserveTogether(k *kit) {
	got := make([]store.Reserved, 8)
	errs := together(len(got), func(i int) error {
		return txn.InTx(k.ctx, k.db, func(tx bun.Tx) error {
			r, err := k.store.EventLog.Reserve(k.ctx, tx, store.Reservation{Stream: "a-1", Category: "a", Want: store.AnyStream, Count: 2})
			got[i] = r
			return err
		})
	})
	equal(k, "errors", errs, nil)
	seen := map[int64]bool{}
	for _, r := range got {
		seen[r.Version] = true
	}
	for version := int64(2); version <= 16; version += 2 {
		if !seen[version] {
			k.Errorf("versions: got %v, want each of 2, 4, ... 16", got)
			break
		}
	}
}

func eraseStream(k *kit) {
	k.reserve("a-1", store.NewStream, 3)
	k.reserve("a-2", store.NewStream, 1)
	events := []*store.NewEvent{k.event("a-1", 1), k.event("a-1", 2), k.event("a-1", 3), k.event("a-2", 1)}
	events[0].Headers = `{"who":"ann"}`
	k.record(events...)
	k.must("erase", k.inTx(func(ctx context.Context, tx bun.Tx) error {
		for _, stream := range []string{"a-1", "a-2"} {
			k.must("snapshot", k.store.EventLog.SaveSnapshot(ctx, tx, stream, "s", store.Snapshot{Version: 1, State: []byte("{}")}))
		}
		return k.store.EventLog.Erase(ctx, tx, "a-1", 3)
	}))
	rows, err := k.store.EventLog.ReadStream(k.ctx, k.db, "a-1", 0, 10)
	k.must("read", err)
	equal(k, "left", versionsOf(rows), []int64{3})
	rows, err = k.store.EventLog.ReadStream(k.ctx, k.db, "a-2", 0, 10)
	k.must("read", err)
	equal(k, "the other stream", versionsOf(rows), []int64{1})
	for _, wanted := range []int64{store.AnyStream, store.OldStream, store.NewStream, 3} {
		equal(k, "closed", k.reserve("a-1", wanted, 1), store.Reserved{Version: 3, Closed: true})
	}
	_, ok, err := k.store.EventLog.Snapshot(k.ctx, k.db, "a-1", "s")
	equal(k, "its snapshot", ok, false)
	k.must("snapshot", err)
	_, ok, err = k.store.EventLog.Snapshot(k.ctx, k.db, "a-2", "s")
	equal(k, "the other's snapshot", ok, true)
	k.must("snapshot", err)
}

func versionsOf(rows []store.Event) []int64 {
	var versions []int64
	for _, row := range rows {
		versions = append(versions, row.Version)
	}
	return versions
}

func snapshotLater(k *kit) {
	for _, s := range []store.Snapshot{{Version: 5, State: []byte(`"five"`)}, {Version: 3, State: []byte(`"three"`)}, {Version: 5, State: []byte(`"again"`)}} {
		k.must("save", k.inTx(func(ctx context.Context, tx bun.Tx) error {
			return k.store.EventLog.SaveSnapshot(ctx, tx, "a-1", "s", s)
		}))
	}
	got, ok, err := k.store.EventLog.Snapshot(k.ctx, k.db, "a-1", "s")
	k.must("snapshot", err)
	equal(k, "kept", got, store.Snapshot{Version: 5, State: []byte(`"five"`)})
	equal(k, "found", ok, true)
	_, ok, err = k.store.EventLog.Snapshot(k.ctx, k.db, "a-1", "other")
	k.must("snapshot", err)
	equal(k, "of another kind", ok, false)
}

// referring makes a message that refers to an event whose text has so many bytes.
func (k *kit) referring(consumer string, sequence int64, size int) store.NewMessage {
	k.Helper()
	m := k.message(consumer)
	m.Payload = ""
	var err error
	m.Headers, err = store.EncodeHeaders(map[string]string{"who": "ann"}, store.Extras{Event: &bus.Event{Sequence: sequence}, EventSize: size})
	k.must("headers", err)
	return m
}

func fillIn(k *kit) {
	e := k.event("a-1", 7)
	e.Data = `{"amount":1}`
	sequence := k.record(e)[0]
	gone := k.record(k.event("a-2", 1))[0]
	k.must("erase", k.inTx(func(ctx context.Context, tx bun.Tx) error { return k.store.EventLog.Erase(ctx, tx, "a-2", 2) }))
	k.insert(k.referring("c", sequence, 12), k.referring("c", gone, 2), k.message("c"))
	c := k.claim(request("a", want("c", 3)))
	k.must("fill in", k.store.EventLog.FillIn(k.ctx, k.db, c.Messages))
	var texts []string
	for _, m := range c.Messages {
		texts = append(texts, string(m.Payload))
	}
	equal(k, "texts", texts, []string{`{"amount":1}`, "", "{}"})
	to := bus.Message{Headers: store.Headers(c.Messages[0].Headers)}
	c.Messages[0].Deliver(&to)
	equal(k, "delivers", *to.Event, bus.Event{Sequence: sequence, Stream: "a-1", Version: 7, Position: to.Event.Position, Schema: 1})
	equal(k, "headers", to.Headers, map[string]string{"who": "ann"})
	equal(k, "an ordinary message", c.Messages[2].Event, nil)
}

func claimEventBytes(k *kit) {
	for range 3 {
		k.insert(k.referring("c", 1, 1000))
	}
	ids := k.pending()
	k.cut("the first two of three", k.claim(within(2500, want("c", 10))), ids[:2], true)
	k.cut("the one that is left", k.claim(within(2500, want("c", 10))), ids[2:], false)
}
