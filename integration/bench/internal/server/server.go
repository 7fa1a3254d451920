package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/cpu"
)

// Variable names the environment variable with the DSN of a server on which
// databases may be created.
const Variable = "ASYNCMONOLITH_TEST_POSTGRES"

// cleanUp bounds what still has to be done after the measurement was cancelled.
const cleanUp = 30 * time.Second

// Server is a PostgreSQL server. One goroutine may use it at a time.
type Server struct {
	dsn  *url.URL
	conn *pgx.Conn
	pid  int // that started all others; 0 when it is elsewhere
}

// Open connects to the server.
func Open(ctx context.Context, dsn string) (*Server, error) {
	if dsn == "" {
		return nil, fmt.Errorf("%s is not set: run the benchmarks with `make bench`, which starts a private PostgreSQL", Variable)
	}
	parsed, err := url.Parse(dsn)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Variable, err)
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	s := &Server{dsn: parsed, conn: conn}
	if err := s.checkDurable(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if strings.HasPrefix(conn.Config().Host, "/") { // a socket of this machine
		s.pid = cpu.Parent(int(conn.PgConn().PID()))
	}
	return s, nil
}

// CPU returns the processor time that the server has used, 0 when that is not known.
func (s *Server) CPU() time.Duration {
	if s.pid == 0 {
		return 0
	}
	return cpu.Family(s.pid)
}

// checkDurable refuses a server whose numbers would mean nothing.
func (s *Server) checkDurable(ctx context.Context) error {
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		var value string
		if err := s.conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return err
		}
		if value != "on" {
			return fmt.Errorf("the server has %s = %s: measurements are made with its default, on", name, value)
		}
	}
	return nil
}

// Version returns the server's version.
func (s *Server) Version(ctx context.Context) (version string, err error) {
	err = s.conn.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&version)
	return version, err
}

// Fresh creates an empty database. drop removes it, and waits until the server
// has written its checkpoint for that, so that the next measurement starts with
// little left to write.
func (s *Server) Fresh(ctx context.Context) (dsn string, drop func() error, err error) {
	name := "bench_" + strings.ToLower(rand.Text()[:12])
	if _, err := s.conn.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", nil, fmt.Errorf("create database: %w", err)
	}
	fresh := *s.dsn
	fresh.Path = "/" + name
	return fresh.String(), func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
		defer cancel()
		if err := s.reconnect(ctx); err != nil {
			return err
		}
		if _, err := s.conn.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			return fmt.Errorf("drop database: %w", err)
		}
		return nil
	}, nil
}

// reconnect mends the connection: a statement that was cancelled has closed it.
func (s *Server) reconnect(ctx context.Context) (err error) {
	if !s.conn.IsClosed() {
		return nil
	}
	if s.conn, err = pgx.ConnectConfig(ctx, s.conn.Config()); err != nil {
		return fmt.Errorf("reconnect: %w", err)
	}
	return nil
}

// Checkpoint writes out what is dirty.
func (s *Server) Checkpoint(ctx context.Context) error {
	_, err := s.conn.Exec(ctx, "CHECKPOINT")
	return err
}

// WAL returns how many bytes the server has ever written to its log.
func (s *Server) WAL(ctx context.Context) (bytes int64, err error) {
	err = s.conn.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&bytes)
	return bytes, err
}

// Close ends the connection.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanUp)
	defer cancel()
	return s.conn.Close(ctx)
}

// Analyze gathers the statistics that autovacuum would gather within a minute,
// so that no contender is measured with a planner that knows nothing.
func Analyze(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "ANALYZE")
	return errors.Join(err, conn.Close(ctx))
}

// Usage is what a server has done for a database, or in all.
type Usage struct {
	Commits int64 // in the database
	WAL     int64 // bytes, of the whole server
}

// UsageOf reads it. A connection's commits count a second later at the latest.
func UsageOf(ctx context.Context, dsn string) (u Usage, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return u, err
	}
	err = conn.QueryRow(ctx, "SELECT xact_commit, (pg_current_wal_insert_lsn() - '0/0')::bigint FROM pg_stat_database "+
		"WHERE datname = current_database()").Scan(&u.Commits, &u.WAL)
	return u, errors.Join(err, conn.Close(ctx))
}

// Count returns the number of rows of a table.
func Count(ctx context.Context, dsn, table string) (n int, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return 0, err
	}
	err = conn.QueryRow(ctx, "SELECT count(*) FROM "+pgx.Identifier{table}.Sanitize()).Scan(&n)
	return n, errors.Join(err, conn.Close(ctx))
}

// Pin opens a snapshot, as a backup or a report does, and keeps it for the given
// time or until release is called: meanwhile no dead row of the database can be
// removed.
func Pin(ctx context.Context, dsn string, d time.Duration) (release func() error, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	_, err = conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	if err == nil {
		_, err = conn.Exec(ctx, "SELECT count(*) FROM pg_class")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pin a snapshot: %w", err), conn.Close(ctx))
	}
	closeOnce := sync.OnceValue(func() error { return conn.Close(ctx) })
	timer := time.AfterFunc(d, func() { _ = closeOnce() })
	return func() error {
		timer.Stop()
		return closeOnce()
	}, nil
}
