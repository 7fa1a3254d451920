package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// A consumer's transaction has two statements of the library's. Planning them takes the server four
// times as long as running them, so a connection plans them once, for a single message: the planner
// prefers a plan for any values only where no value is an array.
const (
	fenceOneSQL = fenceSettingsSQL + `
  SELECT m.id FROM {messages} m
  WHERE s.bounded <> '' AND m.id = ?::bigint AND m.attempts = ?::int AND m.crashes = ?::int
    AND EXISTS (SELECT 1 FROM {claims} c WHERE c.id = ?::bigint AND c.owner = ?::text AND m.id = ANY(c.message_ids))
  FOR UPDATE OF m) f`

	asBegunOneSQL = `SELECT set_config('role', ?::text, false), set_config('search_path', ?::text, false)`
	removeOneSQL  = `DELETE FROM {messages} WHERE id = ?::bigint AND (extract(epoch FROM now()) * 1000000)::bigint = ?::bigint`
)

// runPlans is the connection of a transaction that has planned statements.
type runPlans struct {
	bun.Conn
	database   *database
	statements []*fixed
}

// Lost implements [dialect.Plans].
func (r runPlans) Lost(ctx context.Context, err error) bool {
	return r.database.gone(ctx, r.Conn, r.statements, err)
}

func (p *database) runStatements() []*fixed {
	return append([]*fixed{p.fenceOne, p.asBegunOne, p.removeOne}, p.producing()...)
}

// BeginRun implements [dialect.Dialect].
func (p *database) BeginRun(ctx context.Context, db *bun.DB) (dialect.RunTx, error) {
	plan := func(ctx context.Context, conn bun.Conn) (bool, error) {
		if !p.isServers(ctx, conn) { // each statement would have to be in the session that the pooler chooses
			return false, nil
		}
		return p.plan(ctx, conn, p.runStatements())
	}
	begin := func(ctx context.Context, db beginner) (bun.Tx, error) { return txn.Begin(ctx, db) }
	return p.beginPlanned(ctx, db, p.runStatements(), plan, begin)
}

type beginner interface {
	BeginTx(ctx context.Context, options *sql.TxOptions) (bun.Tx, error)
}

// beginPlanned begins a transaction on a connection that has planned the statements, if plan succeeds.
func (p *database) beginPlanned(
	ctx context.Context, db *bun.DB, statements []*fixed, plan func(ctx context.Context, conn bun.Conn) (bool, error),
	begin func(ctx context.Context, db beginner) (bun.Tx, error),
) (dialect.RunTx, error) {
	for dead := 1; ; dead++ {
		if p.plans.off.Load() || dialect.HasFixedClock(ctx) {
			tx, err := begin(ctx, db)
			return dialect.RunTx{Tx: tx}, err
		}
		conn, err := db.Conn(ctx)
		if err != nil {
			return dialect.RunTx{}, err
		}
		planned, err := plan(ctx, conn)
		if err == nil && planned {
			var tx bun.Tx
			if tx, err = begin(ctx, conn); err == nil {
				return dialect.RunTx{Tx: tx, Plans: runPlans{conn, p, statements}}, nil
			}
		}
		_ = conn.Close()
		switch {
		case err == nil:
			tx, err := begin(ctx, db)
			return dialect.RunTx{Tx: tx}, err
		case !errors.Is(err, driver.ErrBadConn) || dead == maxDead:
			return dialect.RunTx{}, err
		}
	}
}

// planned reports whether the transaction's connection has planned the statements for a single message.
func planned(tx bun.IDB) bool {
	own, ok := tx.(dialect.RunTx)
	return ok && own.Plans != nil
}

// fenceOneOf returns the statement that fences a single message.
func (p *database) fenceOneOf(tx bun.IDB, f dialect.Fence) *bun.RawQuery {
	m := f.Messages[0]
	return tx.NewRaw(p.fenceOne.call, fmt.Sprintf("%dms", f.Idle.Milliseconds()), m.ID, m.Attempts, m.Crashes, m.Claim, f.Owner)
}

// removeOneOf removes a single message.
func (p *database) removeOneOf(ctx context.Context, tx bun.IDB, session dialect.Session, id int64) (int, error) {
	statement := p.asBegunOne.call + "; " + p.removeOne.call
	return p.Changed(ctx, tx, statement, session.Role, session.Path, id, session.Begun)
}
