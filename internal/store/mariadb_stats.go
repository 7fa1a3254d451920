package store

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

func (m *mariadb) held() string { return mariaHeld }

func (m *mariadb) heldClaims() string { return `SELECT c.id AS claim_id, h.id AS mid FROM ` + mariaIDs }

// mariaLeased counts what is held.
const mariaLeased = `
SELECT m.consumer_type AS consumer, count(*) AS leased, SUM(m.crashes = 0 AND m.available_after <= {now}) AS due, SUM(m.crashes > 0) AS crashed
FROM (` + mariaHeld + `) h STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = h.id GROUP BY m.consumer_type`

// mariaStats is statsStatement for one consumer: here a subquery in FROM cannot
// refer to a list of consumers outside of it. It counts what is held, too.
const mariaStats = `
SELECT ? AS consumer,
  (SELECT count(*) FROM (SELECT 1 FROM {messages} m WHERE m.consumer_type = ? AND m.crashes = 0 AND m.available_after <= {now} LIMIT ?) x)
  + (SELECT count(*) FROM (SELECT 1 FROM {messages} m WHERE m.consumer_type = ? AND m.crashes > 0 LIMIT ?) x) AS ready,
  (SELECT count(*) FROM (SELECT 1 FROM {messages} m WHERE m.consumer_type = ? AND m.crashes = 0 AND m.available_after > {now} LIMIT ?) x) AS ` + "`delayed`" + `,
  (SELECT count(*) FROM (SELECT 1 FROM {poisoned} p WHERE p.consumer_type = ? LIMIT ?) x) AS poisoned,
  (SELECT MIN(p.poisoned_at) FROM {poisoned} p WHERE p.consumer_type = ?) AS oldest_poisoned,
  {now} AS now`

// mariaOldest finds the oldest of those that are not held, among one more than are.
const (
	mariaOldest     = `SELECT c.consumer, MIN(c.available_after) AS oldest_ready FROM (%s) c WHERE c.id NOT IN (` + mariaHeld + `) GROUP BY c.consumer`
	mariaOldestPart = `
(SELECT ? AS consumer, m.id, m.available_after FROM {messages} m WHERE m.consumer_type = ? AND m.crashes = 0 AND m.available_after <= {now}
  ORDER BY m.available_after LIMIT ?)
UNION ALL (SELECT ? AS consumer, m.id, m.available_after FROM {messages} m WHERE m.consumer_type = ? AND m.crashes > 0
  ORDER BY m.available_after LIMIT ?)`
)

// stats reads all that is claimed twice, however many consumers there are.
func (m *mariadb) stats(ctx context.Context, db bun.IDB, consumers []string) (rows []queueStats, err error) {
	var leased []struct {
		Consumer             string
		Leased, Due, Crashed int64
	}
	if err := m.raw(ctx, db, mariaLeased).Scan(ctx, &leased); err != nil {
		return nil, err
	}
	type held struct{ all, due, crashed int64 }
	heldOf := make(map[string]held, len(leased))
	for _, l := range leased {
		heldOf[l.Consumer] = held{l.Leased, l.Due, l.Crashed}
	}
	var counted, oldest []any
	for _, name := range consumers {
		h := heldOf[name]
		counted = append(counted, name, name, bus.MaxQueueCount+h.due, name, bus.MaxQueueCount+h.crashed, name, bus.MaxQueueCount, name, bus.MaxQueueCount, name)
		oldest = append(oldest, name, name, h.due+1, name, name, h.crashed+1)
	}
	if err := m.raw(ctx, db, unionAll(mariaStats, len(consumers))+" ORDER BY consumer", counted...).Scan(ctx, &rows); err != nil {
		return nil, err
	}
	var waiting []struct {
		Consumer    string
		OldestReady Moment
	}
	if err := m.raw(ctx, db, fmt.Sprintf(mariaOldest, unionAll(mariaOldestPart, len(consumers))), oldest...).Scan(ctx, &waiting); err != nil {
		return nil, err
	}
	oldestOf := make(map[string]Moment, len(waiting))
	for _, w := range waiting {
		oldestOf[w.Consumer] = w.OldestReady
	}
	for i := range rows {
		h := heldOf[rows[i].Consumer]
		rows[i].Leased, rows[i].OldestReady = h.all, oldestOf[rows[i].Consumer]
		rows[i].Ready = max(rows[i].Ready-h.due-h.crashed, 0)
	}
	return rows, nil
}
