package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/uptrace/bun"
)

// Probe looks for anything to do for the given wants, behind their places, in one
// statement where the database allows that.
func (s *Store) Probe(ctx context.Context, db *bun.DB, wants []Want) (Probe, error) {
	return s.look(ctx, db, wants, true)
}

// ProbeDue is [Store.Probe] for what is due and has not crashed, only.
func (s *Store) ProbeDue(ctx context.Context, db *bun.DB, wants []Want) (Probe, error) {
	return s.look(ctx, db, wants, false)
}

func (s *Store) look(ctx context.Context, db *bun.DB, wants []Want, all bool) (probe Probe, err error) {
	err = s.insist(ctx, db, func(db bun.IDB) (err error) {
		probe, err = s.probe(ctx, db, wants, all)
		return err
	})
	return probe, err
}

// Acquit has the owner's solo claims count like any other: something that may have
// crashed is about to run beside them.
func (s *Store) Acquit(ctx context.Context, db bun.IDB, owner string) error {
	return s.insist(ctx, db, func(db bun.IDB) error {
		var ids []int64
		if err := s.raw(ctx, db, `SELECT id FROM {claims} WHERE owner = ? AND solo = TRUE`, owner).Scan(ctx, &ids); err != nil {
			return err
		}
		for _, id := range ids { // by the key: a scan would wait for the claims of others
			if _, err := s.raw(ctx, db, `UPDATE {claims} SET solo = FALSE WHERE id = ? AND owner = ?`, id, owner).Exec(ctx); err != nil {
				return err
			}
		}
		return nil
	})
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

// inlinePayload is the size, with headers and errors, up to which a payload comes with
// the pick. What is larger is read when it is certain that it is claimed.
const inlinePayload = 4 << 10

// maxReferred is what an event counts for while nobody knows how large it is.
const maxReferred = 2 << 20

// pick is a message that was found and locked, before it is claimed. Its payload,
// headers and errors are missing when they are larger than inlinePayload together.
type pick struct {
	Want    int `bun:"i"`
	Size    int `bun:"size"` // of payload, headers and errors
	Text    int `bun:"text"` // of the payload
	Message `bun:",extend"`
}

// bytes is what a pick brings along once it is claimed.
func (p *pick) bytes() int {
	if p.Text > 0 { // only what refers to an event has no text of its own
		return p.Size
	}
	if p.Size > inlinePayload {
		return p.Size + maxReferred
	}
	_, event, _ := p.refersTo()
	return p.Size + event
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
	c := Claim{Found: make([]int, n), Last: make([]Position, n)}
	size := 0
	for i, p := range picks {
		size += p.bytes()
		if i > 0 && size > r.MaxBytes || r.Limit > 0 && i >= r.Limit {
			c.Cut = true
			return c, picks[:i]
		}
		at := Position{At: p.AvailableAfter.Time, ID: p.ID}
		if c.Found[p.Want]++; c.Found[p.Want] == 1 || c.Last[p.Want].Before(at) {
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

// take completes the claim with those picks that were recorded, and reads what is
// still missing of them.
func (n names) take(ctx context.Context, tx bun.IDB, c *Claim, picks []pick, recorded []int64) error {
	if len(recorded) < len(picks) {
		kept := make(map[int64]bool, len(recorded))
		for _, id := range recorded {
			kept[id] = true
		}
		picks = slices.DeleteFunc(picks, func(p pick) bool { return !kept[p.ID] })
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
		ID               int64
		Payload, Headers []byte
		Errors           string
	}
	query := tx.NewRaw(n.expand(`SELECT id, payload, headers, errors FROM {messages} WHERE id IN (?)`), bun.List(slices.Collect(maps.Keys(large))))
	if err := query.Scan(ctx, &rows); err != nil {
		return fmt.Errorf("payloads: %w", err)
	}
	for _, row := range rows {
		m := large[row.ID]
		m.Payload, m.Headers, m.Errors = row.Payload, row.Headers, row.Errors
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
	Kind  int    `bun:"kind"`
	Value int64  `bun:"value"`
	ID    int64  `bun:"id"`
	At    Moment `bun:"at"`
}

// The kinds of findings, as the dialects' probes number them.
const (
	foundDue      = 0 // value: index of the want; and the place of its first message
	foundSuspects = 1
	foundKillers  = 2
	foundLease    = 3 // value: microseconds until the first ends
	foundNext     = 4 // value: microseconds
	foundNow      = 5 // the database's clock
)

func newProbe(found []finding) Probe {
	var p Probe
	for _, f := range found {
		switch f.Kind {
		case foundDue:
			p.Due, p.First = append(p.Due, int(f.Value)), append(p.First, Position{At: f.At.Time, ID: f.ID})
		case foundSuspects:
			p.Suspects = true
		case foundKillers:
			p.Killers = true
		case foundLease:
			p.Expired = f.Value < 0
			p.Lease = time.Duration(max(f.Value, 0)) * time.Microsecond
		case foundNext:
			p.Next = time.Duration(f.Value) * time.Microsecond
		case foundNow:
			p.Now = f.At.Time
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
		w.payloads = append(w.payloads, want.Payload)
		at := "-infinity"
		if !want.After.At.IsZero() {
			at = pgTime(want.After.At)
		}
		w.afterAt = append(w.afterAt, at)
		w.afterID = append(w.afterID, want.After.ID)
	}
	return w
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
