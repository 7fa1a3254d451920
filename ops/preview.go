package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// Preview is what an operation would change, as it was planned.
type Preview struct {
	// At is when it was looked at, on the database's clock.
	At time.Time `json:"at,omitzero"`
	// UpTo is the highest id that it changes: what comes later is not part of it.
	UpTo int64 `json:"up_to,omitempty"`
	// Messages are how many match, up to 10,000; More is true if there are more.
	Messages int  `json:"messages"`
	More     bool `json:"more,omitempty"`
	// First is true if it changes only these Messages, the first, though more match: which those are would
	// be another thing by the time they are changed, as with pending messages that are ready.
	First bool `json:"first,omitempty"`
	// Incomplete is true if it is unknown how many match, since to count them took longer than 10 s:
	// there may be none.
	Incomplete bool `json:"incomplete,omitempty"`
	// Duplicate is the operation with the same target that is under way, or else that another
	// principal has planned within 10 minutes; 0 where there is none.
	Duplicate int64 `json:"duplicate,omitempty"`
	// Consumers are those that it touches. Where more than 10,000 messages match there may be some
	// among them that it does not.
	Consumers []string `json:"consumers,omitempty"`
	// Poisoned says more of poisoned messages. It is nil where the preview is Bounded.
	Poisoned *poison.Preview `json:"poisoned,omitempty"`

	ids []int64 // of the pending messages that it changes; nil where they are too many to be kept
}

const mostPreviewed = 10_000

// ErrNoMatch: no message matches; use errors.Is.
var ErrNoMatch = errors.New("nothing matches")

// pin is how far there is anything at an instant.
type pin struct {
	at   time.Time
	upTo int64
}

// pinned reads both, in this order, which no filter makes slow.
func (d *Service) pinned(ctx context.Context, last func(ctx context.Context, db bun.IDB) (int64, error)) (pin, error) {
	return briefly(ctx, d, d.config.DB, lookTime, func(ctx context.Context, db bun.IDB) (p pin, err error) {
		if p.at, err = d.store.Now(ctx, db); err == nil {
			p.upTo, err = last(ctx, db)
		}
		return p, err
	})
}

// countIn runs what counts, for as long as a preview may take, and reports whether it was done in time.
func countIn[T any](ctx context.Context, d *Service, fn func(ctx context.Context, db bun.IDB) (T, error)) (result T, whole bool, err error) {
	result, err = briefly(ctx, d, d.config.DB, previewTime-2*lookTime, fn)
	if errors.Is(err, ErrBusy) {
		return *new(T), false, nil
	}
	return result, err == nil, err
}

// touched are the consumers of what matches, of which some were seen.
func (d *Service) touched(ctx context.Context, named string, seen []string, whole bool) ([]string, error) {
	switch {
	case named != "":
		return []string{named}, nil
	case whole:
		return seen, nil
	}
	return briefly(ctx, d, d.config.DB, lookTime, d.store.StoredConsumers)
}

func previewPoisoned(ctx context.Context, d *Service, t *Target) (p Preview, err error) {
	filter := *t.Poisoned
	pin, err := d.pinned(ctx, d.store.LastOfPoisoned)
	if err != nil {
		return Preview{}, err
	}
	p.At, p.UpTo = pin.at, pin.upTo
	if filter.PoisonedBefore.IsZero() || filter.PoisonedBefore.After(pin.at) {
		filter.PoisonedBefore = pin.at
	}
	t.Poisoned = &filter
	seen, whole, err := countIn(ctx, d, func(ctx context.Context, db bun.IDB) (poison.Preview, error) {
		return d.poisoned.Preview(ctx, db, filter, mostPreviewed)
	})
	switch {
	case err != nil:
		return Preview{}, err
	case p.UpTo == 0 || whole && seen.UpTo == 0:
		return Preview{}, ErrNoMatch
	case whole:
		p.UpTo, p.Messages, p.More, p.Poisoned = seen.UpTo, seen.Messages, seen.More, &seen
	default:
		p.Incomplete, p.More = true, true
	}
	var names []string
	for _, k := range seen.Kinds {
		if len(names) == 0 || names[len(names)-1] != k.Consumer { // they are in the order of names
			names = append(names, k.Consumer)
		}
	}
	p.Consumers, err = d.touched(ctx, filter.Consumer, names, !p.More)
	return p, err
}

