package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// fenceSettingsSQL bounds the wait for the rows, and how long a vanished client
// can keep them locked. It returns the lock_timeout that was set before, and the Session.
const fenceSettingsSQL = `
SELECT pg_backend_pid() AS pid, (extract(epoch FROM now()) * 1000000)::bigint AS begun,
  current_setting('search_path') AS path, current_setting('role') AS role,
  s.previous, set_config('lock_timeout', '1s', true) AS now, set_config('idle_in_transaction_session_timeout', ?, true) AS idle
FROM (SELECT current_setting('lock_timeout') AS previous OFFSET 0) s`

// fenceSQL locks the messages, not their claims: neighbours in a claim stay free,
// and recovery skips the locked rows. Once it has the locks it sets lock_timeout
// back, which from then on is the consumer's affair.
const fenceSQL = fenceRowsSQL + `) f`

// fenceFreeSQL is for several messages: one that is locked must not hold up the others.
const fenceFreeSQL = fenceRowsSQL + ` SKIP LOCKED) f`

const fenceRowsSQL = `
SELECT f.id, set_config('lock_timeout', ?, true) AS now FROM (
  SELECT m.id FROM {messages} m
  JOIN unnest(?::bigint[], ?::int[], ?::int[], ?::bigint[]) AS w (id, attempts, crashes, claim)
    ON m.id = w.id AND m.attempts = w.attempts AND m.crashes = w.crashes
  WHERE EXISTS (SELECT 1 FROM {claims} c WHERE c.id = w.claim AND c.owner = ? AND m.id = ANY(c.message_ids))
  ORDER BY m.id FOR UPDATE OF m`

func (p *database) Fence(ctx context.Context, tx bun.IDB, f dialect.Fence) ([]int64, error) {
	var settings struct {
		dialect.Session     `bun:",extend"`
		Previous, Now, Idle string
	}
	if err := tx.NewRaw(fenceSettingsSQL, fmt.Sprintf("%dms", f.Idle.Milliseconds())).Scan(ctx, &settings); err != nil {
		return nil, err
	}
	if f.Session != nil {
		*f.Session = settings.Session
	}
	var ids, claims []int64
	var attempts, crashes []int
	for _, m := range f.Messages {
		ids, attempts, crashes, claims = append(ids, m.ID), append(attempts, m.Attempts), append(crashes, m.Crashes), append(claims, m.Claim)
	}
	var held []struct {
		ID  int64
		Now string
	}
	statement := fenceSQL
	if len(ids) > 1 {
		statement = fenceFreeSQL
	}
	err := p.Query(ctx, tx, statement, settings.Previous, pgdialect.Array(ids), pgdialect.Array(attempts), pgdialect.Array(crashes),
		pgdialect.Array(claims), f.Owner).Scan(ctx, &held)
	if err != nil {
		return nil, err
	}
	ids = ids[:0]
	for _, row := range held {
		ids = append(ids, row.ID)
	}
	return ids, nil
}

// asBegunSQL is sent along with the statement that it is for. It sets the session, since
// what a function has set without LOCAL would outlive the transaction, and lead astray
// whoever is given the connection next.
const asBegunSQL = `SELECT set_config('role', ?, false), set_config('search_path', ?, false); `

const interruptSQL = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = ? AND (extract(epoch FROM xact_start) * 1000000)::bigint = ?`

func (p *database) Interrupt(ctx context.Context, db *bun.DB, session dialect.Session, _ time.Time) error {
	_, err := db.NewRaw(interruptSQL, session.PID, session.Begun).Exec(ctx)
	return err
}

// Intact need not ask: a transaction that has failed refuses to remove the message.
func (p *database) Intact(context.Context, bun.IDB) error { return nil }
