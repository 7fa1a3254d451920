package txn

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
)

// ownTries is how often a transaction of our own that loses conflicts is tried.
const ownTries = 4

// InTx runs fn in the caller's transaction, see [Whole]. Without one it runs fn in a READ COMMITTED
// transaction of its own, which it repeats after a conflict.
func InTx(ctx context.Context, db bun.IDB, fn func(tx bun.Tx) error) error {
	db, err := Handle(db)
	if err != nil {
		return err
	}
	if tx, ok := db.(bun.Tx); ok {
		return Whole(ctx, tx, func() error { return fn(tx) })
	}
	if !habitsOf(db).takesTurns {
		return repeat(ctx, db, ownTries, fn)
	}
	if err = readCommitted(ctx, db, fn); dberr.IsConflict(err) {
		return repeatInTurn(ctx, db, fn)
	}
	return err
}

func readCommitted(ctx context.Context, db bun.IDB, fn func(tx bun.Tx) error) error {
	return RunOwn(ctx, db, func(_ context.Context, tx bun.Tx) error { return fn(tx) })
}

// RunOwn runs fn in a READ COMMITTED transaction of the library's own. All of these begin here,
// except claims, which are bounded in the same way with fewer statements, those that run functions
// of the application, which set their own bound, and short ones of SQLite, which has none. On PostgreSQL, which has such a bound, a
// client that stands still or vanishes keeps its locks for 5 s. No transaction of the library asks
// for READ WRITE: that would override default_transaction_read_only, which makes a database
// read-only on purpose.
func RunOwn(ctx context.Context, db bun.IDB, fn func(ctx context.Context, tx bun.Tx) error) error {
	return RunInTx(ctx, db, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
		idle := ownIdle
		if longer, ok := ctx.Value(idleKey{}).(time.Duration); ok {
			idle = longer
		}
		if idle > 0 {
			if err := Bound(ctx, tx, idle); err != nil {
				return err
			}
		}
		return fn(ctx, tx)
	})
}

// Bound has the server end a transaction of the library's own when its client is idle in it for so long, if the database can.
func Bound(ctx context.Context, tx bun.Tx, idle time.Duration) error {
	bound := habitsOf(tx).bound
	if bound == "" {
		return nil
	}
	_, err := tx.NewRaw(fmt.Sprintf(bound, idle.Milliseconds())).Exec(ctx)
	return err
}

// Begin begins a READ COMMITTED transaction in which functions of the application run. It ends with
// ctx at the latest; how long it may be idle its owner sets.
func Begin(ctx context.Context, db interface {
	BeginTx(ctx context.Context, options *sql.TxOptions) (bun.Tx, error)
}) (bun.Tx, error) {
	return db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
}

// BeginCallers begins a transaction of default isolation that is the caller's.
func BeginCallers(ctx context.Context, db interface {
	BeginTx(ctx context.Context, options *sql.TxOptions) (bun.Tx, error)
}) (bun.Tx, error) {
	return db.BeginTx(ctx, nil)
}

// ownIdle is how long a transaction of the library's own may be idle.
const ownIdle = 5 * time.Second

type idleKey struct{}

// WithIdle sets how long transactions that run functions of the application may be idle. Zero means
// as long as the application's own.
func WithIdle(ctx context.Context, idle time.Duration) context.Context {
	return context.WithValue(ctx, idleKey{}, idle)
}

// sharedIdle is less than the 5 s for which other transactions wait.
const sharedIdle = 2 * time.Second

// Shared is [WithIdle] for transactions whose locks others of the library wait for: if one stands
// still, the others are to go on.
func Shared(ctx context.Context) context.Context { return WithIdle(ctx, sharedIdle) }

type ownKey struct{}

// Own marks the context of a transaction that the library has begun for itself: it is READ COMMITTED, and short.
func Own(ctx context.Context) context.Context {
	return context.WithValue(ctx, ownKey{}, true)
}

// IsOwn reports whether a transaction with the context is the library's own rather than a caller's.
func IsOwn(ctx context.Context) bool {
	own, _ := ctx.Value(ownKey{}).(bool)
	return own
}
