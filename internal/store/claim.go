package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"
)

// Probe looks for anything to do for the given wants, in one statement where the
// database allows that.
func (s *Store) Probe(ctx context.Context, db *bun.DB, wants []Want) (probe Probe, err error) {
	err = s.insist(ctx, db, func(db bun.IDB) (err error) {
		probe, err = s.probe(ctx, db, wants)
		return err
	})
	return probe, err
}

// Claim takes messages under a new lease. Cancelling ctx while it runs may
// leave a claim behind that nobody knows of; see [Store.Extend].
func (s *Store) Claim(ctx context.Context, db *bun.DB, r ClaimRequest) (Claim, error) {
	return s.claim(ctx, db, r)
}

// Strangers lists kinds of messages that none of the wants would take: their
// consumer or their payload type is not registered here.
func (s *Store) Strangers(ctx context.Context, db bun.IDB, wants []Want) (found []Stranger, err error) {
	err = s.insist(ctx, db, func(db bun.IDB) (err error) {
		found, err = s.strangers(ctx, db, wants)
		return err
	})
	return found, err
}

// inlinePayload is the size, with the errors, up to which a payload comes with the
// pick. Larger ones are read when it is certain that they are claimed.
const inlinePayload = 4 << 10

// pick is a message that was found and locked, before it is claimed. Its payload
// is missing when it is larger than inlinePayload.
type pick struct {
	Want    int `bun:"i"`
	Size    int `bun:"size"`
	Message `bun:",extend"`
}

// keep puts the picks in order, the oldest first, drops what exceeds MaxBytes or
// Limit, and notes how far each want has come.
func (r ClaimRequest) keep(picks []pick) (Claim, []pick) {
	n := len(r.Wants)
	if n > 1 {
		slices.SortFunc(picks, func(a, b pick) int {
			return cmp.Or(a.AvailableAfter.Compare(b.AvailableAfter.Time), cmp.Compare(a.ID, b.ID))
		})
	}
	c := Claim{Found: make([]int, n), First: make([]Position, n), Last: make([]Position, n)}
	size := 0
	for i, p := range picks {
		size += p.Size
		if p.Size == 0 { // only what refers to an event has no text of its own
			_, event, _ := p.refersTo()
			size += event
		}
		if i > 0 && size > r.MaxBytes || r.Limit > 0 && i >= r.Limit {
			c.Cut = true
			return c, picks[:i]
		}
		at := Position{At: p.AvailableAfter.Time, ID: p.ID}
		if c.Found[p.Want]++; c.Found[p.Want] == 1 {
			c.First[p.Want], c.Last[p.Want] = at, at
		}
		if at.Before(c.First[p.Want]) {
			c.First[p.Want] = at
		}
		if c.Last[p.Want].Before(at) {
			c.Last[p.Want] = at
		}
	}
	return c, picks
}

func pickedIDs(picks []pick) []int64 {
	ids := make([]int64, len(picks))
	for i, p := range picks {
		ids[i] = p.ID
	}
	return ids
}

// take completes the claim with those picks that were recorded, and reads the
// payloads that are still missing.
func (n names) take(ctx context.Context, tx bun.IDB, c *Claim, picks []pick, recorded []int64) error {
	if len(recorded) < len(picks) {
		picks = slices.DeleteFunc(picks, func(p pick) bool { return !slices.Contains(recorded, p.ID) })
	}
	var large map[int64]*Message // nil in a claim that has none, as most
	c.Messages = make([]Message, len(picks))
	for i, p := range picks {
		c.Messages[i] = p.Message
		if p.Size > inlinePayload {
			if large == nil {
				large = make(map[int64]*Message)
			}
			large[p.ID] = &c.Messages[i]
		}
	}
	if len(large) == 0 {
		return nil
	}
	var rows []struct {
		ID      int64
		Payload []byte
	}
	query := tx.NewRaw(n.expand(`SELECT id, payload FROM {messages} WHERE id IN (?)`), bun.List(slices.Collect(maps.Keys(large))))
	if err := query.Scan(ctx, &rows); err != nil {
		return fmt.Errorf("payloads: %w", err)
	}
	for _, row := range rows {
		large[row.ID].Payload = row.Payload
	}
	return nil
}

// crashes returns the range of crashes that the selection covers.
func (s Selection) crashes() (low, high int) {
	switch s {
	case Suspects:
		return 1, 1
	case Killers:
		return 2, math.MaxInt16
	}
	return 0, 0
}

// finding is one thing that a probe found.
type finding struct {
	Kind  int   `bun:"kind"`
	Value int64 `bun:"value"`
}

// The kinds of findings, as the dialects' probes number them.
const (
	foundDue      = 0 // value: index of the want
	foundSuspects = 1
	foundKillers  = 2
	foundExpired  = 3
	foundNext     = 4 // value: microseconds
)

func newProbe(found []finding) Probe {
	var p Probe
	for _, f := range found {
		switch f.Kind {
		case foundDue:
			p.Due = append(p.Due, int(f.Value))
		case foundSuspects:
			p.Suspects = true
		case foundKillers:
			p.Killers = true
		case foundExpired:
			p.Expired = true
		case foundNext:
			p.Next = time.Duration(f.Value) * time.Microsecond
		}
	}
	return p
}

// wantColumns are wants turned on their side, as arrays for the database.
type wantColumns struct {
	indexes, limits     []int
	consumers, payloads []string
	afterAt             []string
	afterID             []int64
}

func columnsOf(wants []Want) wantColumns {
	var w wantColumns
	for i, want := range wants {
		w.indexes = append(w.indexes, i)
		w.limits = append(w.limits, want.Limit)
		w.consumers = append(w.consumers, want.Consumer)
		w.payloads = append(w.payloads, strings.Join(want.payloads(), listSeparator))
		at := "-infinity"
		if !want.After.At.IsZero() {
			at = pgTime(want.After.At)
		}
		w.afterAt = append(w.afterAt, at)
		w.afterID = append(w.afterID, want.After.ID)
	}
	return w
}

// listSeparator joins payload types to a list. No name contains it: see
// bus.NewRegistry.
const listSeparator = "\x1f"

func (w Want) payloads() []string { return append([]string{w.Payload}, w.FormerPayloads...) }

// kinds lists every pair of a consumer type and a payload type that is wanted.
func kinds(wants []Want) (consumers, payloads []string) {
	for _, w := range wants {
		for _, payload := range w.payloads() {
			consumers, payloads = append(consumers, w.Consumer), append(payloads, payload)
		}
	}
	return consumers, payloads
}

func affected(res sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

func affectedOne(res sql.Result, err error) (bool, error) {
	n, err := affected(res, err)
	return n == 1, err
}
