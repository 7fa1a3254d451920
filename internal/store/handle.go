package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
)

// Handle checks a database handle that a user passed in, which may be nil or the
// zero value of its type, and returns a pointer to a transaction as the
// transaction itself.
func Handle(db bun.IDB) (bun.IDB, error) {
	errNil := errors.New("the database handle is nil or a zero value")
	switch h := db.(type) {
	case nil:
		return nil, errNil
	case *bun.DB:
		if h == nil || h.DB == nil {
			return nil, errNil
		}
	case bun.Tx:
		if h.Tx == nil {
			return nil, errNil
		}
	case *bun.Tx:
		if h == nil || h.Tx == nil {
			return nil, errNil
		}
		return *h, nil
	case bun.Conn:
		if h.Conn == nil {
			return nil, errNil
		}
	case *bun.Conn:
		if h == nil || h.Conn == nil {
			return nil, errNil
		}
		return *h, nil
	}
	return db, nil
}

type withinKey struct{}

// Within marks the context of a transaction that the library has begun for its
// user, for [HandleIn] to recognise.
func Within(ctx context.Context) context.Context {
	return context.WithValue(ctx, withinKey{}, true)
}

// HandleIn is [Handle] for a write: in the context of such a transaction the
// handle must be a transaction, or the write would happen apart from it, and on
// a database with a single writer wait for it in vain.
func HandleIn(ctx context.Context, db bun.IDB) (bun.IDB, error) {
	db, err := Handle(db)
	if err != nil {
		return nil, err
	}
	if _, isTx := db.(bun.Tx); !isTx && ctx.Value(withinKey{}) != nil {
		return nil, bus.ErrNotInTx
	}
	return db, nil
}

// Usable tells whether a transaction can still be committed: its connection
// stands, and no statement has aborted it.
func (s *Store) Usable(ctx context.Context, tx bun.IDB) bool { return s.usable(ctx, tx) }

// ReadOnly asks the server, on another connection than the one that met such an error,
// whether it takes no writes from anybody.
func (s *Store) ReadOnly(ctx context.Context, db *bun.DB) bool {
	statement := s.traits().readOnly
	if statement == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var readOnly bool
	err := db.NewRaw(statement).Scan(ctx, &readOnly)
	return err != nil || readOnly
}

// lookTimeout bounds a question that any server answers at once.
const lookTimeout = 2 * time.Second

// Look asks the database something that it answers at once if it answers at all.
func (s *Store) Look(db *bun.DB) func(context.Context) error {
	return func(ctx context.Context) error {
		var one int
		return db.NewRaw(`SELECT 1`).Scan(ctx, &one)
	}
}

// ownTries is how often a transaction of our own is tried that loses conflicts.
const ownTries = 4

// InTx runs fn in the caller's transaction, see [Whole], or else in a READ COMMITTED one
// of its own, which it repeats when it loses a conflict.
func InTx(ctx context.Context, db bun.IDB, fn func(tx bun.Tx) error) error {
	db, err := Handle(db)
	if err != nil {
		return err
	}
	if tx, ok := db.(bun.Tx); ok {
		return Whole(ctx, tx, func() error { return fn(tx) })
	}
	err = readCommitted(ctx, db, fn)
	if dberr.IsConflict(err) && db.Dialect().Name() == dialect.MySQL {
		return mariaRetry(ctx, db, fn)
	}
	for try := 1; dberr.IsConflict(err) && try < ownTries; try++ {
		err = readCommitted(ctx, db, fn)
	}
	return err
}

func readCommitted(ctx context.Context, db bun.IDB, fn func(tx bun.Tx) error) error {
	return RunInTx(ctx, db, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(_ context.Context, tx bun.Tx) error { return fn(tx) })
}

// WriteFirst makes sure, where one writer locks the whole database, that a
// transaction begins with a write: one that reads first cannot become a writer
// once somebody else has written.
func (s *Store) WriteFirst(ctx context.Context, tx bun.Tx) error {
	if s.RowLocks() {
		return nil
	}
	if _, err := s.raw(ctx, tx, `UPDATE {messages} SET id = id WHERE id < 0`).Exec(ctx); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}
