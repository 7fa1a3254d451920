package poison

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/heartbeat"
	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/names"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	groupsLooked = 500 // examined groups and consumers
	groupsShown  = 50
)

// Group is a set of poisoned messages of a consumer with the same fingerprint: see
// admin.FailureGroup.
type Group struct {
	Consumer string `json:"consumer"`
	// Fingerprint is that of its messages, or [Unclassified]. Together with Consumer it selects the
	// group in a [Filter].
	Fingerprint string `json:"fingerprint"`
	Messages    int    `json:"messages"` // 10,000 means "or more"
	// FirstAt and LastAt are when the messages with the lowest and the highest id were poisoned. A
	// message with an id in between may have been poisoned earlier or later.
	FirstAt time.Time `json:"first_at,omitzero"`
	LastAt  time.Time `json:"last_at,omitzero"`
	// Failure is what processes have reported about such failures, retried runs included: a sample,
	// a count, the first time and version. It is nil if no failure was reported: for crashes, for
	// unclassified messages, and 30 days after the last failure.
	Failure *admin.FailureGroup `json:"failure,omitempty"`
}

// Groups returns the groups of poisoned messages, of one consumer or of all if it is empty, and
// whether there are more. Groups with the latest failure come first. It examines at most 500 groups
// and consumers, in the order of consumers' names, and returns 50. It reads an index, and only the
// first and last message of a group.
func (s *Store) Groups(ctx context.Context, db bun.IDB, consumer string) (groups []Group, more bool, err error) {
	st, db, err := s.stores.Of(db, errUnmade)
	if mistake := limits.CheckText(consumer); mistake != nil {
		err = errors.Join(err, fmt.Errorf("consumer %q: %w: %w", consumer, bus.ErrInvalidText, mistake))
	}
	if err != nil {
		return nil, false, dberr.Wrap(err, "poison: groups")
	}
	if groups, more, err = s.groups(ctx, st, db, consumer); err != nil {
		return nil, false, dberr.Wrap(err, "poison: groups")
	}
	return groups, more, nil
}

func (s *Store) groups(ctx context.Context, st *store.Store, db bun.IDB, consumer string) (groups []Group, more bool, err error) {
	keys, whole, err := st.Poison.Groups(ctx, db, consumer, groupsLooked)
	if err != nil {
		return nil, false, err
	}
	told, err := st.Poison.FailuresOf(ctx, db, keys)
	if err != nil {
		return nil, false, err
	}
	failures, last := make(map[store.GroupKey]store.FailureGroup), make(map[store.GroupKey]time.Time)
	for _, f := range told {
		of := store.GroupKey{ConsumerType: f.ConsumerType, Fingerprint: f.Fingerprint}
		failures[of], last[of] = f, f.LastAt.Time
	}
	untold := slices.DeleteFunc(slices.Clone(keys), func(of store.GroupKey) bool { return !last[of].IsZero() })
	sizes, err := st.Poison.GroupsLast(ctx, db, untold)
	if err != nil {
		return nil, false, err
	}
	for _, size := range sizes {
		last[size.GroupKey] = size.LastAt.Time
	}
	slices.SortStableFunc(keys, func(a, b store.GroupKey) int { return cmp.Compare(last[b].UnixMicro(), last[a].UnixMicro()) })
	shown := keys[:min(len(keys), groupsShown)]
	if sizes, err = st.Poison.GroupSizes(ctx, db, shown, store.MostCounted); err != nil {
		return nil, false, err
	}
	for _, size := range sizes {
		if size.Messages > 0 { // they may have been requeued meanwhile
			groups = append(groups, newGroup(size, failures[size.GroupKey]))
		}
	}
	return groups, !whole || len(shown) < len(keys), nil
}

// newFailure is a function of package admin; immutable.
var newFailure = hooks.Function[func(f store.FailureGroup) admin.FailureGroup]("admin.Failure")

func newGroup(size store.PoisonGroup, f store.FailureGroup) Group {
	g := Group{
		Consumer: size.ConsumerType, Fingerprint: cmp.Or(size.Fingerprint, Unclassified), Messages: size.Messages,
		FirstAt: size.FirstAt.Time, LastAt: size.LastAt.Time,
	}
	if f.Fingerprint != "" {
		g.Failure = new(newFailure(f))
	}
	return g
}

// knownWithin is the age limit of process reports.
const knownWithin = 7 * 24 * time.Hour

