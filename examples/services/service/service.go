// Package service is what both services have in common: settings, a database, and a line to the
// program that has started them, which wants to tell what happens.
package service

import (
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// Settings of a service come from its environment.
type Settings struct {
	Name     string // of the service; empty in the program that starts them
	Database string // the address of a PostgreSQL, or the path of a file for SQLite
	Broker   string // the address of NATS
	HoldAt   int    // see package shipping
}

// FromEnv reads the settings.
func FromEnv() Settings {
	holdAt, _ := strconv.Atoi(os.Getenv("SERVICE_HOLD_AT")) // 0 unless it is a number
	return Settings{os.Getenv("SERVICE"), os.Getenv("SERVICE_DATABASE"), os.Getenv("SERVICE_BROKER"), holdAt}
}

// Env is what FromEnv reads.
func (s Settings) Env() []string {
	return []string{
		"SERVICE=" + s.Name, "SERVICE_DATABASE=" + s.Database, "SERVICE_BROKER=" + s.Broker,
		"SERVICE_HOLD_AT=" + strconv.Itoa(s.HoldAt),
	}
}

// Open opens a database.
func Open(database string) (*bun.DB, error) {
	if strings.HasPrefix(database, "postgres") {
		config, err := pgx.ParseConfig(database)
		if err != nil {
			return nil, err
		}
		config.DefaultQueryExecMode = pgx.QueryExecModeExec // bun writes values into the SQL: nothing to cache
		return bun.NewDB(stdlib.OpenDB(*config), pgdialect.New()), nil
	}
	conns, err := sql.Open("sqlite", "file:"+database+"?_txlock=immediate&_pragma=busy_timeout(15000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, err
	}
	return bun.NewDB(conns, sqlitedialect.New()), nil
}

// Logger logs what is wrong. The rest is told.
func Logger(s Settings) *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})).With("service", s.Name)
}

// Event is what a service tells, one line on its standard output.
type Event struct {
	Placed int   `json:",omitempty"` // so many orders are placed
	Held   int   `json:",omitempty"` // so many records are taken over and will not be acknowledged
	Span   *Span `json:",omitempty"` // this has ended
}

// Tell writes a line, in one piece. Nobody minds if nobody listens any more.
func Tell(e Event) {
	if line, err := json.Marshal(e); err == nil {
		_, _ = os.Stdout.Write(append(line, '\n'))
	}
}

// UntilStdinEnds ends the context it returns when the standard input ends. That is how a service
// is told to stop, and it does so too when the program that started it is no more.
func UntilStdinEnds(ctx context.Context) context.Context {
	ctx, stop := context.WithCancel(ctx)
	go func() { // ends with the process at the latest
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return ctx
}
