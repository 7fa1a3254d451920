package store

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Stats tells what waits for each of the stored consumer types.
func (s *Store) Stats(ctx context.Context, db bun.IDB, consumers []string) ([]bus.QueueStats, error) {
	if len(consumers) == 0 {
		return nil, nil
	}
	var rows []dialect.QueueStats
	err := retry(ctx, db, func(db bun.IDB) (err error) {
		rows, err = s.dialect.Stats(ctx, db, consumers)
		return err
	})
	if err != nil {
		return nil, err
	}
	stats := make([]bus.QueueStats, len(rows))
	for i, r := range rows {
		stats[i] = bus.QueueStats{Consumer: r.Consumer, Ready: min(r.Ready, bus.MaxQueueCount), Delayed: min(r.Delayed, bus.MaxQueueCount),
			Leased: min(r.Leased, bus.MaxQueueCount), Poisoned: r.Poisoned,
			OldestReady: age(r.Now, r.OldestReady), OldestPoisoned: age(r.Now, r.OldestPoisoned)}
	}
	return stats, nil
}

func age(now, since dialect.Moment) time.Duration {
	if since.IsZero() {
		return 0
	}
	return max(now.Sub(since.Time), 0)
}
