package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/opsaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// Preview is what a planned operation would change.
type Preview struct {
	// At is when the preview was made, on the database's clock.
	At time.Time `json:"at,omitzero"`
	// UpTo is the highest id that it changes.
	UpTo int64 `json:"up_to,omitempty"`
	// Messages is how many it changes: all that match, up to 100,000.
	Messages int `json:"messages"`
	// More is true if there may be more matches. First is then true as well: the operation changes
	// only the first Messages of them, and the rest needs another plan. Reading matches beyond
	// 10,000 ends after 2 s.
	More  bool `json:"more,omitempty"`
	First bool `json:"first,omitempty"`
	// Duplicate is the operation with the same target that is in progress, or that another
	// principal planned within 10 minutes. It is 0 if there is none.
	Duplicate int64 `json:"duplicate,omitempty"`
	// Overlapping are the operations in progress that change messages of the same consumers, with
	// another action or target. A message that both match is changed by the one that reaches it first.
	Overlapping []int64 `json:"overlapping,omitempty"`
	// Consumers are those that the operation affects. If more than 10,000 messages match, some of
	// them may not be affected.
	Consumers []string `json:"consumers,omitempty"`
	// Poisoned has details on the first 10,000 poisoned messages.
	Poisoned *poison.Preview `json:"poisoned,omitempty"`
	// Pending counts the first 10,000 pending messages by consumer and payload type; their Oldest and
	// Newest are when messages were produced.
	Pending []poison.PreviewKind `json:"pending,omitempty"`

	ids []int64 // what it changes: messages, or positions of parked events
}

// ErrNoMatch is returned when the target matches nothing; use errors.Is.
var ErrNoMatch = errors.New("nothing matches")

const (
	mostPinned = 100_000         // messages that one operation changes: its row has their ids
	pinTime    = 2 * time.Second // for reading the ids of those that are not in the table of a preview
)

// tabled reads the table of a preview.
func tabled[T any](ctx context.Context, s *Service, fn func(ctx context.Context, db bun.IDB) (T, error)) (result T, err error) {
	if result, err = briefly(ctx, s, s.config.DB, previewTime-2*lookTime, fn); errors.Is(err, ErrBusy) {
		err = fmt.Errorf("%w: select fewer messages, such as those of a consumer", err)
	}
	return result, err
}

// pinOn pins the matches behind those in the table of a preview: as many as next returns in time.
func (s *Service) pinOn(
	ctx context.Context, p *Preview, next func(ctx context.Context, db bun.IDB, after int64) (ids []int64, last int64, more bool, err error),
) error {
	after := p.ids[len(p.ids)-1]
	_, err := briefly(ctx, s, s.config.DB, pinTime, func(ctx context.Context, db bun.IDB) (none struct{}, err error) {
		for p.More && len(p.ids) <= mostPinned {
			ids, last, more, err := next(ctx, db, after)
			if err != nil {
				return none, err
			}
			p.ids, after, p.More = append(p.ids, ids...), last, more
		}
		return none, nil
	})
	if err != nil && !errors.Is(err, ErrBusy) {
		return err
	}
	if len(p.ids) > mostPinned {
		p.ids, p.More = p.ids[:mostPinned], true
	}
	p.Messages, p.First, p.UpTo = len(p.ids), p.More, p.ids[len(p.ids)-1]
	return nil
}

// touched returns the consumers of all matches. seen is complete only if whole is true.
func (s *Service) touched(ctx context.Context, named string, seen []string, whole bool) ([]string, error) {
	switch {
	case named != "":
		return []string{named}, nil
	case whole:
		return seen, nil
	}
	return briefly(ctx, s, s.config.DB, lookTime, s.store.Pending.StoredConsumers)
}

// previewPoisoned pins the messages that match now. Later ones may get lower ids and earlier times,
// because they are committed later.
func previewPoisoned(ctx context.Context, s *Service, t *Target) (p Preview, err error) {
	seen, err := tabled(ctx, s, func(ctx context.Context, db bun.IDB) (seen poison.Preview, err error) {
		seen, p.ids, err = s.poisoned.PreviewIDs(ctx, db, *t.Poisoned, opsaccess.MostPreviewed)
		return seen, err
	})
	switch {
	case err != nil:
		return Preview{}, err
	case len(p.ids) == 0:
		return Preview{}, ErrNoMatch
	}
	p.At, p.More, p.Poisoned = seen.At, seen.More, &seen
	err = s.pinOn(ctx, &p, func(ctx context.Context, db bun.IDB, after int64) (ids []int64, last int64, more bool, err error) {
		ids, err = s.poisoned.IDs(ctx, db, *t.Poisoned, after, seen.UpTo, opsaccess.MostPreviewed)
		if more = len(ids) == opsaccess.MostPreviewed; more {
			last = ids[len(ids)-1]
		}
		return ids, last, more, err
	})
	if err != nil {
		return Preview{}, err
	}
	var names []string
	for _, k := range seen.Kinds {
		if len(names) == 0 || names[len(names)-1] != k.Consumer { // sorted by consumer
			names = append(names, k.Consumer)
		}
	}
	p.Consumers, err = s.touched(ctx, t.Poisoned.Consumer, names, !seen.More)
	return p, err
}

