package postgres

import (
	"context"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// pollNextSQL is the idle poll: one statement that finds everything there may be to do. It selects the
// first due message rather than whether one exists: EXISTS would become a join, and with stale
// statistics one that reads the whole table. An instant set to infinity by hand counts as one in a
// year: nothing can be subtracted from it.
//
// Lists are subqueries, so that the planner does not see how short they are: for longer ones a plan
// for any values would look dearer to it, and it would plan each time, which takes three times as
// long as the poll.
const pollNextSQL = pollNowSQL + `
UNION ALL SELECT 4, (extract(epoch FROM LEAST(min(n.available_after), {now} + interval '1 year') - {now}) * 1000000)::bigint, 0, NULL
  FROM unnest((SELECT ?::text[]), (SELECT ?::text[])) w(consumer, payload) CROSS JOIN LATERAL (
    SELECT m.available_after FROM {messages} m WHERE m.consumer_type = w.consumer AND m.payload_type = w.payload AND m.keyed = FALSE AND m.crashes = 0
      AND m.available_after > {now} ORDER BY m.available_after LIMIT 1) n
  WHERE w.consumer NOT IN (` + dialect.PausedNames + `) HAVING count(*) > 0`

const pollNowSQL = pollDueSQL + `
UNION ALL SELECT DISTINCT LEAST(m.crashes, 2), w.i, 0, NULL::timestamptz FROM unnest((SELECT ?::bigint[]), (SELECT ?::text[]), (SELECT ?::text[])) w(i, consumer, payload)
  JOIN {messages} m ON m.consumer_type = w.consumer AND m.payload_type = w.payload AND m.keyed = FALSE AND m.crashes > 0
  WHERE m.available_after <= {now} AND m.id NOT IN (` + heldSQL + `) AND m.consumer_type NOT IN (` + dialect.PausedNames + `)
UNION ALL SELECT 3, min(CASE WHEN {ahead} THEN -leased_for ELSE (extract(epoch FROM LEAST(leased_until, {now} + interval '1 year') - {now}) * 1000000)::bigint END), 0, NULL
  FROM {claims} HAVING count(*) > 0
UNION ALL SELECT 5, 0, 0, {now}`

const pollDueSQL = `
SELECT 0 AS kind, w.i AS value, m.id, m.available_after AS at
  FROM unnest((SELECT ?::bigint[]), (SELECT ?::text[]), (SELECT ?::text[]), (SELECT ?::timestamptz[]), (SELECT ?::bigint[])) w(i, consumer, payload, after_at, after_id)
  CROSS JOIN LATERAL (
    SELECT m.id, m.available_after FROM {messages} m WHERE m.consumer_type = w.consumer AND m.payload_type = w.payload
      AND m.keyed = FALSE AND m.crashes = 0 AND m.available_after <= {now} AND (m.available_after, m.id) > (w.after_at, w.after_id) AND m.id NOT IN (` + heldSQL + `)
    ORDER BY m.available_after, m.id LIMIT 1) m
  WHERE w.consumer NOT IN (` + dialect.PausedNames + `)`

func (p *database) Poll(ctx context.Context, db bun.IDB, wants []dialect.Want, extent dialect.PollExtent) (dialect.Poll, error) {
	w := columnsOf(wants)
	consumers, payloads := pgdialect.Array(w.consumers), pgdialect.Array(w.payloads)
	statement, args := p.polls[extent], []any{
		pgdialect.Array(w.indexes), consumers, payloads, pgdialect.Array(w.afterAt), pgdialect.Array(w.afterID),
	}
	if extent >= dialect.PollNow {
		args = append(args, args[0], consumers, payloads)
	}
	if extent == dialect.PollNext {
		args = append(args, consumers, payloads)
	}
	var found []dialect.Finding
	err := p.on(ctx, db, []*fixed{statement}, func(s session) error { return s.run(ctx, statement, args...).Scan(ctx, &found) })
	return dialect.NewPoll(found), err
}
