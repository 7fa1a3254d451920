package poisoned

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// Store is a poison.Store. Make one with [NewStore].
type Store struct {
	*poison.Store
	registry *bus.Registry
	stores   store.Stores
}

// NewStore makes a store for the registry's tables. The only error is for a nil registry.
func NewStore(registry *bus.Registry) (*Store, error) {
	s, err := poison.NewStore(registry)
	if err != nil {
		return nil, err
	}
	return &Store{s, registry, store.All(registry)}, nil
}

var errNotMade = errors.New("the store was not made by NewStore")

// Functions of package poison; immutable.
var (
	message = hooks.Function[func(row store.Poisoned) poison.Message]("poison.Message")
	rowsOf  = hooks.Function[func(f poison.Filter) (store.PoisonFilter, error)]("poison.Rows")
	edit    = hooks.Function[func(ctx context.Context, s *poison.Store, h bus.Handle, id int64, text []byte) error]("poison.Edit")
	preview = hooks.Function[func(
		s *poison.Store, ctx context.Context, db bun.IDB, f poison.Filter, limit int,
	) (p poison.Preview, ids []int64, err error)]("poison.Preview")
	requeue = hooks.Function[func(
		s *poison.Store, ctx context.Context, db bun.IDB, f store.PoisonFilter, limit int, consumers []string,
	) (done poison.Result, last int64, rows []store.Poisoned, err error)]("poison.Requeue")
)

// CountUpTo is poison.Store.Count with a limit of 1 or more. A result equal to the limit means "or
// more". It scans messages that do not match, too, so rare matches cost a full scan.
func (s *Store) CountUpTo(ctx context.Context, db bun.IDB, f poison.Filter, limit int) (int, error) {
	if limit < 1 {
		return 0, fmt.Errorf("poison: count: up to %d: %w: 1 or more is allowed", limit, bus.ErrInvalidOption)
	}
	st, db, err := s.stores.Of(db, errNotMade)
	where, mistake := rowsOf(f)
	if err = errors.Join(err, mistake); err != nil {
		return 0, dberr.Wrap(err, "poison: count")
	}
	n, err := st.Poison.Count(ctx, db, where, limit)
	return n, dberr.Wrap(err, "poison: count")
}

// PreviewIDs is poison.Store.Preview, and returns the ids of the messages that it counts, too.
func (s *Store) PreviewIDs(ctx context.Context, db bun.IDB, f poison.Filter, limit int) (p poison.Preview, ids []int64, err error) {
	p, ids, err = preview(s.Store, ctx, db, f, limit)
	return p, ids, dberr.Wrap(err, "poison: preview")
}

// Kinds returns the stored consumers and payload types of all messages. Of their fields only these are set.
func (s *Store) Kinds(ctx context.Context, db bun.IDB) (kinds []store.PoisonKind, err error) {
	st, db, err := s.stores.Of(db, errNotMade)
	if err == nil {
		kinds, err = st.Poison.Kinds(ctx, db)
	}
	return kinds, dberr.Wrap(err, "poison: kinds")
}

// IDs returns the ids of matching messages behind after, up to upTo, in ascending order.
func (s *Store) IDs(ctx context.Context, db bun.IDB, f poison.Filter, after, upTo int64, limit int) ([]int64, error) {
	st, db, err := s.stores.Of(db, errNotMade)
	where, mistake := rowsOf(f)
	if err = errors.Join(err, mistake); err != nil {
		return nil, dberr.Wrap(err, "poison: ids")
	}
	where.AfterID, where.UpToID = after, upTo
	ids, err := st.Poison.IDs(ctx, db, where, limit)
	return ids, dberr.Wrap(err, "poison: ids")
}

// GetHead is poison.Store.Get with at most maxBytes bytes of the payload, cut between two characters.
// PayloadBytes is the full size. A negative maxBytes is bus.ErrInvalidOption.
func (s *Store) GetHead(ctx context.Context, db bun.IDB, id int64, maxBytes int) (poison.Message, error) {
	if maxBytes < 0 {
		return poison.Message{}, fmt.Errorf("poison: get %d: the first %d bytes: %w: 0 or more is allowed", id, maxBytes, bus.ErrInvalidOption)
	}
	st, db, err := s.stores.Of(db, errNotMade)
	if err != nil {
		return poison.Message{}, dberr.Wrap(err, "poison: get %d", id)
	}
	row, found, err := st.Poison.Head(ctx, db, id, min(maxBytes, math.MaxInt32))
	if err == nil && !found {
		err = poison.ErrNotFound
	}
	if err != nil {
		return poison.Message{}, dberr.Wrap(err, "poison: get %d", id)
	}
	row.Payload = []byte(errorlog.Clean(string(row.Payload), maxBytes))
	return message(row), nil
}

// exportBytes is the maximum read at a time, unless one message is larger.
const exportBytes = 8 << 20

// exportBatch is the maximum number of messages read at a time.
const exportBatch = 500

// Export calls fn with each poisoned message that matches, payload included, in the order of their
// ids, and returns their number. Messages that are poisoned meanwhile may be left out. It keeps at
// most 500 messages in memory, of 8 MiB together, or one larger message. While fn runs it holds no
// connection, unless db is a transaction. It stops at fn's first error, and returns it wrapped.
func (s *Store) Export(ctx context.Context, db bun.IDB, f poison.Filter, fn func(poison.Message) error) (exported int, err error) {
	st, db, err := s.stores.Of(db, errNotMade)
	where, mistake := rowsOf(f)
	if err = errors.Join(err, mistake); err != nil {
		return 0, dberr.Wrap(err, "poison: export")
	}
	if where.UpToID, err = st.Poison.Last(ctx, db, where); err != nil {
		return 0, dberr.Wrap(err, "poison: export")
	}
	for where.UpToID > 0 {
		page, last, err := exportPage(ctx, st, db, where)
		if err != nil {
			return exported, dberr.Wrap(err, "poison: export")
		}
		for _, row := range page {
			if err := fn(message(row)); err != nil {
				return exported, dberr.Wrap(err, "poison: export %d", row.ID)
			}
			exported++
		}
		if where.AfterID = last; last == 0 {
			break
		}
	}
	return exported, nil
}

// exportPage reads the next messages and returns the last id among them.
func exportPage(ctx context.Context, st *store.Store, db bun.IDB, f store.PoisonFilter) (page []store.Poisoned, last int64, err error) {
	sizes, err := st.Poison.Sizes(ctx, db, f, exportBatch)
	if err != nil || len(sizes) == 0 {
		return nil, 0, err
	}
	var ids []int64
	bytes := 0
	for _, row := range sizes {
		if bytes += row.Bytes; bytes > exportBytes && len(ids) > 0 {
			break
		}
		ids = append(ids, row.ID)
	}
	page, err = st.Poison.List(ctx, db, store.PoisonFilter{IDs: ids}, len(ids))
	slices.SortFunc(page, func(a, b store.Poisoned) int { return cmp.Compare(a.ID, b.ID) })
	return page, ids[len(ids)-1], err
}
