package mariadb

import (
	"context"
	"slices"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// These find the rest once it is known which messages are due.
const (
	pollNowSQL = `SELECT DISTINCT LEAST(m.crashes, 2) AS kind, 0 AS value, NULL AS at, m.consumer_type AS consumer, m.payload_type AS payload FROM {messages} m FORCE INDEX ({prefix}consumer_messages_due)
  WHERE m.keyed = FALSE AND m.crashes > 0 AND (m.consumer_type, m.payload_type) IN (?) AND m.available_after <= {now}
    AND m.id NOT IN (` + heldSQL + `) AND m.consumer_type NOT IN (` + dialect.PausedNames + `)
UNION ALL SELECT 3, MIN(CASE WHEN {ahead} THEN -leased_for ELSE leased_until - {now} END), NULL, '', '' FROM {claims} HAVING MIN(leased_until) IS NOT NULL
UNION ALL SELECT 5, 0, {now}, '', ''`
	pollNextSQL = `
UNION ALL SELECT 4, MIN(due) - {now}, NULL, '', '' FROM (`
	pollNextOneSQL = `SELECT (SELECT MIN(m.available_after) FROM {messages} m WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type = ? AND m.payload_type = ?
  AND m.available_after > {now}) AS due FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM {paused} WHERE consumer_type = ?)`
	pollNextEndSQL = `) n HAVING MIN(due) IS NOT NULL`
)

// Poll takes two statements, since due messages have to be compared with held ones, and more to
// look behind those.
func (m *database) Poll(ctx context.Context, db bun.IDB, wants []dialect.Want, extent dialect.PollExtent) (dialect.Poll, error) {
	if len(wants) == 0 {
		wants = []dialect.Want{{}} // matches no messages: the other queries remain
	}
	due, first, err := m.free(ctx, db, wants)
	if err != nil || extent == dialect.PollDue {
		return dialect.Poll{Due: due, First: first}, err
	}
	statement, args := pollNowSQL, []any{wantedPairs(wants)}
	if extent == dialect.PollNext {
		statement += pollNextSQL + unionAll(pollNextOneSQL, len(wants)) + pollNextEndSQL
		for _, w := range wants {
			args = append(args, w.Consumer, w.Payload, w.Consumer)
		}
	}
	var rows []struct {
		dialect.Finding
		Consumer, Payload string
	}
	err = m.Query(ctx, db, statement, args...).Scan(ctx, &rows)
	found := make([]dialect.Finding, len(rows))
	for i, row := range rows {
		if found[i] = row.Finding; row.Consumer != "" {
			found[i].Value = int64(
				slices.IndexFunc(wants, func(w dialect.Want) bool { return w.Consumer == row.Consumer && w.Payload == row.Payload }),
			)
		}
	}
	poll := dialect.NewPoll(found)
	poll.Due, poll.First = due, first
	return poll, err
}

// free returns the wants that have due messages which are not held, and where.
func (m *database) free(ctx context.Context, db bun.IDB, wants []dialect.Want) (due []int, first []dialect.Position, err error) {
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
				due, first = append(due, looks[i].want), append(first, dialect.Position{At: free[0].AvailableAfter.Time, ID: free[0].ID})
			}
		}
	}
}

// wantedPairs returns the wanted kinds of messages, for (a, b) IN (?).
func wantedPairs(wants []dialect.Want) any {
	pairs := make([]bun.TupleValues, len(wants))
	for i, w := range wants {
		pairs[i] = bun.Tuple([]string{w.Consumer, w.Payload})
	}
	return bun.List(pairs)
}
