package store

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// retried runs a single statement. After a conflict, which a stricter default isolation can cause,
// it runs it again in an explicit READ COMMITTED transaction. In a caller's transaction a conflict
// is the caller's to retry.
func retried[T any](ctx context.Context, db bun.IDB, statement func(bun.IDB) (T, error)) (result T, err error) {
	err = retry(ctx, db, func(db bun.IDB) (err error) {
		result, err = statement(db)
		return err
	})
	if err != nil { // a result that was rolled back is none
		return *new(T), err
	}
	return result, nil
}

// read runs a statement that only reads, and repeats it after a conflict.
func read[T any](ctx context.Context, t *tables, db bun.IDB, statement string, args ...any) (into T, err error) {
	err = retry(ctx, db, func(db bun.IDB) error {
		into = *new(T)
		return t.names.Query(ctx, db, statement, args...).Scan(ctx, &into)
	})
	if err != nil {
		return *new(T), err
	}
	return into, nil
}

// first reads the first row, if there is one.
func first[T any](ctx context.Context, t *tables, db bun.IDB, statement string, args ...any) (row T, found bool, err error) {
	rows, err := read[[]T](ctx, t, db, statement, args...)
	if err != nil || len(rows) == 0 {
		return row, false, err
	}
	return rows[0], true, nil
}

// retry is retried for a statement that returns nothing.
func retry(ctx context.Context, db bun.IDB, statement func(bun.IDB) error) error {
	db, err := txn.Handle(db)
	if err != nil {
		return err
	}
	err = statement(db)
	if _, isTx := db.(bun.Tx); !isTx && dberr.IsConflict(err) {
		err = txn.InTx(ctx, db, func(tx bun.Tx) error { return statement(tx) })
	}
	return err
}

// exec executes a statement, and repeats it after a conflict.
func (t *tables) exec(ctx context.Context, db bun.IDB, statement string, args ...any) error {
	return retry(ctx, db, func(db bun.IDB) error { return t.names.Exec(ctx, db, statement, args...) })
}

// changed is exec for callers that need to know how many rows have changed.
func (t *tables) changed(ctx context.Context, db bun.IDB, statement string, args ...any) (int, error) {
	return retried(ctx, db, func(db bun.IDB) (int, error) { return t.names.Changed(ctx, db, statement, args...) })
}

// changedOne is changed for a statement that changes a row or none.
func (t *tables) changedOne(ctx context.Context, db bun.IDB, statement string, args ...any) (bool, error) {
	n, err := t.changed(ctx, db, statement, args...)
	return n == 1, err
}
