package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
)

// RunInTx is db.RunInTx, with [Commit] and [Rollback].
func RunInTx(ctx context.Context, db bun.IDB, options *sql.TxOptions, fn func(ctx context.Context, tx bun.Tx) error) error {
	if db.Dialect().Name() != dialect.MySQL {
		return db.RunInTx(ctx, options, fn)
	}
	// With its own context the transaction would be rolled back behind our back, and
	// what became of that nobody would know. Only its beginning ends with ctx.
	inner, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	begun := context.AfterFunc(ctx, end)
	tx, err := db.BeginTx(inner, options)
	begun()
	if err != nil {
		return err
	}
	open := true
	defer func() { // also when fn panics
		if open {
			_ = Rollback(ctx, tx)
		}
	}()
	if err := fn(ctx, tx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	open = false
	return Commit(ctx, tx)
}

// Commit commits, and gives the connection up when that fails. It ends with ctx on
// MariaDB, too, whose driver waits for an answer to a COMMIT without one, and after
// an error puts the connection back, with the transaction open: the next to use it
// would write into that.
func Commit(ctx context.Context, tx bun.Tx) error {
	if tx.Dialect().Name() != dialect.MySQL {
		return tx.Commit()
	}
	if _, err := tx.NewRaw(`COMMIT`).Exec(ctx); err != nil {
		giveUp(ctx, tx)
		return err
	}
	_ = tx.Commit() // of nothing: what is left to say went well
	return nil
}

// rollbackTimeout bounds what a rollback waits for.
const rollbackTimeout = 5 * time.Second

// Rollback rolls back, and gives the connection up when that fails, as [Commit] does.
// It does not end with ctx, but in time.
func Rollback(ctx context.Context, tx bun.Tx) error {
	if tx.Dialect().Name() != dialect.MySQL {
		return tx.Rollback()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	if _, err := tx.NewRaw(`ROLLBACK`).Exec(ctx); err != nil {
		giveUp(ctx, tx)
		return err
	}
	_ = tx.Rollback()
	return nil
}

// giveUp ends a session whose transaction may still be open, so that its connection
// cannot be used again. It fails on one that is broken, which is as good.
func giveUp(ctx context.Context, tx bun.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_, _ = tx.NewRaw(`KILL CONNECTION CONNECTION_ID()`).Exec(ctx)
	_ = tx.Rollback()
}
