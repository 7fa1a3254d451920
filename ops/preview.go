package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// Preview is what an operation would change, as it was planned.
type Preview struct {
	// At is when it was looked at, on the database's clock.
	At time.Time `json:"at,omitzero"`
	// UpTo is the highest id that it changes: what comes later is not part of it.
	UpTo int64 `json:"up_to,omitempty"`
	// Messages are how many match, up to 10,000; More tells that there are more.
	Messages int  `json:"messages"`
	More     bool `json:"more,omitempty"`
	// Bounded tells that nobody knows how many match, since to count them took longer than 10 s: there
	// may be none.
	Bounded bool `json:"bounded,omitempty"`
	// Already is the operation with the same target that is under way, or else that somebody else has
	// planned within 10 minutes; 0 where there is none.
	Already int64 `json:"already,omitempty"`
	// Consumers are those that it touches. Where more than 10,000 messages match there may be some
	// among them that it does not.
	Consumers []string `json:"consumers,omitempty"`
	// Poisoned says more of poisoned messages. It is nil where the preview is Bounded.
	Poisoned *poison.Preview `json:"poisoned,omitempty"`
}

const mostPreviewed = 10_000

// ErrNothing: no message matches; use errors.Is.
var ErrNothing = errors.New("nothing matches")

// pin is how far there is anything at an instant.
type pin struct {
	at   time.Time
	upTo int64
}

// pinned reads both, in this order, which no filter makes slow.
func (d *Desk) pinned(ctx context.Context, last func(ctx context.Context, db bun.IDB) (int64, error)) (pin, error) {
	return briefly(ctx, d, d.config.DB, lookTime, func(ctx context.Context, db bun.IDB) (p pin, err error) {
		if p.at, err = d.store.Now(ctx, db); err == nil {
			p.upTo, err = last(ctx, db)
		}
		return p, err
	})
}

// countIn runs what counts, for as long as a preview may take, and tells whether it was done in time.
func countIn[T any](ctx context.Context, d *Desk, fn func(ctx context.Context, db bun.IDB) (T, error)) (result T, whole bool, err error) {
	result, err = briefly(ctx, d, d.config.DB, previewTime-2*lookTime, fn)
	if errors.Is(err, ErrBusy) {
		return *new(T), false, nil
	}
	return result, err == nil, err
}

// touched are the consumers of what matches, of which some were seen.
func (d *Desk) touched(ctx context.Context, named string, seen []string, whole bool) ([]string, error) {
	switch {
	case named != "":
		return []string{named}, nil
	case whole:
		return seen, nil
	}
	return briefly(ctx, d, d.config.DB, lookTime, d.store.StoredConsumers)
}

func previewPoisoned(ctx context.Context, d *Desk, t *Target) (p Preview, err error) {
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
		return Preview{}, ErrNothing
	case whole:
		p.UpTo, p.Messages, p.More, p.Poisoned = seen.UpTo, seen.Messages, seen.More, &seen
	default:
		p.Bounded, p.More = true, true
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

func previewPending(ctx context.Context, d *Desk, t *Target) (p Preview, err error) {
	pin, err := d.pinned(ctx, d.store.LastPending)
	if err != nil {
		return Preview{}, err
	}
	p.At, p.UpTo = pin.at, pin.upTo
	seen, whole, err := countIn(ctx, d, func(ctx context.Context, db bun.IDB) (outbox.Preview, error) {
		return d.admin.Preview(ctx, db, *t.Pending, mostPreviewed)
	})
	switch {
	case err != nil:
		return Preview{}, err
	case p.UpTo == 0 || whole && seen.Messages == 0:
		return Preview{}, ErrNothing
	case whole:
		p.UpTo, p.Messages, p.More = seen.UpTo, seen.Messages, seen.More
	default:
		p.Bounded, p.More = true, true
	}
	p.Consumers, err = d.touched(ctx, t.Pending.Consumer, seen.Consumers, !p.More)
	return p, err
}

// previewProjection pins the version, which is the newest unless one is named, and counts what is parked.
func previewProjection(ctx context.Context, d *Desk, t *Target) (Preview, error) {
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
			return Preview{}, fmt.Errorf("%w: no process has run projection %q, version %d", ErrNothing, t.Projection, t.Version)
		}
		t.Version = newest
		parked, err := d.projections.Parked(ctx, db, t.Projection, t.Version, 0, mostParked)
		p.Messages, p.More = len(parked), len(parked) == mostParked
		return p, err
	})
}

// mostParked is how many parked events are counted.
const mostParked = 1000
