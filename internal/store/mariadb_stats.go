package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

func (m *mariadb) held() string { return mariaHeld }

func (m *mariadb) heldClaims() string { return `SELECT c.id AS claim_id, h.id AS mid FROM ` + mariaIDs }

// mariaLeased counts what is held.
const mariaLeased = `
SELECT m.consumer_type AS consumer, count(*) AS leased, SUM(m.crashes = 0 AND m.available_after <= {now}) AS due, SUM(m.crashes > 0) AS crashed
FROM (` + mariaHeld + `) h STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = h.id GROUP BY m.consumer_type`

// mariaClean and mariaOthers are statsStatement for one kind of message, and for what
// has no kinds: here a subquery in FROM cannot refer to a list outside of it. They
// count what is held, too.
const (
	mariaClean = `
SELECT ? AS consumer,
  (SELECT count(*) FROM (SELECT 1 FROM {messages} m WHERE m.consumer_type = ? AND m.payload_type = ? AND m.crashes = 0 AND m.available_after <= {now} LIMIT ?) x) AS ready,
  (SELECT count(*) FROM (SELECT 1 FROM {messages} m WHERE m.consumer_type = ? AND m.payload_type = ? AND m.crashes = 0 AND m.available_after > {now} LIMIT ?) x) AS ` + "`delayed`" + `,
  0 AS poisoned, NULL AS oldest_poisoned, {now} AS now`
	mariaOthers = `
SELECT ? AS consumer,
  (SELECT count(*) FROM (SELECT 1 FROM {messages} m FORCE INDEX ({prefix}consumer_messages_due) WHERE m.consumer_type = ? AND m.crashes > 0 LIMIT ?) x) AS ready,
  0 AS ` + "`delayed`" + `,
  (SELECT count(*) FROM (SELECT 1 FROM {poisoned} p WHERE p.consumer_type = ? LIMIT ?) x) AS poisoned,
  (SELECT MIN(p.poisoned_at) FROM {poisoned} p WHERE p.consumer_type = ?) AS oldest_poisoned,
  {now} AS now`
)

// mariaOldest finds the oldest of those that are not held, among one more than are.
const (
	mariaOldest      = `SELECT c.consumer, MIN(c.available_after) AS oldest_ready FROM (%s) c WHERE c.id NOT IN (` + mariaHeld + `) GROUP BY c.consumer`
	mariaOldestClean = `
(SELECT ? AS consumer, m.id, m.available_after FROM {messages} m WHERE m.consumer_type = ? AND m.payload_type = ? AND m.crashes = 0
  AND m.available_after <= {now} ORDER BY m.available_after LIMIT ?)`
	mariaOldestCrashed = `
(SELECT ? AS consumer, m.id, m.available_after FROM {messages} m FORCE INDEX ({prefix}consumer_messages_due) WHERE m.consumer_type = ? AND m.crashes > 0
  ORDER BY m.available_after LIMIT ?)`
)

// mariaTogether is how many kinds or consumers one statement counts.
const mariaTogether = 100

type leasedCount struct {
	Consumer             string
	Leased, Due, Crashed int64
}

