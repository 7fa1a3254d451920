package outbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// ErrSchemaOutdated: the library's tables are missing, or older than this version needs. The
// cure is [Migrate], or fxmodule.Migrate under fx. All packages return it.
var ErrSchemaOutdated = dberr.ErrSchema

// ErrUnsupportedServer: the server behind the database's protocol is not one that the library works with:
// not PostgreSQL, for instance, but something that speaks like it. The error names it, and
// says what would do; docs/deploying.md has the table. All packages return it.
var ErrUnsupportedServer = dberr.ErrServer

// Migrate creates the library's tables or brings them up to date. It is
// idempotent and safe to run from many instances at once. Migrations only ever
// add, so that an older binary keeps working on newer tables. Pass the tables of
// the registry: Registry.Tables. What there is to do is one transaction, so that an
// error, or the end of ctx, leaves the tables as they were. On MariaDB each
// statement commits by itself; there the next call completes what was interrupted.
//
// A table of one of these names that is not the library's is an error, and so is
// one that was there and is gone, an [ErrSchemaOutdated]. A server on which nothing can run is an
// [ErrUnsupportedServer].
func Migrate(ctx context.Context, db *bun.DB, tables bus.Tables) error {
	s, err := storeFor(db, tables)
	if err != nil {
		return fmt.Errorf("outbox: migrate: %w", err)
	}
	if err := s.Migrate(ctx, db); err != nil {
		return fmt.Errorf("outbox: migrate: %w", err)
	}
	return nil
}

// Migrations returns the same migrations as files of plain SQL, in order of
// their names, for other migration tools. Each file records its version, so
// [Migrate] and [Processor.Run] know what other tools have run. A schema named
// in tables must exist already.
func Migrations(db *bun.DB, tables bus.Tables) (fs.FS, error) {
	s, err := storeFor(db, tables)
	if err != nil {
		return nil, fmt.Errorf("outbox: migrations: %w", err)
	}
	return s.Migrations()
}

func storeFor(db *bun.DB, tables bus.Tables) (*store.Store, error) {
	if db == nil {
		return nil, errors.New("the database handle is nil")
	}
	if err := tables.Validate(); err != nil {
		return nil, err
	}
	return store.For(db.Dialect().Name(), tables)
}
