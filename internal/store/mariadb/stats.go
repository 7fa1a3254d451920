package mariadb

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// leasedSQL counts held messages.
const leasedSQL = `
SELECT m.consumer_type AS consumer, count(*) AS leased, SUM(m.keyed = FALSE AND m.crashes = 0 AND m.available_after <= {now}) AS due, SUM(m.keyed = FALSE AND m.crashes > 0) AS crashed
FROM (` + heldSQL + `) h STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = h.id GROUP BY m.consumer_type`

// cleanSQL and othersSQL are statsStatement for one kind of message, and for messages without
// kinds: here a subquery in FROM cannot refer to a list outside of it. They count held messages,
// too.
const (
	cleanSQL = `
SELECT ? AS consumer,
  (SELECT count(*) FROM (SELECT 1 FROM {messages} m WHERE m.consumer_type = ? AND m.payload_type = ? AND m.keyed = FALSE AND m.crashes = 0 AND m.available_after <= {now} LIMIT ?) x) AS ready,
  (SELECT count(*) FROM (SELECT 1 FROM {messages} m WHERE m.consumer_type = ? AND m.payload_type = ? AND m.keyed = FALSE AND m.crashes = 0 AND m.available_after > {now} LIMIT ?) x) AS ` + "`delayed`" + `,
  0 AS poisoned, NULL AS oldest_poisoned, {now} AS now`
	othersSQL = `
SELECT ? AS consumer,
  (SELECT count(*) FROM (SELECT 1 FROM {messages} m FORCE INDEX ({prefix}consumer_messages_due) WHERE m.consumer_type = ? AND m.keyed = FALSE AND m.crashes > 0 LIMIT ?) x) AS ready,
  0 AS ` + "`delayed`" + `,
  (SELECT count(*) FROM (SELECT 1 FROM {poisoned} p WHERE p.consumer_type = ? LIMIT ?) x) AS poisoned,
  (SELECT MIN(p.poisoned_at) FROM {poisoned} p WHERE p.consumer_type = ?) AS oldest_poisoned,
  {now} AS now`
)

// keyedSQL looks at messages with keys, which have no index by due time, up to a bound.
const keyedSQL = planSQL + `
SELECT ? AS consumer, COALESCE(LEAST(SUM(x.due AND x.free), ?), 0) AS ready, COALESCE(LEAST(SUM(NOT x.due), ?), 0) AS ` + "`delayed`" + `,
  MIN(CASE WHEN x.due AND x.free THEN x.available_after END) AS oldest_ready, {now} AS now
FROM (SELECT m.available_after, m.available_after <= {now} AS due, m.id NOT IN (` + heldSQL + `) AS free
  FROM {lanes} l FORCE INDEX ({prefix}message_lanes_ranked) STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = l.id
  WHERE l.consumer_type = ? ORDER BY l.rank LIMIT 20000) x`

// oldestSQL finds the oldest message that is not held, among one more than are held.
const (
	oldestSQL      = `SELECT c.consumer, MIN(c.available_after) AS oldest_ready FROM (%s) c WHERE c.id NOT IN (` + heldSQL + `) GROUP BY c.consumer`
	oldestCleanSQL = `
(SELECT ? AS consumer, m.id, m.available_after FROM {messages} m WHERE m.consumer_type = ? AND m.payload_type = ? AND m.keyed = FALSE AND m.crashes = 0
  AND m.available_after <= {now} ORDER BY m.available_after LIMIT ?)`
	oldestCrashedSQL = `
(SELECT ? AS consumer, m.id, m.available_after FROM {messages} m FORCE INDEX ({prefix}consumer_messages_due) WHERE m.consumer_type = ? AND m.keyed = FALSE AND m.crashes > 0
  ORDER BY m.available_after LIMIT ?)`
)

// together is how many kinds or consumers one statement counts.
const together = 100

type leasedCount struct {
	Consumer             string
	Leased, Due, Crashed int64
}

