package outbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// ErrSchemaOutdated is returned when the library's tables are missing or older than this version
// needs. Run [Migrate], or fxmodule.Migrate under fx. All packages return it.
var ErrSchemaOutdated = dberr.ErrSchema

// ErrUnsupportedServer is returned when the library does not work with the database server, for
// instance a server that only speaks the protocol of PostgreSQL. The error names the server and the
// remedy; see the table in docs/databases.md. All packages return it.
var ErrUnsupportedServer = dberr.ErrServer

// Migrate creates the library's tables or updates them. It is idempotent and safe to run from many
// instances at once. Migrations only add, so an older binary works with newer tables. Pass
// Registry.Tables as tables. All migrations run in one transaction, so an error, or the end of ctx,
// leaves the tables unchanged. On MariaDB each statement commits by itself; the next call completes
// an interrupted migration.
//
// Migrate returns an error if a table of the same name exists that is not the library's. If a library
// table was removed, the error is [ErrSchemaOutdated]. If the library cannot run on the server at all,
// it is [ErrUnsupportedServer].
func Migrate(ctx context.Context, db *bun.DB, tables bus.Tables) error {
	s, err := storeFor(db, tables)
	if err != nil {
		return fmt.Errorf("outbox: migrate: %w", err)
	}
	if err := s.Schema.Migrate(ctx, db); err != nil {
		return fmt.Errorf("outbox: migrate: %w", err)
	}
	return nil
}

// Migrations returns the same migrations as plain SQL files for other migration tools, in order of
// their names. Each file records its version, so [Migrate] and [Processor.Run] see which have run.
// A schema named in tables must exist already.
func Migrations(db *bun.DB, tables bus.Tables) (fs.FS, error) {
	s, err := storeFor(db, tables)
	if err != nil {
		return nil, fmt.Errorf("outbox: migrations: %w", err)
	}
	return s.Schema.Migrations()
}

func storeFor(db *bun.DB, tables bus.Tables) (*store.Store, error) {
	if db == nil {
		return nil, errors.New("the database handle is nil")
	}
	if err := access.CheckTables(tables); err != nil {
		return nil, err
	}
	return store.For(db.Dialect().Name(), tables)
}
