package storetest

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func logCases() []testCase {
	return []testCase{
		{"events get ascending sequence numbers, in many inserts too", eventSequences},
		{"numbering is dense, and ends at its limit", numberDense},
		{"what is not committed is passed over, and numbered later", numberUncommitted},
		{"many number each event once", numberTogether},
		{"a page has what its filter asks for, in order", pageFilter},
		{"a stream is read after a version", streamPage},
	}
}

func eventSequences(k *kit) {
	events := make([]*store.NewEvent, 1200)
	for i := range events {
		events[i] = k.event(fmt.Sprintf("a-%d", i%7), int64(i/7+1))
	}
	events[3].Data, events[3].Headers = `{"text":"é🙂'\\ %s ?"}`, `{"a":"b"}`
	sequences := k.record(events...)
	if !slices.IsSorted(sequences) || len(slices.Compact(slices.Clone(sequences))) != len(events) {
		k.Errorf("sequence numbers: got %v, want them ascending", sequences)
	}
	rows, err := k.store.EventLog.ReadStream(k.ctx, k.db, "a-3", 0, 1)
	k.must("read", err)
	got := rows[0]
	equal(k, "text", string(got.Data), events[3].Data)
	equal(k, "headers", string(got.Headers), events[3].Headers)
	equal(k, "id", got.ID, events[3].ID)
	equal(k, "recorded", span(got.RecordedAt.Time), k.now())
}

// number numbers a page.
func (k *kit) number(limit int) int {
	k.Helper()
	n, err := k.store.AssignPositions(k.ctx, k.db, limit)
	k.must("number", err)
	return n
}

func (k *kit) unnumbered() int64 {
	k.Helper()
	n, err := k.store.Readers.Unnumbered(k.ctx, k.db, 1000)
	k.must("unnumbered", err)
	return n
}

func (k *kit) head() int64 {
	k.Helper()
	head, err := k.store.EventLog.Head(k.ctx, k.db)
	k.must("head", err)
	return head
}

// numbers reports whether events of this database are numbered after their commit.
func (k *kit) numbers() bool { return k.store.RowLocks() }

func numberDense(k *kit) {
	equal(k, "head of nothing", k.head(), 0)
	equal(k, "numbered of nothing", k.number(10), 0)
	sequences := k.record(k.event("a-1", 1), k.event("a-1", 2), k.event("a-1", 3))
	if k.numbers() {
		equal(k, "unnumbered", k.unnumbered(), 3)
		last, err := k.store.EventLog.LastUnnumbered(k.ctx, k.db, math.MaxInt64)
		k.must("last", err)
		equal(k, "last", last, sequences[2])
		last, err = k.store.EventLog.LastUnnumbered(k.ctx, k.db, sequences[2]-1)
		k.must("last", err)
		equal(k, "last of those before", last, sequences[1])
		_, ok, err := k.store.EventLog.Place(k.ctx, k.db, sequences[0])
		k.must("place", err)
		equal(k, "has a place", ok, false)
		equal(k, "first page", k.number(2), 2)
		equal(k, "head", k.head(), 2)
		equal(k, "second page", k.number(2), 1)
		equal(k, "third page", k.number(2), 0)
	}
	equal(k, "unnumbered", k.unnumbered(), 0)
	equal(k, "head", k.head(), 3)
	for i, sequence := range sequences {
		place, ok, err := k.store.EventLog.Place(k.ctx, k.db, sequence)
		k.must("place", err)
		equal(k, "place", place, int64(i+1))
		equal(k, "has a place", ok, true)
	}
	_, ok, err := k.store.EventLog.Place(k.ctx, k.db, sequences[2]+1000)
	k.must("place", err)
	equal(k, "of no event", ok, false)
}

func numberUncommitted(k *kit) {
	if !k.numbers() {
		return // one writer at a time
	}
	late := k.event("a-1", 1)
	open, err := k.db.BeginTx(k.ctx, readCommitted(k))
	k.must("begin", err)
	defer open.Rollback() //nolint:errcheck // a no-op after Commit
	k.must("insert", k.store.EventLog.InsertEvents(k.ctx, open, []*store.NewEvent{late}))
	early := k.record(k.event("a-2", 1), k.event("a-2", 2))
	equal(k, "numbered past it", k.number(10), 2)
	k.must("commit", open.Commit())
	after := k.record(k.event("a-1", 2))
	equal(k, "numbered then", k.number(10), 2)
	var got []int64
	for _, sequence := range append(early, late.Sequence, after[0]) {
		place, _, err := k.store.EventLog.Place(k.ctx, k.db, sequence)
		k.must("place", err)
		got = append(got, place)
	}
	equal(k, "places", got, []int64{1, 2, 3, 4})
}

