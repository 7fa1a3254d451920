package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	bundialect "github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/mariadb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/postgres"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/sqlite"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Store runs the library's statements against one kind of database. It holds no
// connection: every call is given one. It is safe for concurrent use.
type Store struct {
	dialect.Direct
	dialect dialect.Dialect
	names   dialect.Names
}

// engines creates the dialect of each database, by bun's name for it. It is immutable.
var engines = map[bundialect.Name]func(bus.Tables) (dialect.Dialect, error){
	bundialect.PG:     postgres.New,
	bundialect.SQLite: sqlite.New,
	bundialect.MySQL:  mariadb.New,
}

// For returns the store for the dialect of a bun handle.
func For(d bundialect.Name, tables bus.Tables) (*Store, error) {
	of, ok := engines[d]
	if !ok {
		return nil, fmt.Errorf("dialect %q is not supported: use one of pg, sqlite, mysql", d)
	}
	e, err := of(tables)
	if err != nil {
		return nil, err
	}
	return &Store{e, e, e.Tables()}, nil
}

// Stores holds the stores of all dialects, for callers that learn the dialect only call by call.
// Make it with [All]: the zero value stands for a user's zero value.
type Stores struct {
	tables bus.Tables
	byName map[bundialect.Name]*Store
}

// All returns the store of every dialect that can work with the tables.
func All(tables bus.Tables) Stores {
	stores := Stores{tables, make(map[bundialect.Name]*Store)}
	for name := range engines {
		if s, err := For(name, tables); err == nil {
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

// In is [Stores.Of] for a write, see [txn.HandleIn].
func (s Stores) In(ctx context.Context, db bun.IDB, unmade error) (*Store, bun.IDB, error) {
	st, db, err := s.Of(db, unmade)
	if err == nil {
		db, err = txn.HandleIn(ctx, db)
	}
	return st, db, err
}

// RowLocks reports whether the database locks rows rather than itself.
func (s *Store) RowLocks() bool { return s.names.RowLocks }

// Ready reports, in the given time, why the library cannot work with the live database: it cannot
// be reached, its server is refused, its tables are missing or too old, or its settings break
// promises. untested allows a server that was never tested.
func (s *Store) Ready(ctx context.Context, db *bun.DB, within time.Duration, untested bool) (dialect.Settings, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		return dialect.Settings{}, fmt.Errorf("the database cannot be reached: %w", err)
	}
	server, err := s.Server(ctx, db)
	if err == nil {
		err = refused(server, untested)
	}
	if err != nil {
		return dialect.Settings{}, err
	}
	settings, err := s.Check(ctx, db)
	if err = errors.Join(s.CheckSchema(ctx, db), err); err == nil && server.Name != "" {
		err = s.readsCommitted(ctx, db, server)
	}
	return settings, err
}