// previewPending pins the target to the messages that match now, by their ids: what matches later may be others, since a
// message becomes due, fails or is claimed by itself. Only where there are more than are kept, and none of that is asked
// for, it goes by the highest id.
func previewPending(ctx context.Context, d *Service, t *Target) (p Preview, err error) {
	pin, err := d.pinned(ctx, d.store.LastPending)
	if err != nil {
		return Preview{}, err
	}
	p.At, p.UpTo = pin.at, pin.upTo
	seen, whole, err := countIn(ctx, d, func(ctx context.Context, db bun.IDB) (seenPending, error) {
		return d.seePending(ctx, db, *t.Pending, p.UpTo)
	})
	switch volatile := t.Pending.State != "" || t.Pending.Crashed || t.Pending.Retrying; {
	case err != nil:
		return Preview{}, err
	case p.UpTo == 0 || whole && len(seen.ids) == 0:
		return Preview{}, ErrNoMatch
	case whole && (volatile || !seen.more):
		p.ids, p.UpTo, p.Messages, p.More, p.First = seen.ids, seen.ids[len(seen.ids)-1], len(seen.ids), seen.more, seen.more
	case whole:
		p.Messages, p.More = len(seen.ids), true
	case volatile:
		return Preview{}, fmt.Errorf("%w: what matches could not be read within %s: select by a consumer, too", ErrBusy, previewTime-2*lookTime)
	default:
		p.Incomplete, p.More = true, true
	}
	p.Consumers, err = d.touched(ctx, t.Pending.Consumer, seen.consumers, p.ids != nil)
	return p, err
}

// seenPending are messages that match, in the order of their ids.
type seenPending struct {
	ids       []int64
	more      bool // there may be more
	consumers []string
}

func (d *Service) seePending(ctx context.Context, db bun.IDB, filter admin.Filter, upTo int64) (seen seenPending, err error) {
	if _, _, err = d.admin.List(ctx, db, filter, admin.Page{Size: 1, ScanLimit: 1}); err != nil { // it checks the filter
		return seenPending{}, err
	}
	after := int64(0)
	for more := upTo > 0; more && !seen.more; {
		var ids []int64
		if ids, after, more, err = d.store.Matching(ctx, db, pendingRows(filter), after, upTo, mostPreviewed-len(seen.ids)); err != nil {
			return seenPending{}, err
		}
		seen.ids = append(seen.ids, ids...)
		seen.more = more && len(seen.ids) == mostPreviewed
	}
	seen.consumers, err = d.store.ConsumersOf(ctx, db, seen.ids)
	return seen, err
}

// previewProjection pins the version, which is the newest unless one is named, and counts what is parked.
func previewProjection(ctx context.Context, d *Service, t *Target) (Preview, error) {
	return briefly(ctx, d, d.config.DB, lookTime, func(ctx context.Context, db bun.IDB) (p Preview, err error) {
		if p.At, err = d.store.Now(ctx, db); err != nil {
			return Preview{}, err
		}
		states, err := d.projections.States(ctx, db)
		if err != nil {
			return Preview{}, err
		}
		newest := 0
		for _, s := range states {
			if s.Name == t.Projection && (t.Version == 0 || t.Version == s.Version) {
				newest = max(newest, s.Version)
			}
		}
		if newest == 0 {
			return Preview{}, fmt.Errorf("%w: no process has run projection %q, version %d", ErrNoMatch, t.Projection, t.Version)
		}
		t.Version = newest
		parked, err := d.projections.Parked(ctx, db, t.Projection, t.Version, 0, mostParked)
		p.Messages, p.More = len(parked), len(parked) == mostParked
		return p, err
	})
}

// mostParked is how many parked events are counted.
const mostParked = 1000
