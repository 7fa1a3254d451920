package txn

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
)

// RunInTx is db.RunInTx, with [Commit] and [Rollback].
func RunInTx(ctx context.Context, db bun.IDB, options *sql.TxOptions, fn func(ctx context.Context, tx bun.Tx) error) error {
	if !habitsOf(db).statementsEnd {
		return db.RunInTx(ctx, options, fn)
	}
	// With ctx database/sql would roll back asynchronously and hide the result. So only
	// the beginning of the transaction ends with ctx.
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

// Commit commits. When that fails, or ctx ends before it does, the connection is given up
// where the driver would put it back with the transaction open: the next to use it would
// write into that.
func Commit(ctx context.Context, tx bun.Tx) error {
	if !habitsOf(tx).statementsEnd {
		return tx.Commit()
	}
	if _, err := tx.NewRaw(`COMMIT`).Exec(ctx); err != nil {
		giveUp(ctx, tx)
		return err
	}
	_ = tx.Commit() // only returns the connection
	return nil
}

// rollbackTimeout bounds what a rollback waits for.
const rollbackTimeout = 5 * time.Second

// Rollback rolls back, and gives the connection up when that fails, as [Commit] does.
// It does not end with ctx, but in time.
func Rollback(ctx context.Context, tx bun.Tx) error {
	if !habitsOf(tx).statementsEnd {
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

// Whole runs fn, which writes in several statements. In a caller's transaction it does so
// behind a savepoint: after an error, or a panic, nothing of it is written, and the
// transaction can go on. One that lost a conflict stays as that left it: it is for its
// owner to repeat.
func Whole(ctx context.Context, db bun.IDB, fn func() error) (err error) {
	if db, err = Handle(db); err != nil {
		return err
	}
	tx, ok := db.(bun.Tx)
	if !ok {
		return fn()
	}
	name := savepoint(tx)
	if _, err := tx.NewRaw(`SAVEPOINT ` + name).Exec(ctx); err != nil {
		return fmt.Errorf("savepoint: %w", err)
	}
	returned := false
	defer func() {
		if !returned {
			_ = undo(ctx, tx, name)
		}
	}()
	err = fn()
	returned = true
	if err == nil {
		_, err = tx.NewRaw(`RELEASE SAVEPOINT ` + name).Exec(ctx)
	}
	if err == nil || dberr.IsConflict(err) && broken(ctx, tx) {
		return err
	}
	undone := undo(ctx, tx, name)
	if undone == nil || dberr.IsConflict(err) || dberr.IsUnavailable(undone) {
		return err
	}
	CloseEnded(ctx, tx)
	return fmt.Errorf("%w; the transaction must not be committed: %v", err, undone)
}

// deadlockTries is how often a statement is run in a caller's transaction that PostgreSQL ends for a deadlock.
const deadlockTries = 5

// ThroughDeadlocks runs a statement in a caller's transaction behind a savepoint, and repeats it when PostgreSQL
// ends it for a deadlock. Nothing else is repeated, and an error leaves the transaction as the statement left it.
func ThroughDeadlocks(ctx context.Context, tx bun.Tx, statement func() error) error {
	name := savepoint(tx)
	if _, err := tx.NewRaw(`SAVEPOINT ` + name).Exec(ctx); err != nil {
		return fmt.Errorf("savepoint: %w", err)
	}
	for try := 1; ; try++ {
		err := statement()
		if err == nil {
			_, err = tx.NewRaw(`RELEASE SAVEPOINT ` + name).Exec(ctx)
			return err
		}
		if !dberr.IsDeadlock(err) || try == deadlockTries {
			return err
		}
		if _, undone := tx.NewRaw(`ROLLBACK TO SAVEPOINT ` + name).Exec(ctx); undone != nil {
			return err
		}
	}
}

// Counted is [Whole] for fn that counts what it does: after an error, too, it returns what is
// done, which in a caller's transaction is nothing.
func Counted[T any](ctx context.Context, db bun.IDB, fn func(total *T) error) (total T, err error) {
	if db, err = Handle(db); err != nil {
		return total, err
	}
	err = Whole(ctx, db, func() error { return fn(&total) })
	if _, isTx := db.(bun.Tx); isTx && err != nil {
		total = *new(T)
	}
	return total, err
}

// CloseEnded closes a caller's transaction that the database has rolled back by itself, as
// SQLite does when a statement that writes is interrupted: what the caller wrote next would
// be committed statement by statement. A transaction that is still open stays so.
func CloseEnded(ctx context.Context, db bun.IDB) {
	tx, ok := db.(bun.Tx)
	if !ok || !habitsOf(tx).endsByItself {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	if _, err := tx.NewRaw(`BEGIN`).Exec(ctx); err == nil { // it can begin only outside of one
		_ = tx.Rollback()
	}
}

// savepoint names one that may stand behind others. Where those of one name are a stack,
// one name keeps the server's statistics short.
func savepoint(tx bun.Tx) string {
	if habitsOf(tx).namesHide {
		return `asyncmonolith_` + rand.Text()[:12]
	}
	return `asyncmonolith_call`
}

// undo takes back what was written since the savepoint, and the savepoint.
func undo(ctx context.Context, tx bun.Tx, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_, err := tx.NewRaw(`ROLLBACK TO SAVEPOINT ` + name).Exec(ctx)
	if err == nil {
		_, err = tx.NewRaw(`RELEASE SAVEPOINT ` + name).Exec(ctx)
	}
	return err
}

func broken(ctx context.Context, tx bun.Tx) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_, err := tx.NewRaw(`SELECT 1`).Exec(ctx)
	return err != nil
}

// Spoil sees to it that a caller's transaction can only be rolled back, at least to a
// savepoint before, since a call has stopped half way: where errors abort transactions, as
// on PostgreSQL. That is cheaper than a savepoint for what hardly ever happens, such as a
// context that ends between two statements.
func Spoil(ctx context.Context, db bun.IDB) {
	if tx, ok := db.(bun.Tx); ok && habitsOf(tx).aborts {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_, _ = tx.NewRaw(`SELECT CAST('a call of asyncmonolith stopped half way' AS int)`).Exec(ctx)
	}
}
