package store

import (
	"context"
	"database/sql"
	"slices"

	"github.com/uptrace/bun"
)

// mariaProbe asks what is left when it is known which messages are due.
const (
	mariaProbeCrashed = `SELECT DISTINCT LEAST(m.crashes, 2) AS kind, 0 AS value FROM {messages} m FORCE INDEX ({prefix}consumer_messages_due)
  WHERE m.crashes > 0 AND (m.consumer_type, m.payload_type) IN (?) AND m.available_after <= {now}
    AND m.id NOT IN (` + mariaHeld + `) AND m.consumer_type NOT IN (` + pausedNames + `)
UNION ALL SELECT 3, 0 FROM DUAL WHERE EXISTS (SELECT 1 FROM {claims} WHERE leased_until < {now})
UNION ALL SELECT 4, MIN(due) - {now} FROM (`
	mariaProbeNext = `SELECT (SELECT MIN(m.available_after) FROM {messages} m WHERE m.crashes = 0 AND m.consumer_type = ?
  AND m.available_after > {now}) AS due FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM {paused} WHERE consumer_type = ?)`
	mariaProbeEnd = `) n HAVING MIN(due) IS NOT NULL`
)

// probe takes two statements, since what is due has to be compared with what is held,
// and more to look behind that.
func (m *mariadb) probe(ctx context.Context, db bun.IDB, wants []Want) (Probe, error) {
	if len(wants) == 0 {
		wants = []Want{{}} // nobody's messages: the other questions stay
	}
	due, err := m.free(ctx, db, wants)
	if err != nil {
		return Probe{}, err
	}
	args := []any{wantedPairs(wants)}
	for _, w := range wants {
		args = append(args, w.Consumer, w.Consumer)
	}
	var found []finding
	err = m.raw(ctx, db, mariaProbeCrashed+unionAll(mariaProbeNext, len(wants))+mariaProbeEnd, args...).Scan(ctx, &found)
	probe := newProbe(found)
	probe.Due = due
	return probe, err
}

// free returns those wants of which something is due that is not held.
func (m *mariadb) free(ctx context.Context, db bun.IDB, wants []Want) (due []int, err error) {
	looks := make([]look, len(wants))
	for i := range wants {
		looks[i] = look{want: i, missing: 1, limit: minLook}
	}
	var held map[int64]bool
	for range maxLooks {
		if looks = slices.DeleteFunc(looks, look.over); len(looks) == 0 {
			break
		}
		var found []candidate
		if found, held, err = m.candidates(ctx, db, wants, looks, held); err != nil {
			return nil, err
		}
		for i := range looks {
			if len(looks[i].advance(found, held)) > 0 {
				looks[i].missing = 0
				due = append(due, looks[i].want)
			}
		}
	}
	return due, nil
}

func count[T any](rows []T, is func(T) bool) (n int) {
	for _, row := range rows {
		if is(row) {
			n++
		}
	}
	return n
}

// wantedPairs lists the kinds of messages that are wanted, for (a, b) IN (?).
func wantedPairs(wants []Want) any {
	consumers, payloads := kinds(wants)
	pairs := make([]bun.TupleValues, len(consumers))
	for i := range pairs {
		pairs[i] = bun.Tuple([]string{consumers[i], payloads[i]})
	}
	return bun.List(pairs)
}

// mariaStrangers looks for foreign payload types among the oldest messages of a
// consumer type.
const mariaStrangers = `(SELECT DISTINCT ? AS consumer_type, payload_type FROM (
  SELECT m.payload_type FROM {messages} m FORCE INDEX ({prefix}consumer_messages_due) WHERE m.crashes = 0 AND m.consumer_type = ?
  ORDER BY m.available_after, m.id LIMIT 100) m)`

// The next name behind one: with constants these are looked up at the edge of an
// index, where a recursive query would read all of it for each name.
const (
	mariaNextClean    = `SELECT MIN(consumer_type) FROM {messages} WHERE crashes = 0 AND consumer_type > ?`
	mariaNextCrashed  = `SELECT MIN(consumer_type) FROM {messages} WHERE crashes > 0 AND consumer_type > ?`
	mariaNextPoisoned = `SELECT MIN(consumer_type) FROM {poisoned} WHERE consumer_type > ?`
)

// types walks the distinct consumer types from one to the next.
func (m *mariadb) types(ctx context.Context, db bun.IDB, next string) (names []string, err error) {
	for last := ""; ; {
		var name sql.NullString
		if err := m.raw(ctx, db, next, last).Scan(ctx, &name); err != nil || !name.Valid {
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

func (m *mariadb) strangers(ctx context.Context, db bun.IDB, wants []Want) (found []Stranger, err error) {
	types, err := m.types(ctx, db, mariaNextClean)
	if err != nil || len(types) == 0 {
		return nil, err
	}
	var args []any
	for _, name := range types {
		args = append(args, name, name)
	}
	if err := m.raw(ctx, db, unionAll(mariaStrangers, len(types))+" ORDER BY 1, 2", args...).Scan(ctx, &found); err != nil {
		return nil, err
	}
	wanted := make(map[Stranger]bool)
	consumers, payloads := kinds(wants)
	for i := range consumers {
		wanted[Stranger{consumers[i], payloads[i]}] = true
	}
	found = slices.DeleteFunc(found, func(s Stranger) bool { return wanted[s] })
	return found[:min(len(found), 20)], nil
}
