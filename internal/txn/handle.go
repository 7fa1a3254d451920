package txn

import (
	"context"
	"errors"

	"github.com/uptrace/bun"
)

// Handle checks a database handle from a user, which may be nil, the zero value of its type or put
// together by hand. It returns a pointer to a transaction as the transaction itself.
func Handle(db bun.IDB) (handle bun.IDB, err error) {
	if db == nil {
		return nil, errors.New("the database handle is nil")
	}
	err = errors.New("the database handle is a zero value: make one with bun.NewDB")
	defer func() { _ = recover() }() // out of a handle that has no database
	switch h := db.(type) {
	case *bun.DB:
		if h.DB == nil {
			return nil, err
		}
	case *bun.Tx:
		db = *h
	case *bun.Conn:
		db = *h
	}
	_ = db.Dialect().Name()
	return db, nil
}

// ErrNotInTx is outbox.ErrNotInTx.
var ErrNotInTx = errors.New("the context belongs to a transaction of the library: pass that transaction, or use a context from outside it")

type withinKey struct{}

// Within marks the context of a transaction that the library has begun for its user: see
// [HandleIn].
func Within(ctx context.Context) context.Context {
	return context.WithValue(ctx, withinKey{}, true)
}

// IsWithin reports whether a context comes from Within.
func IsWithin(ctx context.Context) bool { return ctx.Value(withinKey{}) != nil }

// HandleIn is [Handle] for a write. With a context from [Within] the handle must be a transaction.
// Otherwise the write would happen outside of it, and wait for it in vain on a database with a
// single writer.
func HandleIn(ctx context.Context, db bun.IDB) (bun.IDB, error) {
	db, err := Handle(db)
	if err != nil {
		return nil, err
	}
	if _, isTx := db.(bun.Tx); !isTx && IsWithin(ctx) {
		return nil, ErrNotInTx
	}
	return db, nil
}
