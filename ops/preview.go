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
	// Messages is how many match, up to 1,000,000; More is true if there are more. If counting beyond
	// 10,000 takes longer than 2 s, Messages is 10,000.
	Messages int  `json:"messages"`
	More     bool `json:"more,omitempty"`
	// First is true if the operation is limited to the first Messages of the matches. This applies
	// to filters whose matches change over time, such as ready messages.
	First bool `json:"first,omitempty"`
	// Incomplete is true if counting took longer than 10 s, so the number of matches is unknown
	// and may be zero.
	Incomplete bool `json:"incomplete,omitempty"`
	// Duplicate is the operation with the same target that is in progress, or that another
	// principal planned within 10 minutes. It is 0 if there is none.
	Duplicate int64 `json:"duplicate,omitempty"`
	// Overlapping are the operations in progress that change messages of the same consumers, with
	// another action or target. A message that both match is changed by the one that reaches it first.
	Overlapping []int64 `json:"overlapping,omitempty"`
	// Consumers are those that the operation affects. If more than 10,000 messages match, some of
	// them may not be affected.
	Consumers []string `json:"consumers,omitempty"`
	// Poisoned has details on poisoned messages. It is nil if the preview is Incomplete.
	Poisoned *poison.Preview `json:"poisoned,omitempty"`
	// Pending counts pending messages by consumer and payload type; their Oldest and Newest are when
	// messages were produced. Pending is nil if the preview is Incomplete. If More is true, it counts
	// only as many messages as the field Messages.
	Pending []poison.PreviewKind `json:"pending,omitempty"`

	ids []int64 // messages that it changes; nil if there are too many
}

// ErrNoMatch is returned when the target matches nothing; use errors.Is.
var ErrNoMatch = errors.New("nothing matches")

// pin is a time and the highest id at that time.
type pin struct {
	at   time.Time
	upTo int64
}

// pinned reads the time, then the highest id. No filter slows this down.
func (s *Service) pinned(ctx context.Context, last func(ctx context.Context, db bun.IDB) (int64, error)) (pin, error) {
	return briefly(ctx, s, s.config.DB, lookTime, func(ctx context.Context, db bun.IDB) (p pin, err error) {
		if p.at, err = s.store.Now(ctx, db); err == nil {
			p.upTo, err = last(ctx, db)
		}
		return p, err
	})
}

// countIn runs a count within a preview's time limit and reports whether it finished.
func countIn[T any](
	ctx context.Context, s *Service, fn func(ctx context.Context, db bun.IDB) (T, error),
) (result T, whole bool, err error) {
	result, err = briefly(ctx, s, s.config.DB, previewTime-2*lookTime, fn)
	if errors.Is(err, ErrBusy) {
		return *new(T), false, nil
	}
	return result, err == nil, err
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

// previewPoisoned pins the target to the ids that match now. If there are too many, it pins the
// highest id and the time.
func previewPoisoned(ctx context.Context, s *Service, t *Target) (p Preview, err error) {
	filter := *t.Poisoned
	pin, err := s.pinned(ctx, s.store.Poison.LastOf)
	if err != nil {
		return Preview{}, err
	}
	p.At, p.UpTo = pin.at, pin.upTo
	if filter.PoisonedBefore.IsZero() || filter.PoisonedBefore.After(pin.at) {
		filter.PoisonedBefore = pin.at
	}
	t.Poisoned = &filter
	var ids []int64
	seen, whole, err := countIn(ctx, s, func(ctx context.Context, db bun.IDB) (seen poison.Preview, err error) {
		seen, ids, err = s.poisoned.PreviewIDs(ctx, db, filter, opsaccess.MostPreviewed)
		return seen, err
	})
	switch {
	case err != nil:
		return Preview{}, err
	case p.UpTo == 0 || whole && (seen.UpTo == 0 || len(ids) == 0):
		return Preview{}, ErrNoMatch
	case whole:
		p.UpTo, p.Messages, p.More, p.Poisoned = seen.UpTo, seen.Messages, seen.More, &seen
		if !seen.More {
			p.ids = ids
			break
		}
		err = s.countOn(ctx, &p, func(ctx context.Context, db bun.IDB) (int, error) {
			return s.poisoned.CountUpTo(ctx, db, filter, mostCounted)
		})
	default:
		p.Incomplete, p.More = true, true
	}
	var names []string
	for _, k := range seen.Kinds {
		if len(names) == 0 || names[len(names)-1] != k.Consumer { // sorted by consumer
			names = append(names, k.Consumer)
		}
	}
	if err == nil {
		p.Consumers, err = s.touched(ctx, filter.Consumer, names, p.ids != nil)
	}
	return p, err
}

const (
	mostCounted = 1_000_000       // matches that are counted
	countOnTime = 2 * time.Second // for those beyond the table of a preview
)

// countOn counts all that match, and leaves the preview as it is if that takes too long.
func (s *Service) countOn(ctx context.Context, p *Preview, count func(ctx context.Context, db bun.IDB) (int, error)) error {
	n, err := briefly(ctx, s, s.config.DB, countOnTime, count)
	switch {
	case errors.Is(err, ErrBusy):
		return nil
	case err == nil && n > p.Messages:
		p.Messages, p.More = n, n >= mostCounted
	}
	return err
}

// previewPending pins the target to the ids that match now, because a message can become due, fail
// or be claimed before the operation runs. It pins only the highest id if there are too many
// matches and the filter does not depend on such state.
func previewPending(ctx context.Context, s *Service, t *Target) (p Preview, err error) {
	pin, err := s.pinned(ctx, s.store.Pending.Last)
	if err != nil {
		return Preview{}, err
	}
	p.At, p.UpTo = pin.at, pin.upTo
	seen, whole, err := countIn(ctx, s, func(ctx context.Context, db bun.IDB) (seenPending, error) {
		return s.seePending(ctx, db, *t.Pending, p.UpTo)
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
		err = s.countOn(ctx, &p, func(ctx context.Context, db bun.IDB) (int, error) {
			return s.countPending(ctx, db, pendingRows(*t.Pending), p.UpTo)
		})
	case volatile:
		return Preview{}, fmt.Errorf("%w: what matches could not be read within %s: select by a consumer, too", ErrBusy, previewTime-2*lookTime)
	default:
		p.Incomplete, p.More = true, true
	}
	p.Pending = seen.kinds
	if err == nil {
		p.Consumers, err = s.touched(ctx, t.Pending.Consumer, seen.consumers(), p.ids != nil)
	}
	return p, err
}

// countPending counts matching messages up to an id, at most mostCounted.
func (s *Service) countPending(ctx context.Context, db bun.IDB, f store.PendingFilter, upTo int64) (n int, err error) {
	after := int64(0)
	for more := true; more && n < mostCounted; {
		var ids []int64
		if ids, after, more, err = s.store.Pending.Matching(ctx, db, f, after, upTo, opsaccess.MostPreviewed); err != nil {
			return 0, err
		}
		n += len(ids)
	}
	return n, nil
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
		counts := poison.PreviewCounts{Messages: k.N, Oldest: k.Oldest.Time, Newest: k.Newest.Time}
		return poison.PreviewKind{Consumer: k.ConsumerType, PayloadType: k.PayloadType, PreviewCounts: counts}
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