// Stats reads all claims a few times, however many consumers there are.
func (m *database) Stats(ctx context.Context, db bun.IDB, consumers []string) ([]dialect.QueueStats, error) {
	var leased []leasedCount
	if err := m.Query(ctx, db, leasedSQL).Scan(ctx, &leased); err != nil {
		return nil, err
	}
	t := tally{
		held: make(map[string]leasedCount, len(leased)), rows: make([]dialect.QueueStats, len(consumers)),
		of: make(map[string]*dialect.QueueStats, len(consumers)),
	}
	for _, l := range leased {
		t.held[l.Consumer] = l
	}
	for i, name := range consumers {
		t.rows[i].Consumer, t.of[name] = name, &t.rows[i]
	}
	if err := t.count(ctx, m, db); err != nil {
		return nil, err
	}
	for i := range t.rows {
		row, held := &t.rows[i], t.held[t.rows[i].Consumer]
		row.Leased, row.Ready = held.Leased, max(row.Ready-held.Due-held.Crashed, 0)
	}
	return t.rows, nil
}

// tally adds up the results for the requested consumers.
type tally struct {
	held map[string]leasedCount
	rows []dialect.QueueStats
	of   map[string]*dialect.QueueStats
}

// asked walks names and returns the requested ones.
func (t tally) asked(ctx context.Context, m *database, db bun.IDB, next string) (names []string, err error) {
	names, err = m.types(ctx, db, next)
	return slices.DeleteFunc(names, func(name string) bool { return t.of[name] == nil }), err
}

