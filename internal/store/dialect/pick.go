package dialect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/uptrace/bun"
)

// inlinePayload is the size, with headers and errors, up to which a pick contains the payload.
// Larger ones are read once the claim is certain.
const inlinePayload = 4 << 10

// maxReferred is the size of an event whose size is unknown.
const maxReferred = 2 << 20

// Pick is a message that was found and locked, before it is claimed. It lacks payload, headers and
// errors if they exceed inlinePayload together.
type Pick struct {
	Want     int `bun:"i"`
	Size     int `bun:"size"`     // of payload, headers and errors
	Text     int `bun:"text"`     // of the payload
	Priority int `bun:"priority"` // if the request regards it
	Message  `bun:",extend"`
}

// bytes returns how much a pick contributes once it is claimed.
func (p *Pick) bytes() int {
	if p.Text > 0 { // only a message that refers to an event has no payload of its own
		return p.Size
	}
	if p.Size > inlinePayload {
		return p.Size + maxReferred
	}
	_, event, _ := p.RefersTo()
	return p.Size + event
}

// Trim sorts the picks, the oldest first, drops what exceeds MaxBytes or Limit, and notes how far
// each want has come.
func (r ClaimRequest) Trim(picks []Pick) (Claim, []Pick) {
	n := len(r.Wants)
	if n > 1 || r.Ageing > 0 {
		picks = r.order(picks)
	}
	c := Claim{Found: make([]int, n), Last: make([]Position, n)}
	size := 0
	for i, p := range picks {
		size += p.bytes()
		if i > 0 && size > r.MaxBytes || r.Limit > 0 && i >= r.Limit {
			c.Cut, c.Dropped = true, firstOf(picks[i:], n)
			return c, picks[:i]
		}
		c.Found[p.Want]++ // one with a priority may be far ahead; the first dropped one shows where to go on
		at := Position{At: p.AvailableAfter.Time, ID: p.ID}
		if c.Last[p.Want].Before(at) {
			c.Last[p.Want] = at
		}
	}
	return c, picks
}

// firstOf returns where the first pick of each want is.
func firstOf(picks []Pick, wants int) []Position {
	first := make([]Position, wants)
	for _, p := range picks {
		at := Position{At: p.AvailableAfter.Time, ID: p.ID}
		if first[p.Want].ID == 0 || at.Before(first[p.Want]) {
			first[p.Want] = at
		}
	}
	return first
}

// Levels are the priorities above the normal one, the highest first. There are none below: the
// index of due messages would have to leave such messages out.
const Levels = "2, 1"

// order sorts picks by how long they have been due, with the head start of their priority. A
// message that was also found by its priority comes once.
func (r ClaimRequest) order(picks []Pick) []Pick {
	due := func(p Pick) time.Time { return p.AvailableAfter.Add(-time.Duration(p.Priority) * r.Ageing) }
	slices.SortFunc(picks, func(a, b Pick) int {
		return cmp.Or(due(a).Compare(due(b)), cmp.Compare(a.ID, b.ID))
	})
	if r.Ageing == 0 {
		return picks
	}
	seen := make(map[int64]bool, len(picks)) // what has a priority stands before itself without
	return slices.DeleteFunc(picks, func(p Pick) bool {
		again := seen[p.ID]
		seen[p.ID] = true
		return again
	})
}

// PickedIDs returns the ids of picks, in their order.
func PickedIDs(picks []Pick) []int64 { return Each(picks, func(p Pick) int64 { return p.ID }) }

// Take completes the claim with the recorded picks, whose rows are locked, and reads what they lack.
func (n Names) Take(ctx context.Context, tx bun.IDB, c *Claim, picks []Pick, recorded []int64) error {
	if len(recorded) < len(picks) {
		kept := make(map[int64]bool, len(recorded))
		for _, id := range recorded {
			kept[id] = true
		}
		picks = slices.DeleteFunc(picks, func(p Pick) bool { return !kept[p.ID] })
	}
	gone, err := readLarge(ctx, n, tx, picks, func(p *Pick) *Pick { return p })
	if err != nil {
		return err
	}
	if len(gone) > 0 {
		return fmt.Errorf("payloads: %d of the claimed messages are gone", len(gone))
	}
	c.Messages = make([]Message, len(picks))
	for i := range picks {
		c.Messages[i] = picks[i].Message
	}
	return nil
}

// readLarge reads what large picks lack, and returns those whose rows are gone.
func readLarge[P any](ctx context.Context, n Names, tx bun.IDB, picks []P, of func(*P) *Pick) (gone map[int64]*Message, err error) {
	var large map[int64]*Message // nil in a claim without large messages, as most are
	for i := range picks {
		if p := of(&picks[i]); p.Size > inlinePayload {
			if large == nil {
				large = make(map[int64]*Message)
			}
			large[p.ID] = &p.Message
		}
	}
	if len(large) == 0 {
		return nil, nil
	}
	var rows []struct {
		ID               int64
		Payload, Headers []byte
		Errors           string
	}
	query := tx.NewRaw(n.Expand(`SELECT id, payload, headers, errors FROM {messages} WHERE id IN (?)`),
		bun.List(slices.Collect(maps.Keys(large))))
	if err := query.Scan(ctx, &rows); err != nil {
		return nil, fmt.Errorf("payloads: %w", err)
	}
	for _, row := range rows {
		m := large[row.ID]
		m.Payload, m.Headers, m.Errors = row.Payload, row.Headers, row.Errors
		delete(large, row.ID)
	}
	return large, nil
}

// Crashes returns the range of crashes that the selection covers.
func (s Selection) Crashes() (low, high int) {
	switch s {
	case Suspects:
		return 1, 1
	case Killers:
		return 2, math.MaxInt16
	}
	return 0, 0
}

// Rated locks the rate of a request, if it has one, until the end of the transaction.
func (n Names) Rated(ctx context.Context, tx bun.IDB, r ClaimRequest) (RatedRequest, error) {
	rated := RatedRequest{ClaimRequest: r, names: n}
	if r.Rate == nil {
		return rated, nil
	}
	err := rated.lock(ctx, tx)
	if err == nil {
		err = rated.clamp(ctx, tx)
	}
	if err != nil {
		return rated, fmt.Errorf("rate %q: %w", r.Rate.Name, err)
	}
	if r.Unused > 0 {
		rated.usedTo = later(rated.now, rated.usedTo).Add(-r.Rate.after(r.Unused))
	}
	rated.Limit, rated.wait = r.Rate.allows(rated.now, rated.usedTo, r.Limit)
	rated.Spent = rated.Limit == 0
	rated.Wants = slices.Clone(r.Wants)
	for i := range rated.Wants {
		rated.Wants[i].Limit = min(rated.Wants[i].Limit, rated.Limit)
	}
	return rated, nil
}
