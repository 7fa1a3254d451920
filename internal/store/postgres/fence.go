package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// fenceSQL locks the messages, not their claims: other messages of a claim stay free, and recovery
// skips the locked rows. First it bounds the wait for them, and how long a lost client can keep
// them locked. Once it has them it resets lock_timeout, which then is the consumer's to set. Each
// row contains the Session, too.
const fenceSQL = fenceRowsSQL + `) f`

// fenceFreeSQL is for several messages: one that is locked must not hold up the others.
const fenceFreeSQL = fenceRowsSQL + ` SKIP LOCKED) f`

// fenceSettingsSQL is the beginning of all. The rows refer to the settings, so that these are set
// first.
const fenceSettingsSQL = `
SELECT f.id, s.pid, s.begun, s.path, s.role, set_config('lock_timeout', s.previous, true) AS now
FROM (SELECT pg_backend_pid() AS pid, (extract(epoch FROM now()) * 1000000)::bigint AS begun,
    current_setting('search_path') AS path, current_setting('role') AS role, p.previous,
    set_config('lock_timeout', '1s', true) AS bounded, set_config('idle_in_transaction_session_timeout', ?, true) AS idle
  FROM (SELECT current_setting('lock_timeout') AS previous OFFSET 0) p OFFSET 0) s
CROSS JOIN LATERAL (`

const fenceRowsSQL = fenceSettingsSQL + `
  SELECT m.id FROM {messages} m
  JOIN unnest(?::bigint[], ?::int[], ?::int[], ?::bigint[]) AS w (id, attempts, crashes, claim)
    ON m.id = w.id AND m.attempts = w.attempts AND m.crashes = w.crashes
  WHERE s.bounded <> '' AND EXISTS (SELECT 1 FROM {claims} c WHERE c.id = w.claim AND c.owner = ? AND m.id = ANY(c.message_ids))
  ORDER BY m.id FOR UPDATE OF m`

func (p *database) Fence(ctx context.Context, tx bun.IDB, f dialect.Fence) (held []int64, err error) {
	var ids, claims []int64
	var attempts, crashes []int
	for _, m := range f.Messages {
		ids, attempts, crashes, claims = append(ids, m.ID), append(attempts, m.Attempts), append(crashes, m.Crashes), append(claims, m.Claim)
	}
	statement := fenceSQL
	if len(ids) > 1 {
		statement = fenceFreeSQL
	}
	var rows []struct {
		dialect.Session `bun:",extend"`
		ID              int64
		Now             string
	}
	query := p.Query(ctx, tx, statement, fmt.Sprintf("%dms", f.Idle.Milliseconds()), pgdialect.Array(ids), pgdialect.Array(attempts),
		pgdialect.Array(crashes), pgdialect.Array(claims), f.Owner)
	if len(f.Messages) == 1 && planned(tx) {
		query = p.fenceOneOf(tx, f)
	}
	err = query.Scan(ctx, &rows)
	for _, row := range rows {
		held = append(held, row.ID)
		if f.Session != nil {
			*f.Session = row.Session
		}
	}
	return held, err
}

// asBegunSQL is sent along with the statement that it is for. It sets the session: settings that a
// function has made without LOCAL would outlive the transaction and affect the next user of the
// connection.
const asBegunSQL = `SELECT set_config('role', ?, false), set_config('search_path', ?, false); `

// removeSQL removes nothing in another transaction than the one that fenced: a function that has
// ended it in SQL may have rolled back what others wrote in it.
const removeSQL = `DELETE FROM {messages} WHERE id IN (?) AND ` + stillBegunSQL

const stillBegunSQL = `(extract(epoch FROM now()) * 1000000)::bigint = ?`

func (p *database) Remove(ctx context.Context, tx bun.IDB, session dialect.Session, ids []int64) (int, error) {
	before, args := p.AsBegun(session)
	if before == "" {
		return p.Returning.Remove(ctx, tx, session, ids)
	}
	if len(ids) == 1 && planned(tx) {
		return p.removeOneOf(ctx, tx, session, ids[0])
	}
	return p.Changed(ctx, tx, before+removeSQL, append(args, bun.List(ids), session.Begun)...)
}

const interruptSQL = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = ? AND (extract(epoch FROM xact_start) * 1000000)::bigint = ?`

func (p *database) Interrupt(ctx context.Context, db *bun.DB, session dialect.Session, _ time.Time) error {
	_, err := db.NewRaw(interruptSQL, session.PID, session.Begun).Exec(ctx)
	return err
}

// Intact need not ask: a failed transaction refuses to remove the message.
func (p *database) Intact(context.Context, bun.IDB) error { return nil }
