package sqlite

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

const pollDueSQL = `
SELECT 0 AS kind, w.key AS value, m.id, m.available_after AS at FROM json_each(?) w JOIN {messages} m ON m.id = (
  SELECT d.id FROM {messages} d WHERE d.consumer_type = w.value ->> 0 AND d.payload_type = w.value ->> 1 AND d.keyed = FALSE AND d.crashes = 0
    AND d.available_after <= {now} AND (d.available_after, d.id) > (w.value ->> 2, w.value ->> 3) AND d.id NOT IN (` + heldSQL + `)
  ORDER BY d.available_after, d.id LIMIT 1)
WHERE w.value ->> 0 NOT IN (` + dialect.PausedNames + `)`

const pollNowSQL = pollDueSQL + `
UNION ALL SELECT DISTINCT MIN(m.crashes, 2), j.key, 0, NULL FROM json_each(?) j
  CROSS JOIN {messages} m ON m.consumer_type = j.value ->> 0 AND m.payload_type = j.value ->> 1 AND m.keyed = FALSE AND m.crashes > 0
  WHERE m.available_after <= {now} AND m.id NOT IN (` + heldSQL + `) AND m.consumer_type NOT IN (` + dialect.PausedNames + `)
UNION ALL SELECT 3, MIN(CASE WHEN {ahead} THEN -leased_for ELSE leased_until - {now} END), 0, NULL FROM {claims} HAVING MIN(leased_until) IS NOT NULL
UNION ALL SELECT 5, 0, 0, {now}`

const pollNextSQL = pollNowSQL + `
UNION ALL SELECT 4, MIN(due) - {now}, 0, NULL FROM (SELECT (
    SELECT m.available_after FROM {messages} m WHERE m.consumer_type = w.value ->> 0 AND m.payload_type = w.value ->> 1 AND m.keyed = FALSE AND m.crashes = 0
      AND m.available_after > {now} ORDER BY m.available_after LIMIT 1) AS due FROM json_each(?) w
    WHERE w.value ->> 0 NOT IN (` + dialect.PausedNames + `)) HAVING MIN(due) IS NOT NULL`

func (s *database) Poll(ctx context.Context, db bun.IDB, wants []dialect.Want, extent dialect.PollExtent) (dialect.Poll, error) {
	list := make([][4]any, len(wants))
	for i, w := range wants {
		list[i] = [4]any{w.Consumer, w.Payload, w.After.Micros(), w.After.ID}
	}
	statement, args := pollDueSQL, []any{dialect.AsJSON(list)}
	if extent >= dialect.PollNow {
		statement, args = pollNowSQL, append(args, dialect.Pairs(wants))
	}
	if extent == dialect.PollNext {
		statement, args = pollNextSQL, append(args, dialect.Pairs(wants))
	}
	var found []dialect.Finding
	err := s.Query(ctx, db, statement, args...).Scan(ctx, &found)
	return dialect.NewPoll(found), err
}
