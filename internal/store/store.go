package store

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Store runs the library's statements against one kind of database. It holds no
// connection: every call is given one. It is safe for concurrent use.
type Store struct {
	engine
	names names
}

// For returns the store for the dialect of a bun handle.
func For(d dialect.Name, tables bus.Tables) (*Store, error) {
	switch d {
	case dialect.PG:
		p := new(postgres)
		p.returning = returning{names: newNames(tables, `"`, pgWords()), dialect: p}
		return &Store{engine: p, names: p.names}, nil
	case dialect.SQLite:
		if tables.Schema != "" {
			return nil, fmt.Errorf("schema %q: SQLite has no schemas, leave Tables.Schema empty", tables.Schema)
		}
		s := new(sqlite)
		s.returning = returning{names: newNames(tables, `"`, sqliteWords()), dialect: s}
		return &Store{engine: s, names: s.names}, nil
	case dialect.MySQL:
		if tables.Schema != "" {
			return nil, fmt.Errorf("schema %q: a schema of MariaDB is a database, name it when you connect and leave Tables.Schema empty", tables.Schema)
		}
		m := &mariadb{names: newNames(tables, "`", mariaWords())}
		return &Store{engine: m, names: m.names}, nil
	}
	return nil, fmt.Errorf("dialect %q is not supported: use one of pg, sqlite, mysql", d)
}

// All returns the store of every dialect that can work with the tables, for
// callers that learn the dialect only call by call.
func All(tables bus.Tables) map[dialect.Name]*Store {
	stores := make(map[dialect.Name]*Store)
	for _, name := range []dialect.Name{dialect.PG, dialect.SQLite, dialect.MySQL} {
		if s, err := For(name, tables); err == nil {
			stores[name] = s
		}
	}
	return stores
}

// RowLocks tells whether the database locks rows rather than itself.
func (s *Store) RowLocks() bool { return s.traits().rowLocks }

// Events returns an error, an errors.ErrUnsupported, where the event log is not
// available.
func (s *Store) Events() error { return s.events() }

// Check reports settings of the live database that the library cannot work
// with, and what the processor needs to know of the others.
func (s *Store) Check(ctx context.Context, db bun.IDB) (Settings, error) { return s.check(ctx, db) }

type txKey struct{}

// WithTx hands a transaction down a chain to the layer that needs it. Users
// neither set nor read it.
func WithTx(ctx context.Context, tx bun.IDB) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}

// TxFrom returns the transaction that [WithTx] put into the context.
func TxFrom(ctx context.Context) (bun.IDB, bool) {
	tx, ok := ctx.Value(txKey{}).(bun.IDB)
	return tx, ok
}
