package store

import (
	"context"
	"slices"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Stats returns what waits for each of the stored consumer types.
func (s *ReportStore) Stats(ctx context.Context, db bun.IDB, consumers []string) (rows []dialect.QueueStats, err error) {
	for part := range slices.Chunk(consumers, 100) { // one statement for all would have too many parts
		var of []dialect.QueueStats
		err := retry(ctx, db, func(db bun.IDB) (err error) {
			of, err = s.dialect.Stats(ctx, db, part)
			return err
		})
		if err != nil {
			return nil, err
		}
		rows = append(rows, of...)
	}
	for i := range rows {
		r := &rows[i]
		r.Ready, r.Delayed, r.Leased = min(r.Ready, dialect.MostCounted), min(r.Delayed, dialect.MostCounted), min(r.Leased, dialect.MostCounted)
	}
	return rows, nil
}