// stats reads all that is claimed a few times, however many consumers there are.
func (m *mariadb) stats(ctx context.Context, db bun.IDB, consumers []string) ([]queueStats, error) {
	var leased []leasedCount
	if err := m.raw(ctx, db, mariaLeased).Scan(ctx, &leased); err != nil {
		return nil, err
	}
	t := mariaTally{held: make(map[string]leasedCount, len(leased)), rows: make([]queueStats, len(consumers)), of: make(map[string]*queueStats, len(consumers))}
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

// mariaTally adds up what is found of the consumers that were asked for.
type mariaTally struct {
	held map[string]leasedCount
	rows []queueStats
	of   map[string]*queueStats
}

// asked walks names and keeps those that were asked for.
func (t mariaTally) asked(ctx context.Context, m *mariadb, db bun.IDB, next string) (names []string, err error) {
	names, err = m.types(ctx, db, next)
	return slices.DeleteFunc(names, func(name string) bool { return t.of[name] == nil }), err
}

func (t mariaTally) count(ctx context.Context, m *mariadb, db bun.IDB) error {
	clean, err := t.asked(ctx, m, db, mariaNextClean)
	if err != nil {
		return err
	}
	kinds, err := m.kinds(ctx, db, clean)
	if err != nil {
		return err
	}
	crashed, err := t.asked(ctx, m, db, mariaNextCrashed)
	if err != nil {
		return err
	}
	poisoned, err := t.asked(ctx, m, db, mariaNextPoisoned)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(kinds, mariaTogether) {
		var counted, oldest []any
		for _, k := range part {
			c, p, due := k.ConsumerType, k.PayloadType, t.held[k.ConsumerType].Due
			counted = append(counted, c, c, p, bus.MaxQueueCount+due, c, p, bus.MaxQueueCount)
			oldest = append(oldest, c, c, p, due+1)
		}
		if err := t.add(ctx, m, db, len(part), mariaClean, counted, mariaOldestClean, oldest); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(slices.Compact(slices.Sorted(slices.Values(append(crashed, poisoned...)))), mariaTogether) {
		var counted, oldest []any
		for _, c := range part {
			held := t.held[c].Crashed
			counted = append(counted, c, c, bus.MaxQueueCount+held, c, bus.MaxQueueCount, c)
			oldest = append(oldest, c, c, held+1)
		}
		if err := t.add(ctx, m, db, len(part), mariaOthers, counted, mariaOldestCrashed, oldest); err != nil {
			return err
		}
	}
	return nil
}

// add runs the statements for n kinds or consumers.
func (t mariaTally) add(ctx context.Context, m *mariadb, db bun.IDB, n int, counting string, counted []any, finding string, oldest []any) error {
	var counts, waiting []queueStats
	if err := m.raw(ctx, db, unionAll(counting, n), counted...).Scan(ctx, &counts); err != nil {
		return err
	}
	if err := m.raw(ctx, db, fmt.Sprintf(mariaOldest, unionAll(finding, n)), oldest...).Scan(ctx, &waiting); err != nil {
		return err
	}
	for _, c := range counts {
		row := t.of[c.Consumer]
		row.Ready, row.Delayed, row.Poisoned, row.Now = row.Ready+c.Ready, row.Delayed+c.Delayed, row.Poisoned+c.Poisoned, c.Now
		if !c.OldestPoisoned.IsZero() {
			row.OldestPoisoned = c.OldestPoisoned
		}
	}
	for _, w := range waiting {
		if row := t.of[w.Consumer]; row.OldestReady.IsZero() || w.OldestReady.Before(row.OldestReady.Time) {
			row.OldestReady = w.OldestReady
		}
	}
	return nil
}

// The next name behind one: with constants these are looked up at the edge of an
// index, where a recursive query would read all of it for each name.
const (
	mariaNextClean    = `SELECT MIN(consumer_type) FROM {messages} WHERE crashes = 0 AND consumer_type > ?`
	mariaNextCrashed  = `SELECT MIN(consumer_type) FROM {messages} WHERE crashes > 0 AND consumer_type > ?`
	mariaNextPoisoned = `SELECT MIN(consumer_type) FROM {poisoned} WHERE consumer_type > ?`
	mariaNextPayload  = `SELECT MIN(payload_type) FROM {messages} WHERE crashes = 0 AND consumer_type = ? AND payload_type > ?`
)

// types walks distinct names from one to the next; of is what next asks for before.
func (m *mariadb) types(ctx context.Context, db bun.IDB, next string, of ...any) (names []string, err error) {
	for last := ""; ; {
		var name sql.NullString
		if err := m.raw(ctx, db, next, append(slices.Clone(of), last)...).Scan(ctx, &name); err != nil || !name.Valid {
			return names, err
		}
		last = name.String
		names = append(names, last)
	}
}

func (m *mariadb) storedConsumers(ctx context.Context, db bun.IDB) (names []string, err error) {
	for _, next := range []string{mariaNextClean, mariaNextCrashed, mariaNextPoisoned} {
		found, err := m.types(ctx, db, next)
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	return slices.Compact(slices.Sorted(slices.Values(names))), nil
}

// kinds walks the payload types of pending messages of the given consumer types.
func (m *mariadb) kinds(ctx context.Context, db bun.IDB, consumers []string) (found []Stranger, err error) {
	for _, consumer := range consumers {
		payloads, err := m.types(ctx, db, mariaNextPayload, consumer)
		if err != nil {
			return nil, err
		}
		for _, payload := range payloads {
			found = append(found, Stranger{consumer, payload})
		}
	}
	return found, nil
}

func (m *mariadb) strangers(ctx context.Context, db bun.IDB, wants []Want) (found []Stranger, err error) {
	consumers, err := m.types(ctx, db, mariaNextClean)
	if err != nil {
		return nil, err
	}
	if found, err = m.kinds(ctx, db, consumers); err != nil {
		return nil, err
	}
	wanted := make(map[Stranger]bool)
	for _, w := range wants {
		wanted[Stranger{w.Consumer, w.Payload}] = true
	}
	found = slices.DeleteFunc(found, func(s Stranger) bool { return wanted[s] })
	return found[:min(len(found), 20)], nil
}

// unionAll repeats a statement.
func unionAll(statement string, n int) string {
	return strings.TrimSuffix(strings.Repeat(statement+" UNION ALL ", n), " UNION ALL ")
}
