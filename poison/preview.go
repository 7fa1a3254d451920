package poison

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// knownWithin is for how long processes are kept.
const knownWithin = 7 * 24 * time.Hour

// Preview is what a change of many messages would change.
type Preview struct {
	// UpTo is the highest id among all that match: the UpTo of a [Chunk], which refuses 0, when none matches.
	UpTo int64 `json:"up_to"`
	// At is when they were looked at, on the database's clock; zero when none matches. A message that
	// fails later may have a lower id than UpTo: to leave it out, too, make this Filter.PoisonedBefore. What
	// was being poisoned at that very instant may still get in.
	At time.Time `json:"at,omitzero"`
	// More is true if the limit was reached: the rest is of the first that match, in the order of
	// their ids.
	More bool `json:"more,omitempty"`
	PreviewCounts
	// Kinds are the same by consumer and payload type.
	Kinds []PreviewKind `json:"kinds,omitempty"`
}

// PreviewKind is the part of a [Preview] that is of a consumer and payload type, as they are stored.
type PreviewKind struct {
	Consumer    string `json:"consumer"`
	PayloadType string `json:"payload_type"`
	PreviewCounts
}

// PreviewCounts counts messages.
type PreviewCounts struct {
	Messages int       `json:"messages"`
	Oldest   time.Time `json:"oldest,omitzero"` // when the first of them was poisoned
	Newest   time.Time `json:"newest,omitzero"` // and the last
	// Conflicts have an insert id that is pending: a requeue would leave them poisoned. Of several with
	// one insert id only one can be requeued, which is not counted.
	Conflicts int `json:"conflicts"`
	// Untaken are unhandled: no live process takes their consumer and payload type. It is 0 if no
	// processor has reported within 7 days, since nothing is known then: see
	// admin.Client.Processes.
	Unhandled int `json:"unhandled"`
}

func (c *PreviewCounts) add(o PreviewCounts) {
	if c.Oldest.IsZero() || o.Oldest.Before(c.Oldest) {
		c.Oldest = o.Oldest
	}
	if o.Newest.After(c.Newest) {
		c.Newest = o.Newest
	}
	c.Messages, c.Conflicts, c.Unhandled = c.Messages+o.Messages, c.Conflicts+o.Conflicts, c.Unhandled+o.Unhandled
}

// Preview looks at up to so many messages that match, 1 or more, without their payloads, before all of
// them are requeued or discarded. It changes nothing.
func (s *Store) Preview(ctx context.Context, db bun.IDB, filter Filter, most int) (Preview, error) {
	if most < 1 {
		return Preview{}, fmt.Errorf("poison: preview: of up to %d: %w: 1 or more is allowed", most, bus.ErrInvalidOption)
	}
	st, db, err := s.stores.Of(db, errUnmade)
	if err = errors.Join(err, filter.check()); err != nil {
		return Preview{}, dberr.Wrap(err, "poison: preview")
	}
	p, err := s.preview(ctx, st, db, filter.rows(), most)
	if err != nil {
		return Preview{}, dberr.Wrap(err, "poison: preview")
	}
	return p, nil
}

func (s *Store) preview(ctx context.Context, st *store.Store, db bun.IDB, f store.PoisonFilter, most int) (p Preview, err error) {
	if p.UpTo, err = st.LastPoisoned(ctx, db, f); err != nil || p.UpTo == 0 {
		return Preview{}, err
	}
	f.UpToID = p.UpTo
	names, err := s.admin.Names(ctx, db)
	if err != nil {
		return Preview{}, err
	}
	seen, err := st.PreviewPoisoned(ctx, db, f, names.Several(), most)
	if err != nil {
		return Preview{}, err
	}
	fleet, err := s.admin.Processes(ctx, db, knownWithin)
	if err != nil {
		return Preview{}, err
	}
	fleet = slices.DeleteFunc(fleet, func(p admin.Process) bool { return p.Kind != "processor" })
	alive := slices.DeleteFunc(slices.Clone(fleet), func(p admin.Process) bool { return p.Status != admin.ProcessAlive })
	var last int64
	for _, row := range seen {
		k := PreviewKind{row.ConsumerType, row.PayloadType, PreviewCounts{Messages: row.Messages, Oldest: row.Oldest.Time, Newest: row.Newest.Time, Conflicts: row.Conflicts}}
		if len(fleet) > 0 && !slices.ContainsFunc(alive, func(p admin.Process) bool { return p.Takes(k.Consumer, k.PayloadType) }) {
			k.Unhandled = k.Messages
		}
		p.add(k.PreviewCounts)
		p.At, p.Kinds, last = row.Now.Time, append(p.Kinds, k), max(last, row.Last)
	}
	p.More = last < p.UpTo && p.Messages >= most
	return p, nil
}