func (t tally) count(ctx context.Context, m *database, db bun.IDB) error {
	clean, err := t.asked(ctx, m, db, nextCleanSQL)
	if err != nil {
		return err
	}
	kinds, err := m.kinds(ctx, db, clean)
	if err != nil {
		return err
	}
	crashed, err := t.asked(ctx, m, db, nextCrashedSQL)
	if err != nil {
		return err
	}
	poisoned, err := t.asked(ctx, m, db, nextPoisonedSQL)
	if err != nil {
		return err
	}
	if err := t.countKeyed(ctx, m, db); err != nil {
		return err
	}
	for part := range slices.Chunk(kinds, together) {
		var counted, oldest []any
		for _, k := range part {
			c, p, due := k.ConsumerType, k.PayloadType, t.held[k.ConsumerType].Due
			counted = append(counted, c, c, p, dialect.MostCounted+due, c, p, dialect.MostCounted)
			oldest = append(oldest, c, c, p, due+1)
		}
		if err := t.add(ctx, m, db, len(part), cleanSQL, counted, oldestCleanSQL, oldest); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(slices.Compact(slices.Sorted(slices.Values(append(crashed, poisoned...)))), together) {
		var counted, oldest []any
		for _, c := range part {
			held := t.held[c].Crashed
			counted = append(counted, c, c, dialect.MostCounted+held, c, dialect.MostCounted, c)
			oldest = append(oldest, c, c, held+1)
		}
		if err := t.add(ctx, m, db, len(part), othersSQL, counted, oldestCrashedSQL, oldest); err != nil {
			return err
		}
	}
	return nil
}

// countKeyed counts messages with keys.
func (t tally) countKeyed(ctx context.Context, m *database, db bun.IDB) error {
	names, err := t.asked(ctx, m, db, nextKeyedSQL)
	if err != nil {
		return err
	}
	for _, name := range names {
		var counted []dialect.QueueStats
		if err := m.Query(ctx, db, keyedSQL, name, dialect.MostCounted, dialect.MostCounted, name).Scan(ctx, &counted); err != nil {
			return err
		}
		t.take(counted, counted)
	}
	return nil
}

// add runs the statements for n kinds or consumers.
func (t tally) add(
	ctx context.Context, m *database, db bun.IDB, n int, counting string, counted []any, finding string, oldest []any,
) error {
	var counts, waiting []dialect.QueueStats
	if err := m.Query(ctx, db, unionAll(counting, n), counted...).Scan(ctx, &counts); err != nil {
		return err
	}
	if err := m.Query(ctx, db, fmt.Sprintf(oldestSQL, unionAll(finding, n)), oldest...).Scan(ctx, &waiting); err != nil {
		return err
	}
	t.take(counts, waiting)
	return nil
}

// take adds up counts, and keeps the oldest waiting messages.
func (t tally) take(counts, waiting []dialect.QueueStats) {
	for _, c := range counts {
		row := t.of[c.Consumer]
		row.Ready, row.Delayed, row.Poisoned, row.Now = row.Ready+c.Ready, row.Delayed+c.Delayed, row.Poisoned+c.Poisoned, c.Now
		if !c.OldestPoisoned.IsZero() {
			row.OldestPoisoned = c.OldestPoisoned
		}
	}
	for _, w := range waiting {
		row := t.of[w.Consumer]
		if !w.OldestReady.IsZero() && (row.OldestReady.IsZero() || w.OldestReady.Before(row.OldestReady.Time)) {
			row.OldestReady = w.OldestReady
		}
	}
}

// Queries for the next name behind one. With constants they are looked up at the edge of an index,
// where a recursive query would read all of it for each name.
const (
	nextCleanSQL    = `SELECT MIN(consumer_type) FROM {messages} WHERE keyed = FALSE AND crashes = 0 AND consumer_type > ?`
	nextCrashedSQL  = `SELECT MIN(consumer_type) FROM {messages} WHERE keyed = FALSE AND crashes > 0 AND consumer_type > ?`
	nextKeyedSQL    = `SELECT MIN(consumer_type) FROM {lanes} WHERE consumer_type > ?`
	nextPoisonedSQL = `SELECT MIN(consumer_type) FROM {poisoned} WHERE consumer_type > ?`
	nextPayloadSQL  = `SELECT MIN(payload_type) FROM {messages} WHERE keyed = FALSE AND crashes = 0 AND consumer_type = ? AND payload_type > ?`
	nextPrintSQL    = `SELECT MIN(fingerprint) FROM {poisoned} WHERE consumer_type = ? AND fingerprint > ?`
)

// types walks distinct names from one to the next; of are the first arguments of next.
func (m *database) types(ctx context.Context, db bun.IDB, next string, of ...any) (names []string, err error) {
	for last := ""; ; {
		var name sql.NullString
		if err := m.Query(ctx, db, next, append(slices.Clone(of), last)...).Scan(ctx, &name); err != nil || !name.Valid {
			return names, err
		}
		last = name.String
		names = append(names, last)
	}
}

func (m *database) StoredConsumers(ctx context.Context, db bun.IDB) (names []string, err error) {
	for _, next := range []string{nextCleanSQL, nextCrashedSQL, nextKeyedSQL, nextPoisonedSQL} {
		found, err := m.types(ctx, db, next)
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	return slices.Compact(slices.Sorted(slices.Values(names))), nil
}

// kinds returns the payload types of pending messages of the given consumer types.
func (m *database) kinds(ctx context.Context, db bun.IDB, consumers []string) (found []dialect.Unhandled, err error) {
	for _, consumer := range consumers {
		payloads, err := m.types(ctx, db, nextPayloadSQL, consumer)
		if err != nil {
			return nil, err
		}
		for _, payload := range payloads {
			found = append(found, dialect.Unhandled{ConsumerType: consumer, PayloadType: payload})
		}
	}
	return found, nil
}

func (m *database) Unhandled(ctx context.Context, db bun.IDB, wants []dialect.Want) (found []dialect.Unhandled, err error) {
	consumers, err := m.types(ctx, db, nextCleanSQL)
	if err != nil {
		return nil, err
	}
	if found, err = m.kinds(ctx, db, consumers); err != nil {
		return nil, err
	}
	wanted := make(map[dialect.Unhandled]bool)
	for _, w := range wants {
		wanted[dialect.Unhandled{ConsumerType: w.Consumer, PayloadType: w.Payload}] = true
	}
	found = slices.DeleteFunc(found, func(s dialect.Unhandled) bool { return wanted[s] })
	return found[:min(len(found), 20)], nil
}

// unionAll repeats a statement.
func unionAll(statement string, n int) string {
	return strings.TrimSuffix(strings.Repeat(statement+" UNION ALL ", n), " UNION ALL ")
}
