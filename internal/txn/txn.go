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

// RunInTx is db.RunInTx with [Commit] and [Rollback].
func RunInTx(ctx context.Context, db bun.IDB, options *sql.TxOptions, fn func(ctx context.Context, tx bun.Tx) error) error {
	if !habitsOf(db).statementsEnd {
		return db.RunInTx(ctx, options, fn)
	}
	// With ctx, database/sql would roll back asynchronously and hide the result. So ctx ends only
	// the start of the transaction.
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

// Commit commits. If that fails, or ctx ends first, it gives the connection up where the driver
// would return it with the transaction open: its next user would write into that.
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

// rollbackTimeout bounds the wait of a rollback.
const rollbackTimeout = 5 * time.Second

// Rollback rolls back, and gives the connection up if that fails, as [Commit] does. It does not end
// with ctx, but after rollbackTimeout.
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

// giveUp ends a session whose transaction may still be open, so that its connection is not used
// again. On a broken connection it fails, which has the same effect.
func giveUp(ctx context.Context, tx bun.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_, _ = tx.NewRaw(`KILL CONNECTION CONNECTION_ID()`).Exec(ctx)
	_ = tx.Rollback()
}

// Whole runs fn, which writes in several statements. In a caller's transaction it sets a savepoint:
// after an error or a panic nothing of fn is written, and the transaction can go on. After a lost
// conflict the transaction stays as it is, for its owner to repeat.
func Whole(ctx context.Context, db bun.IDB, fn func() error) (err error) {
	if db, err = Handle(db); err != nil {
		return err
	}
	tx, ok := db.(bun.Tx)
	if !ok {
		return fn()
	}
	name := savepoint(tx, "call")
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

// deadlockTries is how often a statement that PostgreSQL ends for a deadlock is run in a caller's
// transaction.
const deadlockTries = 5

// ThroughDeadlocks runs a statement in a caller's transaction behind a savepoint, and repeats it if
// PostgreSQL ends it for a deadlock. It repeats nothing else. An error leaves the transaction as
// the statement left it.
func ThroughDeadlocks(ctx context.Context, tx bun.Tx, statement func() error) error {
	name := savepoint(tx, "deadlock")
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

// Counted is [Whole] for an fn that counts what it does. After an error it returns what is done,
// which is nothing in a caller's transaction.
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

// CloseEnded closes a caller's transaction that the database has rolled back by itself, as SQLite
// does when a writing statement is interrupted. Otherwise the caller's next writes would be
// committed one by one. A transaction that is still open stays open.
func CloseEnded(ctx context.Context, db bun.IDB) {
	tx, ok := db.(bun.Tx)
	if !ok || !habitsOf(tx).endsByItself {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	if _, err := tx.NewRaw(`BEGIN`).Exec(ctx); err == nil { // it can begin only outside of one
		if of, ok := ctx.Value(wakeupsKey{}).(*Wakeups); ok {
			of.mu.Lock()
			of.closed = true
			of.mu.Unlock()
		}
		_ = tx.Rollback()
	}
}

// savepoint returns the name of a savepoint that may stand behind others. Where savepoints of one
// name form a stack, a single name for each use keeps the server's statistics short. An inner savepoint
// that an error leaves behind must not have the name of the outer one, which is to be rolled back to.
func savepoint(tx bun.Tx, use string) string {
	if habitsOf(tx).namesHide {
		return `asyncmonolith_` + rand.Text()[:12]
	}
	return `asyncmonolith_` + use
}

// undo rolls back to the savepoint and releases it.
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

// Spoil has a caller's transaction fail after a call that stopped half way, where errors abort
// transactions, as on PostgreSQL. It can then only be rolled back, at least to an earlier
// savepoint. For rare cases, such as a context that ends between two statements, that is cheaper
// than a savepoint.
func Spoil(ctx context.Context, db bun.IDB) {
	if tx, ok := db.(bun.Tx); ok && habitsOf(tx).aborts {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_, _ = tx.NewRaw(`SELECT CAST('a call of asyncmonolith stopped half way' AS int)`).Exec(ctx)
	}
}