// Preview describes what a change of many messages would change.
type Preview struct {
	// UpTo is the highest id that matches. It is 0 if no message matches.
	UpTo int64 `json:"up_to"`
	// At is the time of the preview on the database's clock, and zero if no message matches. A
	// message that fails later may have a lower id than UpTo: set [Filter.PoisonedBefore] to At to
	// exclude it. A message that was being poisoned at that instant may still be included.
	At time.Time `json:"at,omitzero"`
	// More is true if the limit was reached. The other fields then cover the first messages that
	// match, in the order of their ids.
	More bool `json:"more,omitempty"`
	// Oldest and Newest are when the first and the last message was poisoned.
	Messages int       `json:"messages"`
	Oldest   time.Time `json:"oldest,omitzero"`
	Newest   time.Time `json:"newest,omitzero"`
	// Conflicts counts messages whose insert id is pending: a requeue would leave them poisoned.
	// Poisoned messages that share an insert id are not counted, although only one of them can be
	// requeued.
	Conflicts int `json:"conflicts"`
	// Unhandled counts messages whose consumer and payload type no live process handles. It is 0 if
	// no processor has reported within 7 days: see admin.Client.Processes.
	Unhandled int `json:"unhandled"`
	// Kinds lists the same counts by consumer and payload type.
	Kinds []PreviewKind `json:"kinds,omitempty"`
}

// PreviewKind is the part of a [Preview] for one stored consumer and payload type.
type PreviewKind struct {
	Consumer    string `json:"consumer"`
	PayloadType string `json:"payload_type"`
	// The counts are those of [Preview].
	Messages  int       `json:"messages"`
	Oldest    time.Time `json:"oldest,omitzero"`
	Newest    time.Time `json:"newest,omitzero"`
	Conflicts int       `json:"conflicts"`
	Unhandled int       `json:"unhandled"`
}

// add counts the messages of a kind.
func (p *Preview) add(k PreviewKind) {
	if p.Oldest.IsZero() || k.Oldest.Before(p.Oldest) {
		p.Oldest = k.Oldest
	}
	if k.Newest.After(p.Newest) {
		p.Newest = k.Newest
	}
	p.Messages, p.Conflicts, p.Unhandled = p.Messages+k.Messages, p.Conflicts+k.Conflicts, p.Unhandled+k.Unhandled
	p.Kinds = append(p.Kinds, k)
}

// Preview counts up to limit messages that match, before they are requeued or discarded. It reads
// no payloads and changes nothing. A limit below 1 is bus.ErrInvalidOption.
func (s *Store) Preview(ctx context.Context, db bun.IDB, filter Filter, limit int) (Preview, error) {
	if limit < 1 {
		return Preview{}, fmt.Errorf("poison: preview: limit %d: %w: 1 or more is allowed", limit, bus.ErrInvalidOption)
	}
	p, _, err := s.preview(ctx, db, filter, limit)
	if err != nil {
		return Preview{}, dberr.Wrap(err, "poison: preview")
	}
	return p, nil
}

// preview also returns the ids of the messages that it counts.
func (s *Store) preview(ctx context.Context, db bun.IDB, filter Filter, limit int) (p Preview, ids []int64, err error) {
	st, db, err := s.stores.Of(db, errUnmade)
	if err = errors.Join(err, filter.check()); err != nil {
		return Preview{}, nil, err
	}
	f := filter.rows()
	if p.UpTo, err = st.Poison.Last(ctx, db, f); err != nil || p.UpTo == 0 {
		return Preview{}, nil, err
	}
	f.UpToID = p.UpTo
	known, err := names.Read(ctx, db, st, s.registry)
	if err != nil {
		return Preview{}, nil, err
	}
	seen, err := st.Poison.Preview(ctx, db, f, known.Several(), limit)
	if err != nil {
		return Preview{}, nil, err
	}
	fleet, err := s.admin.Processes(ctx, db, knownWithin)
	if err != nil {
		return Preview{}, nil, err
	}
	fleet = slices.DeleteFunc(fleet, func(p admin.Process) bool { return p.Kind != "processor" })
	alive := slices.DeleteFunc(slices.Clone(fleet), func(p admin.Process) bool { return p.Status != admin.ProcessAlive })
	for _, row := range seen.Kinds {
		k := PreviewKind{
			Consumer: row.ConsumerType, PayloadType: row.PayloadType,
			Messages: row.Messages, Oldest: row.Oldest, Newest: row.Newest, Conflicts: row.Conflicts,
		}
		takes := func(c admin.ProcessConsumer) bool { return heartbeat.Consumer(c).Takes(k.Consumer, k.PayloadType) }
		if len(fleet) > 0 && !slices.ContainsFunc(alive, func(p admin.Process) bool { return slices.ContainsFunc(p.Consumers, takes) }) {
			k.Unhandled = k.Messages
		}
		p.add(k)
	}
	p.At = seen.Now
	p.More = len(seen.IDs) >= limit && seen.IDs[len(seen.IDs)-1] < p.UpTo
	return p, seen.IDs, nil
}
