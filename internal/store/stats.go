package store

import (
	"context"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// statsStatement counts per consumer with bounds, so that a large backlog costs
// no more than a small one. What is leased is looked up once for all of them.
// {names} is the list of consumers as a table.
const statsStatement = `
WITH held AS ({held}),
leased AS MATERIALIZED (SELECT m.consumer_type AS consumer, count(*) AS n FROM held h JOIN {messages} m ON m.id = h.id GROUP BY m.consumer_type),
names AS ({names})
SELECT n.consumer,
  (SELECT count(*) FROM (SELECT 1 FROM {messages} m WHERE m.consumer_type = n.consumer AND m.crashes = 0 AND m.available_after <= {now}
    AND m.id NOT IN (SELECT id FROM held) LIMIT ?) x)
  + (SELECT count(*) FROM (SELECT 1 FROM {messages} m WHERE m.consumer_type = n.consumer AND m.crashes > 0
    AND m.id NOT IN (SELECT id FROM held) LIMIT ?) x) AS ready,
  (SELECT count(*) FROM (SELECT 1 FROM {messages} m WHERE m.consumer_type = n.consumer AND m.crashes = 0 AND m.available_after > {now} LIMIT ?) x) AS delayed,
  COALESCE((SELECT l.n FROM leased l WHERE l.consumer = n.consumer), 0) AS leased,
  (SELECT count(*) FROM (SELECT 1 FROM {poisoned} p WHERE p.consumer_type = n.consumer LIMIT ?) x) AS poisoned,
  (SELECT MIN(x.available_after) FROM (
    SELECT * FROM (SELECT m.available_after FROM {messages} m WHERE m.consumer_type = n.consumer AND m.crashes = 0 AND m.available_after <= {now}
      AND m.id NOT IN (SELECT id FROM held) ORDER BY m.available_after LIMIT 1) clean
    UNION ALL SELECT * FROM (SELECT m.available_after FROM {messages} m WHERE m.consumer_type = n.consumer AND m.crashes > 0
      AND m.id NOT IN (SELECT id FROM held) ORDER BY m.available_after LIMIT 1) crashed) x) AS oldest_ready,
  (SELECT MIN(p.poisoned_at) FROM {poisoned} p WHERE p.consumer_type = n.consumer) AS oldest_poisoned,
  {now} AS now
FROM names n ORDER BY n.consumer`

func (p *postgres) held() string {
	return `SELECT unnest(message_ids) AS id FROM {claims} LIMIT 100000`
} // see pgHeld

func (s *sqlite) held() string {
	return `SELECT j.value AS id FROM {claims} c, json_each(c.message_ids) j`
}

// Stats tells what waits for each of the stored consumer types.
func (s *Store) Stats(ctx context.Context, db bun.IDB, consumers []string) ([]bus.QueueStats, error) {
	if len(consumers) == 0 {
		return nil, nil
	}
	names := strings.TrimSuffix(strings.Repeat("SELECT ? AS consumer UNION ALL ", len(consumers)), " UNION ALL ")
	statement := strings.NewReplacer("{held}", s.held(), "{names}", names).Replace(statsStatement)
	args := make([]any, 0, len(consumers)+4)
	for _, name := range consumers {
		args = append(args, name)
	}
	for range 4 {
		args = append(args, bus.MaxQueueCount)
	}
	if m, ok := s.maria(); ok {
		statement, args = m.statsQuery(ctx, consumers)
	}
	var rows []struct {
		Consumer                         string
		Ready, Delayed, Leased, Poisoned int64
		OldestReady, OldestPoisoned, Now Moment
	}
	err := s.insist(ctx, db, func(db bun.IDB) error { return s.raw(ctx, db, statement, args...).Scan(ctx, &rows) })
	if err != nil {
		return nil, err
	}
	stats := make([]bus.QueueStats, len(rows))
	for i, r := range rows {
		stats[i] = bus.QueueStats{Consumer: r.Consumer, Ready: r.Ready, Delayed: r.Delayed, Leased: min(r.Leased, bus.MaxQueueCount), Poisoned: r.Poisoned,
			OldestReady: age(r.Now, r.OldestReady), OldestPoisoned: age(r.Now, r.OldestPoisoned)}
	}
	return stats, nil
}

func age(now, since Moment) time.Duration {
	if since.IsZero() {
		return 0
	}
	return max(now.Sub(since.Time), 0)
}
