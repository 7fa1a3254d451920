package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing/fstest"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
)

// migration is one numbered file, with the table names filled in.
type migration struct {
	version int
	sql     string
}

// Migrations returns the migration files of the store's dialect with its table
// names filled in.
func (s *SchemaStore) Migrations() (fs.FS, error) {
	const dir = "migrations"
	entries, err := s.names.Files.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := make(fstest.MapFS)
	for _, entry := range entries {
		text, err := s.names.Files.ReadFile(path.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		files[entry.Name()] = &fstest.MapFile{Data: []byte(s.names.Expand(string(text))), Mode: 0o444}
	}
	return files, nil
}

// Migrate brings the tables up to date. It may run in many instances at once, and again at any
// time.
func (s *SchemaStore) Migrate(ctx context.Context, db *bun.DB) error {
	all, err := s.migrations()
	if err != nil {
		return err
	}
	server, err := s.dialect.Server(ctx, db)
	if err == nil {
		err = refused(server, true)
	}
	if err != nil {
		return err
	}
	if err := s.dialect.Literals(ctx, db); err != nil {
		return err
	}
	// With nothing to do it needs no right to create: programs that migrate at every start may lack
	// it.
	var foreign *foreignError
	if err := s.CheckSchema(ctx, db); err == nil || errors.As(err, &foreign) {
		return err
	}
	if err := s.checkTables(ctx, db, false); errors.As(err, &foreign) {
		return err
	}
	if err := s.dialect.Migrating(ctx, db, s.apply(ctx, all)); err != nil {
		return err
	}
	return s.checkTables(ctx, db, true)
}

// foreignError means that a foreign table has the name of one of ours.
type foreignError struct{ table, column string }

func (e *foreignError) Error() string {
	return fmt.Sprintf("table %s exists without column %s, so it is not this library's: set another Tables.Prefix, or rename the table",
		e.table, e.column)
}

// checkTables reads a column of each required table that foreign tables of these names do not have.
// all means that every table must exist.
func (s *SchemaStore) checkTables(ctx context.Context, db bun.IDB, all bool) error {
	type check struct{ name, table, column string }
	tables := []check{
		{"consumer_messages", "{messages}", "crashes"},
		{"message_claims", "{claims}", "message_ids"},
		{"poisoned_messages", "{poisoned}", "crashes"},
		{"consumed_messages", "{consumed}", "expires_at"},
		{"scheduled_messages", "{schedules}", "run_at"},
		{"schedule_fires", "{fires}", "recent"},
		{"paused_consumers", "{paused}", "paused_at"},
		{s.names.Keys, "{keys}", "insert_id"},
		{"message_slots", "{slots}", "leased_until"},
		{"message_rates", "{rates}", "used_to"},
		{"message_stops", "{stops}", "outcome"},
		{"message_gates", "{gates}", "parks"},
		{"message_breakers", "{breakers}", "open_until"},
		{"inbox_messages", "{inbox}", "received_at"},
		{"message_groups", "{groups}", "poisoned"},
		{"inbox_types", "{inbox types}", "event_type"},
		{s.names.KeyRates, "{key rates}", "lane"},
		{s.names.Lanes.Table, "{lanes}", "order_key"},
	}
	tables = slices.DeleteFunc(tables, func(t check) bool { return t.name == "" }) // this database does not have it
	exist := make([]string, len(tables))
	for i, t := range tables {
		exist[i] = "EXISTS (SELECT " + t.column + " FROM " + t.table + " WHERE 1 = 0)"
	}
	if _, err := db.NewRaw(s.names.Expand("SELECT " + strings.Join(exist, " OR "))).Exec(ctx); err == nil {
		return nil
	}
	for _, t := range tables { // find the table with the error
		_, err := db.NewRaw(s.names.Expand("SELECT " + t.column + " FROM " + t.table + " WHERE 1 = 0")).Exec(ctx)
		switch {
		case dberr.IsMissingColumn(err):
			return &foreignError{s.names.Prefix + t.name, t.column}
		case dberr.IsMissingTable(err) && !all:
		case dberr.IsMissingTable(err):
			return fmt.Errorf(
				"%w: table %s is missing, although the version in %s requires it", dberr.ErrSchema, s.names.Said(t.name),
				s.names.Said("asyncmonolith_migrations"),
			)
		case err != nil:
			return fmt.Errorf("check table %s: %w", s.names.Said(t.name), err)
		}
	}
	return nil
}

// apply runs the migrations that the tables do not have yet.
func (s *SchemaStore) apply(ctx context.Context, all []migration) func(tx bun.IDB) error {
	return func(tx bun.IDB) error {
		version, err := s.version(ctx, tx)
		if err != nil {
			return fmt.Errorf("read version: %w", err)
		}
		for _, m := range all {
			if m.version <= version {
				continue
			}
			for _, statement := range statements(m.sql) {
				if _, err := tx.NewRaw(statement).Exec(ctx); err != nil {
					return fmt.Errorf("migration %d: %w", m.version, err)
				}
			}
		}
		return nil
	}
}

// statements splits a file into its statements, each of which ends a line: not every database
// accepts several at once.
func statements(file string) []string {
	return strings.Split(strings.TrimSuffix(strings.TrimSpace(file), ";"), ";\n")
}

// Every migration file records itself, so that other tools can run it, too.
const readVersion = `SELECT COALESCE(MAX(version), 0) FROM {migrations}`

// CheckSchema returns outbox.ErrSchemaOutdated unless the tables are at least as new as this
// version of the library. Newer ones are fine: migrations only ever add.
func (s *SchemaStore) CheckSchema(ctx context.Context, db bun.IDB) error {
	all, err := s.migrations()
	if err != nil {
		return err
	}
	want := all[len(all)-1].version
	version, err := s.version(ctx, db)
	if dberr.IsMissingTable(err) {
		return fmt.Errorf("%w: there is no table %s", dberr.ErrSchema, s.names.Said("asyncmonolith_migrations"))
	}
	if err != nil {
		return fmt.Errorf("read schema version: %w", dberr.Named(err))
	}
	if version < want {
		return fmt.Errorf(
			"%w: the tables of %s have version %d, version %d is needed", dberr.ErrSchema, s.names.Said("asyncmonolith_migrations"),
			version, want,
		)
	}
	return s.checkTables(ctx, db, true)
}

// Installed returns up to 20 pairs of schema and prefix with tables of this library that this
// session can see.
func (s *SchemaStore) Installed(ctx context.Context, db bun.IDB) (tables []bus.Tables, err error) {
	err = db.NewRaw(s.names.Expand(s.names.Traits.Installed)+` ORDER BY 1, 2 LIMIT 20`, "asyncmonolith_migrations").Scan(ctx, &tables)
	return tables, err
}

func (s *SchemaStore) version(ctx context.Context, db bun.IDB) (version int, err error) {
	err = s.names.Query(ctx, db, readVersion).Scan(ctx, &version)
	return version, err
}

// migrations reads the embedded files in order.
func (s *SchemaStore) migrations() ([]migration, error) {
	files, err := s.Migrations()
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, err
	}
	var all []migration
	for _, entry := range entries { // sorted by name, which starts with the version
		number, _, _ := strings.Cut(entry.Name(), "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("migration %s: the name must start with a number", entry.Name())
		}
		text, err := fs.ReadFile(files, entry.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, migration{version: version, sql: string(text)})
	}
	return all, nil
}
