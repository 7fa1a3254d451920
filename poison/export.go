package poison

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// exportBytes is the maximum read at a time, unless one message is larger.
const exportBytes = 8 << 20

// Export calls fn with each poisoned message that matches, payload included, in the order of their
// ids, and returns their number. Messages that are poisoned meanwhile may be left out. It keeps at
// most 500 messages in memory, of 8 MiB together, or one larger message. While fn runs it holds no
// connection, unless db is a transaction. It stops at fn's first error, and returns it wrapped.
func (s *Store) Export(ctx context.Context, db bun.IDB, filter Filter, fn func(Message) error) (exported int, err error) {
	st, db, err := s.stores.Of(db, errUnmade)
	if err = errors.Join(err, filter.check()); err != nil {
		return 0, dberr.Wrap(err, "poison: export")
	}
	f := filter.rows()
	if f.UpToID, err = st.Poison.Last(ctx, db, f); err != nil {
		return 0, dberr.Wrap(err, "poison: export")
	}
	for f.UpToID > 0 {
		page, last, err := exportPage(ctx, st, db, f)
		if err != nil {
			return exported, dberr.Wrap(err, "poison: export")
		}
		for _, row := range page {
			if err := fn(shown(row)); err != nil {
				return exported, dberr.Wrap(err, "poison: export %d", row.ID)
			}
			exported++
		}
		if f.AfterID = last; last == 0 {
			break
		}
	}
	return exported, nil
}

// exportPage reads the next messages and returns the last id among them.
func exportPage(ctx context.Context, st *store.Store, db bun.IDB, f store.PoisonFilter) (page []store.Poisoned, last int64, err error) {
	sizes, err := st.Poison.Sizes(ctx, db, f, batch)
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
