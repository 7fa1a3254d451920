package store

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// postgres is the engine for PostgreSQL 13 and later.
//
// A claim is one row in message_claims. Two statements make it: pick locks rows
// that no claim holds, and record writes the claim with a snapshot of its own,
// which sees every claim committed since pick began. While a claimer holds a
// row lock nobody else can pick the row; once it lets go, its claim is visible
// to everyone else's record. Both halves are needed, and both need READ
// COMMITTED.
type postgres struct{ returning }

func newPostgres(tables bus.Tables) (engine, error) {
	p := new(postgres)
	p.returning = returning{names: newNames(tables, `"`, pgWords()), dialect: p}
	return p, nil
}

func (p *postgres) name() string { return "postgres" }

func (p *postgres) rowLocks() bool { return true }

func (p *postgres) readOnlyQuery() string { return pgReadOnly }

const pgReadOnly = `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on'`

func pgWords() words {
	return words{
		place: "position", unplaced: "e.position IS NULL", last: "(SELECT h.position FROM {head} h WHERE h.id = 1)",
		once: "MATERIALIZED", size: "cardinality(c.message_ids)", keep: onPaused,
		keyed: "m.insert_id = ?",
	}
}

func (p *postgres) now(ctx context.Context) string {
	if t, ok := fixed(ctx); ok {
		return p.at(t)
	}
	return "statement_timestamp()"
}

func (p *postgres) after(ctx context.Context, d time.Duration) string {
	return fmt.Sprintf("%s + %d * interval '1 microsecond'", p.now(ctx), d.Microseconds())
}

func (p *postgres) at(t time.Time) string { return "'" + pgTime(t) + "'::timestamptz" }

func pgTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.999999+00:00") }

func (p *postgres) raw(ctx context.Context, db bun.IDB, statement string, args ...any) *bun.RawQuery {
	return p.query(db, p.now(ctx), statement, args...)
}

// pgPreamble bounds what a vanished client can hold on to, and keeps the
// planner from turning the claims subquery into a scan per row.
const pgPreamble = `SELECT set_config('idle_in_transaction_session_timeout', '5s', true), set_config('statement_timeout', '5s', true),
	set_config('work_mem', '16MB', true), set_config('jit', 'off', true)`

// pgNotify does not wait for the disk: a crash that loses a notification ends the
// connections of those it was for. That also keeps short the one lock which all
// transactions of a server that notify hold while they commit.
const pgNotify = `SELECT set_config('synchronous_commit', 'off', true), pg_notify(?, ?)`

// pgHeld is limited for the planner's sake only: with the limit it always
// hashes the subquery. Missing a claim here costs a wasted pick; pgRecord, which
// is the guard, has no limit.
const pgHeld = `SELECT unnest(message_ids) AS id FROM {claims} LIMIT 100000`
