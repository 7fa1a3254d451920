package store

import (
	"context"

	"github.com/uptrace/bun"
	bundialect "github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/schema"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Stores holds the stores of all dialects, for callers whose handles differ in their dialect. Make
// it with [All]: the zero value stands for a user's zero value.
type Stores struct {
	tables  bus.Tables
	dialect schema.Dialect // of transactions that are not Bun's; may be nil
	byName  map[bundialect.Name]*Store
}

// All returns the store of every dialect that can work with the registry's tables.
func All(registry *bus.Registry) Stores {
	stores := Stores{registry.Tables(), access.Dialect(registry), make(map[bundialect.Name]*Store)}
	for name := range engines {
		if s, err := For(name, stores.tables); err == nil {
			stores.byName[name] = s
		}
	}
	return stores
}

// Of checks a handle, see [txn.Handle], and returns the store for its dialect. unmade is the error
// of the zero value.
func (s Stores) Of(db bun.IDB, unmade error) (*Store, bun.IDB, error) {
	if s.byName == nil {
		return nil, nil, unmade
	}
	db, err := txn.Handle(db)
	if err != nil {
		return nil, nil, err
	}
	if st, ok := s.byName[db.Dialect().Name()]; ok {
		return st, db, nil
	}
	_, err = For(db.Dialect().Name(), s.tables) // why there is none
	return nil, nil, err
}

// Listed reads rows through a user's handle, see [Stores.Of], and converts each of them.
func Listed[R, T any](
	s Stores, db bun.IDB, unmade error, read func(st *Store, db bun.IDB) ([]R, error), convert func(R) T,
) ([]T, error) {
	st, db, err := s.Of(db, unmade)
	if err != nil {
		return nil, err
	}
	rows, err := read(st, db)
	if err != nil {
		return nil, err
	}
	return Each(rows, convert), nil
}

// In is [Stores.Of] for a write, see [txn.HandleIn].
func (s Stores) In(ctx context.Context, db bun.IDB, unmade error) (*Store, bun.IDB, error) {
	st, db, err := s.Of(db, unmade)
	if err == nil {
		db, err = txn.HandleIn(ctx, db)
	}
	return st, db, err
}

// Through calls fn for a write through a user's handle: see [txn.Through] and [Stores.In].
func (s Stores) Through(ctx context.Context, h bus.Handle, unmade error, fn func(st *Store, db bun.IDB) error) error {
	if s.byName == nil {
		return unmade
	}
	return txn.Through(ctx, h, s.dialect, func(db bun.IDB) error {
		st, db, err := s.In(ctx, db, unmade)
		if err != nil {
			return err
		}
		return fn(st, db)
	})
}

// Counted is [txn.Counted] through a user's handle: see [Stores.Through].
func Counted[T any](
	ctx context.Context, s Stores, h bus.Handle, unmade error, fn func(st *Store, db bun.IDB, total *T) error,
) (total T, err error) {
	err = s.Through(ctx, h, unmade, func(st *Store, db bun.IDB) (err error) {
		total, err = txn.Counted(ctx, db, func(total *T) error { return fn(st, db, total) })
		return err
	})
	return total, err
}
