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
)

// Store runs the library's statements against one kind of database. It holds no
// connection: every call is given one. It is safe for concurrent use.
type Store struct {
	dialect.Direct
	*tables
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
	return &Store{e, newTables(e)}, nil
}

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
