package store

import (
	"context"
	"slices"

	"github.com/uptrace/bun"
)

// mariaProbe asks what is left when it is known which messages are due.
const (
	mariaProbeCrashed = `SELECT DISTINCT LEAST(m.crashes, 2) AS kind, 0 AS value, NULL AS at FROM {messages} m FORCE INDEX ({prefix}consumer_messages_due)
  WHERE m.crashes > 0 AND (m.consumer_type, m.payload_type) IN (?) AND m.available_after <= {now}
    AND m.id NOT IN (` + mariaHeld + `) AND m.consumer_type NOT IN (` + pausedNames + `)
UNION ALL SELECT 3, MIN(leased_until) - {now}, NULL FROM {claims} HAVING MIN(leased_until) IS NOT NULL
UNION ALL SELECT 5, 0, {now}
UNION ALL SELECT 4, MIN(due) - {now}, NULL FROM (`
	mariaProbeNext = `SELECT (SELECT MIN(m.available_after) FROM {messages} m WHERE m.crashes = 0 AND m.consumer_type = ? AND m.payload_type = ?
  AND m.available_after > {now}) AS due FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM {paused} WHERE consumer_type = ?)`
	mariaProbeEnd = `) n HAVING MIN(due) IS NOT NULL`
)

// probe takes two statements, since what is due has to be compared with what is held,
// and more to look behind that.
func (m *mariadb) probe(ctx context.Context, db bun.IDB, wants []Want, all bool) (Probe, error) {
	if len(wants) == 0 {
		wants = []Want{{}} // nobody's messages: the other questions stay
	}
	due, first, err := m.free(ctx, db, wants)
	if err != nil || !all {
		return Probe{Due: due, First: first}, err
	}
	args := []any{wantedPairs(wants)}
	for _, w := range wants {
		args = append(args, w.Consumer, w.Payload, w.Consumer)
	}
	var found []finding
	err = m.raw(ctx, db, mariaProbeCrashed+unionAll(mariaProbeNext, len(wants))+mariaProbeEnd, args...).Scan(ctx, &found)
	probe := newProbe(found)
	probe.Due, probe.First = due, first
	return probe, err
}

// free returns those wants of which something is due that is not held, and where.
func (m *mariadb) free(ctx context.Context, db bun.IDB, wants []Want) (due []int, first []Position, err error) {
	looks := make([]look, len(wants))
	for i := range wants {
		looks[i] = look{want: i, missing: 1, limit: minLook, at: wants[i].After}
	}
	var held map[int64]bool
	for {
		if looks = slices.DeleteFunc(looks, look.over); len(looks) == 0 {
			return due, first, nil
		}
		var found []candidate
		if found, held, err = m.candidates(ctx, db, wants, looks, held); err != nil {
			return nil, nil, err
		}
		for i := range looks {
			if free := looks[i].advance(found, held); len(free) > 0 {
				looks[i].missing = 0
				due, first = append(due, looks[i].want), append(first, Position{At: free[0].AvailableAfter.Time, ID: free[0].ID})
			}
		}
	}
}

// wantedPairs lists the kinds of messages that are wanted, for (a, b) IN (?).
func wantedPairs(wants []Want) any {
	pairs := make([]bun.TupleValues, len(wants))
	for i, w := range wants {
		pairs[i] = bun.Tuple([]string{w.Consumer, w.Payload})
	}
	return bun.List(pairs)
}
