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
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
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

func newGroup(size store.PoisonGroup, f store.FailureGroup) Group {
	g := Group{Consumer: size.ConsumerType, Fingerprint: cmp.Or(size.Fingerprint, Unclassified), Messages: size.Messages, FirstAt: size.FirstAt.Time, LastAt: size.LastAt.Time}
	if f.Fingerprint != "" {
		g.Failure = &admin.FailureGroup{Consumer: f.ConsumerType, Fingerprint: f.Fingerprint, ErrorType: f.ErrorType, Sample: f.Sample, Runs: f.Runs,
			FirstAt: f.FirstAt.Time, LastAt: f.LastAt.Time, FirstVersion: f.FirstVersion, LastID: f.RowID}
	}
	return g
}
