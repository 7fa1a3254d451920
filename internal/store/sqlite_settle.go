package store

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"
)

const (
	sqliteLive = `UPDATE {claims} SET leased_until = {now} + ? WHERE id IN (SELECT value FROM json_each(?)) AND owner = ? RETURNING id, message_ids`
	sqliteRest = `UPDATE {claims} SET message_ids = ? WHERE id = ?`
)

// sqliteRes reads the results as a table.
const sqliteRes = `(SELECT value ->> 'm' AS mid, value ->> 'o' AS outcome, value ->> 'd' AS delay,
	value ->> 'e' AS errors, value ->> 'r' AS reason FROM json_each(?))`

// sqlitePoison is immutable.
var sqlitePoison = `
INSERT INTO {poisoned} (` + poisonedColumns + `)
SELECT ` + poisonedID("m.id") + `, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
  m.available_after, m.attempts + 1, m.crashes, COALESCE(NULLIF(r.errors, ''), m.errors), {now}, r.reason
FROM ` + sqliteRes + ` r JOIN {messages} m ON m.id = r.mid`

const sqliteAgain = `
UPDATE {messages} AS m SET attempts = m.attempts + (r.outcome = 'failed'), crashes = 0,
  errors = COALESCE(NULLIF(r.errors, ''), m.errors), available_after = {now} + r.delay
FROM ` + sqliteRes + ` r WHERE m.id = r.mid`

func (s *sqlite) settle(ctx context.Context, db bun.IDB, owner string, lease time.Duration, results []Result, _ bool) (settled Settled, err error) {
	err = s.inTx(ctx, db, func(tx bun.IDB) error {
		var live []leased
		claims := asJSON(resultColumns(results).claims)
		if err := s.raw(ctx, tx, sqliteLive, lease.Microseconds(), claims, owner).Scan(ctx, &live); err != nil {
			return fmt.Errorf("claims: %w", err)
		}
		held, rests, ended := subtract(live, results)
		settled = Settled{Applied: len(held)}
		for _, c := range live {
			settled.Live = append(settled.Live, c.ID)
		}
		for _, c := range rests {
			if _, err := s.raw(ctx, tx, sqliteRest, asJSON(c.MessageIDs), c.ID).Exec(ctx); err != nil {
				return fmt.Errorf("rest: %w", err)
			}
		}
		if err := s.run(ctx, tx, sqliteForget, ended); err != nil {
			return fmt.Errorf("forget: %w", err)
		}
		return s.apply(ctx, tx, held)
	})
	return settled, err
}

// apply writes results that count.
func (s *sqlite) apply(ctx context.Context, tx bun.IDB, held []Result) error {
	gone, poisoned, again := byOutcome(held)
	if err := s.write(ctx, tx, sqlitePoison, poisoned); err != nil {
		return fmt.Errorf("poison: %w", err)
	}
	if err := s.run(ctx, tx, sqliteDelete, gone); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if err := s.write(ctx, tx, sqliteAgain, again); err != nil {
		return fmt.Errorf("reschedule: %w", err)
	}
	return nil
}

// run executes a statement that takes a list of ids, unless it is empty.
func (s *sqlite) run(ctx context.Context, tx bun.IDB, statement string, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := s.raw(ctx, tx, statement, asJSON(ids)).Exec(ctx)
	return err
}

// write does so for one that takes results.
func (s *sqlite) write(ctx context.Context, tx bun.IDB, statement string, results []Result) error {
	if len(results) == 0 {
		return nil
	}
	_, err := s.raw(ctx, tx, statement, resultsJSON(results)).Exec(ctx)
	return err
}

const sqliteFinish = `DELETE FROM {claims} WHERE id IN (SELECT value FROM json_each(?)) AND owner = ?
RETURNING id, json_array_length(message_ids) AS messages, message_ids`

const sqliteDelete = `DELETE FROM {messages} WHERE id IN (SELECT value FROM json_each(?))`

func (s *sqlite) finish(ctx context.Context, db bun.IDB, owner string, claims []int64) (finished []Finished, err error) {
	err = s.inTx(ctx, db, func(tx bun.IDB) error {
		var gone []struct {
			Finished   `bun:",extend"`
			MessageIDs string `bun:"message_ids"`
		}
		if err := s.raw(ctx, tx, sqliteFinish, asJSON(claims), owner).Scan(ctx, &gone); err != nil {
			return err
		}
		for _, claim := range gone {
			if _, err := s.raw(ctx, tx, sqliteDelete, claim.MessageIDs).Exec(ctx); err != nil {
				return err
			}
			finished = append(finished, claim.Finished)
		}
		return nil
	})
	return finished, err
}
