package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
)

//go:embed migrations
var migrationFiles embed.FS // immutable

// migration is one numbered file, with the table names filled in.
type migration struct {
	version int
	sql     string
}

// Migrations returns the migration files of the store's dialect with its table
// names filled in.
func (s *Store) Migrations() (fs.FS, error) {
	dir, err := fs.Sub(migrationFiles, "migrations/"+s.name())
	if err != nil {
		return nil, err
	}
	return expandedFS{files: dir, expand: s.names.expand}, nil
}

// Migrate brings the tables up to date. It may run in many instances at once
// and again at any time.
func (s *Store) Migrate(ctx context.Context, db *bun.DB) error {
	all, err := s.migrations()
	if err != nil {
		return err
	}
	if err := s.literals(ctx, db); err != nil {
		return err
	}
	if err := s.checkTables(ctx, db, false); isForeign(err) {
		return err
	}
	if err := whileBusy(ctx, func() error { return s.migrating(ctx, db, s.apply(ctx, all)) }); err != nil {
		return err
	}
	return s.checkTables(ctx, db, true)
}

// foreignError tells that somebody else's table has the name of one of ours.
type foreignError struct{ table, column string }

func (e *foreignError) Error() string {
	return fmt.Sprintf("table %s exists and is not this library's, it has no column %s: set Tables.Prefix to something else, or rename it", e.table, e.column)
}

func isForeign(err error) bool {
	var foreign *foreignError
	return errors.As(err, &foreign)
}

// checkTables asks each of the tables that everything needs for a column that tables
// of these names do not have elsewhere. all tells whether it must be there.
func (s *Store) checkTables(ctx context.Context, db bun.IDB, all bool) error {
	type known struct{ name, table, column string }
	tables := []known{
		{"consumer_messages", s.names.messages, "crashes"}, {"message_claims", s.names.claims, "message_ids"},
		{"poisoned_messages", s.names.poisoned, "crashes"}, {"scheduled_messages", s.names.schedules, "run_at"},
		{"paused_consumers", s.names.paused, "paused_at"},
	}
	if s.names.keys != "" {
		tables = append(tables, known{"pending_insert_ids", s.names.keys, "insert_id"})
	}
	for _, t := range tables {
		_, err := db.NewRaw("SELECT " + t.column + " FROM " + t.table + " WHERE 1 = 0").Exec(ctx)
		switch {
		case dberr.IsMissingColumn(err):
			return &foreignError{s.names.prefix + t.name, t.column}
		case dberr.IsMissingTable(err) && !all:
		case dberr.IsMissingTable(err):
			return fmt.Errorf("%w: table %s is not there, though %s says so", bus.ErrSchema, s.names.said(t.name), s.names.said("asyncmonolith_migrations"))
		case err != nil:
			return fmt.Errorf("look at table %s: %w", s.names.said(t.name), err)
		}
	}
	return nil
}

// apply runs the migrations that the tables do not have yet.
func (s *Store) apply(ctx context.Context, all []migration) func(tx bun.IDB) error {
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

// statements cuts a file into its statements, each of which ends a line: not every
// database takes several at once.
func statements(file string) []string {
	return strings.Split(strings.TrimSuffix(strings.TrimSpace(file), ";"), ";\n")
}

// whileBusy tries again while a SQLite database is locked: the first connections
// to a new file make it a WAL database, which does not wait for busy_timeout.
func whileBusy(ctx context.Context, migrate func() error) error {
	const patience, wait = 5 * time.Second, 20 * time.Millisecond
	deadline := time.Now().Add(patience) // somebody else's long transaction has had busy_timeout already
	for {
		err := migrate()
		if dberr.SqliteCode(err) != dberr.SqliteBusy || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// Every migration file records itself, so that other tools can run them, too.
const readVersion = `SELECT COALESCE(MAX(version), 0) FROM {migrations}`

// CheckSchema returns bus.ErrSchema unless the tables are at least as new as this
// version of the library. Newer ones are fine: migrations only ever add.
func (s *Store) CheckSchema(ctx context.Context, db bun.IDB) error {
	all, err := s.migrations()
	if err != nil {
		return err
	}
	want := all[len(all)-1].version
	version, err := s.version(ctx, db)
	if dberr.IsNoDatabase(err) {
		return errNoDatabase
	}
	if dberr.IsMissingTable(err) {
		return fmt.Errorf("%w: there is no table %s", bus.ErrSchema, s.names.said("asyncmonolith_migrations"))
	}
	if err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	if version < want {
		return fmt.Errorf("%w: the tables of %s have version %d, version %d is needed", bus.ErrSchema, s.names.said("asyncmonolith_migrations"), version, want)
	}
	return s.checkTables(ctx, db, true)
}

func (s *Store) version(ctx context.Context, db bun.IDB) (version int, err error) {
	err = s.raw(ctx, db, readVersion).Scan(ctx, &version)
	return version, err
}

// migrations reads the embedded files in order.
func (s *Store) migrations() ([]migration, error) {
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

// expandedFS fills table names into the files it hands out.
type expandedFS struct {
	files  fs.FS
	expand func(string) string
}

// Open implements fs.FS.
func (e expandedFS) Open(name string) (fs.File, error) {
	f, err := e.files.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if dir, ok := f.(fs.ReadDirFile); ok && info.IsDir() {
		return expandedDir{dir, e.expandInfo}, nil
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	return &expandedFile{Reader: strings.NewReader(e.expand(string(text))), info: e.expandInfo(name, info)}, nil
}

// expandInfo gives a file the size that it has once it is expanded.
func (e expandedFS) expandInfo(name string, info fs.FileInfo) fs.FileInfo {
	text, err := fs.ReadFile(e.files, name)
	if err != nil { // a folder
		return info
	}
	return expandedInfo{info, int64(len(e.expand(string(text))))}
}

type expandedDir struct {
	fs.ReadDirFile
	expand func(name string, info fs.FileInfo) fs.FileInfo
}

// ReadDir implements fs.ReadDirFile. The migrations are one flat folder, so an
// entry's name is its path.
func (d expandedDir) ReadDir(n int) ([]fs.DirEntry, error) {
	entries, err := d.ReadDirFile.ReadDir(n)
	for i, entry := range entries {
		info, infoErr := entry.Info()
		if infoErr != nil {
			return nil, infoErr
		}
		entries[i] = fs.FileInfoToDirEntry(d.expand(entry.Name(), info))
	}
	return entries, err
}

type expandedFile struct {
	*strings.Reader
	info fs.FileInfo
}

func (f *expandedFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *expandedFile) Close() error               { return nil }

type expandedInfo struct {
	fs.FileInfo
	size int64
}

func (i expandedInfo) Size() int64 { return i.size }