// previewPending pins the messages that match now: others may become due, fail, be claimed or be
// committed before the operation runs.
func previewPending(ctx context.Context, s *Service, t *Target) (p Preview, err error) {
	upTo, err := briefly(ctx, s, s.config.DB, lookTime, func(ctx context.Context, db bun.IDB) (upTo int64, err error) {
		if p.At, err = s.store.Now(ctx, db); err == nil {
			upTo, err = s.store.Pending.Last(ctx, db)
		}
		return upTo, err
	})
	if err != nil {
		return Preview{}, err
	}
	seen, err := tabled(ctx, s, func(ctx context.Context, db bun.IDB) (seenPending, error) {
		return s.seePending(ctx, db, *t.Pending, upTo)
	})
	switch {
	case err != nil:
		return Preview{}, err
	case len(seen.ids) == 0:
		return Preview{}, ErrNoMatch
	}
	p.ids, p.More, p.Pending = seen.ids, seen.more, seen.kinds
	err = s.pinOn(ctx, &p, func(ctx context.Context, db bun.IDB, after int64) (ids []int64, last int64, more bool, err error) {
		return s.store.Pending.Matching(ctx, db, pendingRows(*t.Pending), after, upTo, opsaccess.MostPreviewed)
	})
	if err != nil {
		return Preview{}, err
	}
	p.Consumers, err = s.touched(ctx, t.Pending.Consumer, seen.consumers(), !seen.more)
	return p, err
}

// seenPending are matching messages, in the order of their ids.
type seenPending struct {
	ids   []int64
	more  bool                 // there may be more
	kinds []poison.PreviewKind // sorted by consumer
}

func (s seenPending) consumers() (names []string) {
	for _, k := range s.kinds {
		names = append(names, k.Consumer)
	}
	return slices.Compact(names)
}

func (s *Service) seePending(ctx context.Context, db bun.IDB, filter admin.Filter, upTo int64) (seen seenPending, err error) {
	if _, _, err = s.admin.List(ctx, db, filter, admin.Page{Size: 1, ScanLimit: 1}); err != nil { // checks the filter
		return seenPending{}, err
	}
	after := int64(0)
	for more := upTo > 0; more && !seen.more; {
		var ids []int64
		left := opsaccess.MostPreviewed - len(seen.ids)
		if ids, after, more, err = s.store.Pending.Matching(ctx, db, pendingRows(filter), after, upTo, left); err != nil {
			return seenPending{}, err
		}
		seen.ids = append(seen.ids, ids...)
		seen.more = more && len(seen.ids) == opsaccess.MostPreviewed
	}
	kinds, err := s.store.Operations.KindsOf(ctx, db, seen.ids)
	seen.kinds = store.Each(kinds, func(k store.PendingKind) poison.PreviewKind {
		return poison.PreviewKind{
			Consumer: k.ConsumerType, PayloadType: k.PayloadType, Messages: k.N, Oldest: k.Oldest.Time, Newest: k.Newest.Time,
		}
	})
	return seen, err
}

// previewProjection pins the version, by default the newest, and counts parked events.
func previewProjection(ctx context.Context, service *Service, t *Target) (Preview, error) {
	return briefly(ctx, service, service.config.DB, lookTime, func(ctx context.Context, db bun.IDB) (p Preview, err error) {
		if p.At, err = service.store.Now(ctx, db); err != nil {
			return Preview{}, err
		}
		states, err := service.projections.States(ctx, db)
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
		parked, err := service.projections.Parked(ctx, db, t.Projection, t.Version, 0, mostParked)
		p.Messages, p.More = len(parked), len(parked) == mostParked
		return p, err
	})
}

// previewParked pins the target to the events that are parked now.
func previewParked(ctx context.Context, service *Service, t *Target) (Preview, error) {
	p, err := previewProjection(ctx, service, t)
	if err != nil {
		return Preview{}, err
	}
	p.ids, err = briefly(ctx, service, service.config.DB, lookTime, func(ctx context.Context, db bun.IDB) ([]int64, error) {
		return service.store.Readers.ParkedPositions(ctx, db, t.Projection, t.Version, opsaccess.MostPreviewed+1)
	})
	if p.More = len(p.ids) > opsaccess.MostPreviewed; p.More {
		p.ids = p.ids[:opsaccess.MostPreviewed]
	}
	p.Messages, p.First = len(p.ids), p.More
	return p, err
}

// mostParked limits how many parked events are counted.
const mostParked = 1000