func numberTogether(k *kit) {
	if !k.numbers() {
		return
	}
	for range 30 {
		k.record(k.event(fmt.Sprintf("a-%d", k.made.Load()), 1), k.event(fmt.Sprintf("b-%d", k.made.Load()), 1))
	}
	numbered := make([]int, 6)
	equal(k, "errors", together(len(numbered), func(i int) error {
		for range 12 {
			n, err := k.store.AssignPositions(k.ctx, k.db, 7)
			if numbered[i] += n; err != nil {
				return err
			}
		}
		return nil
	}), nil)
	total := k.number(100)
	for _, n := range numbered {
		total += n
	}
	equal(k, "numbered in all", total, 60)
	equal(k, "head", k.head(), 60)
}

func pageFilter(k *kit) {
	events := []*store.NewEvent{
		k.event("a-1", 1), k.event("b-1", 1), k.event("a-2", 1), k.event("b-1", 2), k.event("a-1", 2), k.event("a-2", 2),
	}
	for i, e := range events {
		e.Type, e.Slot = []string{"x", "y", "z"}[i%3], i
	}
	k.record(events...)
	k.number(100)
	k.must("erase the second", k.inTx(func(ctx context.Context, tx bun.Tx) error { return k.store.EventLog.Erase(ctx, tx, "b-1", 2) }))
	k.must("park", k.inTx(func(ctx context.Context, tx bun.Tx) error {
		return k.store.Readers.Park(ctx, tx, store.Parked{Name: "p", Version: 2, Position: 1, Stream: "a-1"})
	}))
	all := store.Page{UpTo: 6, Limit: 100}
	for _, c := range []struct {
		name   string
		change func(p *store.Page)
		want   []int64
	}{
		{"all but the erased", func(*store.Page) {}, []int64{1, 3, 4, 5, 6}},
		{"a limit", func(p *store.Page) { p.Limit = 2 }, []int64{1, 3}},
		{"after and up to", func(p *store.Page) { p.After, p.UpTo = 3, 5 }, []int64{4, 5}},
		{"one type", func(p *store.Page) { p.Types = []string{"x"} }, []int64{1, 4}},
		{"two types", func(p *store.Page) { p.Types = []string{"y", "z"} }, []int64{3, 5, 6}},
		{"a category", func(p *store.Page) { p.Categories = []string{"b"} }, []int64{4}},
		{"slots", func(p *store.Page) { p.SlotFrom, p.SlotTo = 2, 5 }, []int64{3, 4, 5}},
		{"all of it", func(p *store.Page) {
			p.Types, p.Categories, p.SlotTo = []string{"x", "y"}, []string{"a", "b"}, 4
		}, []int64{1, 4}},
		{"by sequence", func(p *store.Page) { p.BySequence, p.UpTo = true, math.MaxInt64 }, []int64{1, 3, 4, 5, 6}},
	} {
		p := all
		c.change(&p)
		rows, err := k.store.EventLog.ReadEvents(k.ctx, k.db, p)
		k.must(c.name, err)
		var got []int64
		for _, row := range rows {
			got = append(got, row.Position)
			equal(k, c.name+": parked", row.Parked, false)
		}
		equal(k, c.name, got, c.want)
	}
	all.Reader, all.Version, all.ParkStreams = "p", 2, true
	rows, err := k.store.EventLog.ReadEvents(k.ctx, k.db, all)
	k.must("with what is parked", err)
	var parked []int64
	for _, row := range rows {
		if row.Parked {
			parked = append(parked, row.Position)
		}
	}
	equal(k, "events of a parked stream", parked, []int64{1, 5})
}

func streamPage(k *kit) {
	for version := range int64(5) {
		k.record(k.event("a-1", version+1), k.event("a-10", version+1))
	}
	for _, c := range []struct {
		after int64
		limit int
		want  []int64
	}{{0, 2, []int64{1, 2}}, {2, 100, []int64{3, 4, 5}}, {5, 100, nil}} {
		rows, err := k.store.EventLog.ReadStream(k.ctx, k.db, "a-1", c.after, c.limit)
		k.must("read", err)
		equal(k, fmt.Sprintf("after %d", c.after), versionsOf(rows), c.want)
	}
}
