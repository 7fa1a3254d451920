package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

const (
	liveSQL = `UPDATE {claims} SET leased_until = {now} + ? WHERE id IN (SELECT value FROM json_each(?)) AND owner = ? RETURNING id, message_ids`
	restSQL = `UPDATE {claims} SET message_ids = ? WHERE id = ?`
)

// resSQL reads the results as a table.
const resSQL = `(SELECT value ->> 'm' AS mid, value ->> 'o' AS outcome, value ->> 'd' AS delay,
	value ->> 'e' AS errors, value ->> 'r' AS reason FROM json_each(?))`

// poisonSQL is immutable.
var poisonSQL = `
INSERT INTO {poisoned} (` + dialect.PoisonedColumns + `)
SELECT ` + dialect.PoisonedID("m.id") + `, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
  m.available_after, m.attempts + 1, m.crashes, COALESCE(NULLIF(r.errors, ''), m.errors), {now}, r.reason
FROM ` + resSQL + ` r JOIN {messages} m ON m.id = r.mid`

const againSQL = `
UPDATE {messages} AS m SET attempts = m.attempts + (r.outcome = 'failed'), crashes = 0,
  errors = COALESCE(NULLIF(r.errors, ''), m.errors), available_after = {now} + r.delay
FROM ` + resSQL + ` r WHERE m.id = r.mid`

func (s *database) Settle(ctx context.Context, db bun.IDB, owner string, lease time.Duration, results []dialect.Result, _ bool) (settled dialect.Settled, err error) {
	err = s.inTx(ctx, db, func(tx bun.IDB) error {
		var live []dialect.Leased
		claims := dialect.AsJSON(dialect.ClaimsOf(results))
		if err := s.Query(ctx, tx, liveSQL, lease.Microseconds(), claims, owner).Scan(ctx, &live); err != nil {
			return fmt.Errorf("claims: %w", err)
		}
		held, rests, ended := dialect.Subtract(live, results)
		settled = dialect.Settled{Applied: len(held)}
		for _, c := range live {
			settled.Live = append(settled.Live, c.ID)
		}
		for _, c := range rests {
			if _, err := s.Query(ctx, tx, restSQL, dialect.AsJSON(c.MessageIDs), c.ID).Exec(ctx); err != nil {
				return fmt.Errorf("rest: %w", err)
			}
		}
		if err := s.run(ctx, tx, forgetSQL, ended); err != nil {
			return fmt.Errorf("forget: %w", err)
		}
		return s.apply(ctx, tx, held)
	})
	return settled, err
}

// apply writes results that count.
func (s *database) apply(ctx context.Context, tx bun.IDB, held []dialect.Result) error {
	gone, poisoned, again := dialect.ByOutcome(held)
	if err := s.write(ctx, tx, poisonSQL, poisoned); err != nil {
		return fmt.Errorf("poison: %w", err)
	}
	if err := s.run(ctx, tx, deleteSQL, gone); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if err := s.write(ctx, tx, againSQL, again); err != nil {
		return fmt.Errorf("reschedule: %w", err)
	}
	return nil
}

// run executes a statement that takes a list of ids, unless it is empty.
func (s *database) run(ctx context.Context, tx bun.IDB, statement string, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := s.Query(ctx, tx, statement, dialect.AsJSON(ids)).Exec(ctx)
	return err
}

// write does so for one that takes results.
func (s *database) write(ctx context.Context, tx bun.IDB, statement string, results []dialect.Result) error {
	if len(results) == 0 {
		return nil
	}
	_, err := s.Query(ctx, tx, statement, dialect.ResultsJSON(results)).Exec(ctx)
	return err
}

const finishSQL = `DELETE FROM {claims} WHERE id IN (SELECT value FROM json_each(?)) AND owner = ?
RETURNING id, json_array_length(message_ids) AS messages, message_ids`

const deleteSQL = `DELETE FROM {messages} WHERE id IN (SELECT value FROM json_each(?))`

func (s *database) Finish(ctx context.Context, db bun.IDB, owner string, claims []int64) (finished []dialect.Finished, err error) {
	err = s.inTx(ctx, db, func(tx bun.IDB) error {
		var gone []struct {
			dialect.Finished `bun:",extend"`
			MessageIDs       string `bun:"message_ids"`
		}
		if err := s.Query(ctx, tx, finishSQL, dialect.AsJSON(claims), owner).Scan(ctx, &gone); err != nil {
			return err
		}
		for _, claim := range gone {
			if _, err := s.Query(ctx, tx, deleteSQL, claim.MessageIDs).Exec(ctx); err != nil {
				return err
			}
			finished = append(finished, claim.Finished)
		}
		return nil
	})
	return finished, err
}
