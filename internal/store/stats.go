package store

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Stats tells what waits for each of the stored consumer types.
func (s *Store) Stats(ctx context.Context, db bun.IDB, consumers []string) (rows []dialect.QueueStats, err error) {
	if len(consumers) == 0 {
		return nil, nil
	}
	err = retry(ctx, db, func(db bun.IDB) (err error) {
		rows, err = s.dialect.Stats(ctx, db, consumers)
		return err
	})
	for i := range rows {
		r := &rows[i]
		r.Ready, r.Delayed, r.Leased = min(r.Ready, dialect.MostCounted), min(r.Delayed, dialect.MostCounted), min(r.Leased, dialect.MostCounted)
	}
	return rows, err
}
