package testapp

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/poisoned"
)

// Row is a message as the tests look at it.
type Row struct {
	ID           int64  `bun:"id"`
	MessageID    string `bun:"message_id"`
	ConsumerType string `bun:"consumer_type"`
	PayloadType  string `bun:"payload_type"`
	Payload      string `bun:"payload"`
	Headers      string `bun:"headers"`
	InsertID     string `bun:"insert_id"`
	Attempts     int    `bun:"attempts"`
	Crashes      int    `bun:"crashes"`
	Errors       string `bun:"errors"`
	Reason       string `bun:"reason"`
}

// Pending reads the messages that wait.
func (a *App) Pending() []Row { a.Helper(); return a.rows("consumer_messages", "''") }

// Poisoned reads the messages that are poisoned.
func (a *App) Poisoned() []Row { a.Helper(); return a.rows("poisoned_messages", "reason") }

func (a *App) rows(table, reason string) (rows []Row) {
	a.Helper()
	err := reading(func() error {
		return a.DB.NewRaw("SELECT id, message_id, consumer_type, payload_type, payload, headers, insert_id, attempts, crashes, errors, "+
			reason+" AS reason FROM "+table+" ORDER BY id").Scan(context.WithoutCancel(a.Context()), &rows)
	})
	if err != nil {
		a.Fatalf("read %s: %v", table, err)
	}
	return rows
}

// Count is the number that a query returns.
func (a *App) Count(query string, args ...any) (n int) {
	a.Helper()
	if err := reading(func() error { return a.DB.NewRaw(query, args...).Scan(context.WithoutCancel(a.Context()), &n) }); err != nil {
		a.Fatalf("%s: %v", query, err)
	}
	return n
}

// Empty tells whether nothing waits or is claimed any more.
func (a *App) Empty() bool {
	return a.Count("SELECT (SELECT count(*) FROM consumer_messages) + (SELECT count(*) FROM message_claims)") == 0
}

// NowOf is the clock of a database, as it stores instants, as SQL.
func NowOf(db *bun.DB) string {
	switch db.Dialect().Name() {
	case dialect.PG:
		return "statement_timestamp()"
	case dialect.MySQL:
		return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	}
	return "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
}

// In is an instant on the database's clock, d from now, as SQL.
func In(db *bun.DB, d time.Duration) string {
	if db.Dialect().Name() == dialect.PG {
		return fmt.Sprintf("statement_timestamp() + %d * interval '1 microsecond'", d.Microseconds())
	}
	return fmt.Sprintf("%s + %d", NowOf(db), d.Microseconds())
}

// Exec runs a statement of the test's own.
func (a *App) Exec(query string, args ...any) {
	a.Helper()
	err := Insist(func() error {
		_, err := a.DB.NewRaw(query, args...).Exec(context.WithoutCancel(a.Context()))
		return err
	})
	if err != nil {
		a.Fatalf("%s: %v", query, err)
	}
}

// Fill fills the table with due messages of consumer c.
func (a *App) Fill(rows int, payloadType string) {
	a.Helper()
	const columns = "INSERT INTO consumer_messages (message_id, consumer_type, payload_type, payload, created_at, available_after) "
	for start := 0; start < rows; start += 20_000 {
		switch a.DB.Dialect().Name() {
		case dialect.PG:
			a.Exec(
				columns+"SELECT gen_random_uuid(), 'c', ?, '{}', now(), now() - interval '1 day' + i * interval '1 ms' FROM "+
					"generate_series(?::int, ?::int) i",
				payloadType, start, start+19_999,
			)
		case dialect.SQLite:
			a.Exec(columns+`WITH RECURSIVE n(i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n WHERE i < ?)
				SELECT printf('%032d', i), 'c', ?, '{}', 0, i FROM n`, start, start+19_999, payloadType)
		default:
			a.Exec(columns+"SELECT UUID(), 'c', ?, '{}', 0, seq + ? FROM seq_1_to_20000", payloadType, start)
		}
	}
}

// NewPoisoned makes an application with n poisoned messages of one consumer, whose
// ids are 1 to n.
func NewPoisoned(t *testing.T, db *bun.DB, n int, consumers ...bus.Consumer) (*App, *poisoned.Store) {
	t.Helper()
	a := New(t, db, consumers...)
	store, err := poisoned.NewStore(a.Registry)
	if err != nil {
		t.Fatal(err)
	}
	a.ProduceMany(n)
	now := NowOf(db)
	a.Exec(`INSERT INTO poisoned_messages (id, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at,
		available_after, attempts, crashes, errors, poisoned_at, reason)
		SELECT id, message_id, consumer_type, payload_type, payload, '{"k":"v"}', insert_id, created_at, available_after, 5, 1,
		'[{"attempt":5,"at":"2026-01-02T03:04:05Z","error":"no luck"}]', ` + now + `, 'attempt 5 of 5 failed' FROM consumer_messages`)
	a.Exec("DELETE FROM consumer_messages")
	return a, store
}

// Insist repeats a statement of the test's own for as long as it loses conflicts,
// which it may where a stricter isolation is the database's default.
func Insist(statement func() error) error {
	for {
		if err := statement(); !dberr.IsConflict(err) {
			return err
		}
	}
}

// reading also repeats a statement a few times whose connection is lost, as the tests
// lose them on purpose: the pool may hold several.
func reading(statement func() error) (err error) {
	for range 20 {
		if err = Insist(statement); !dberr.IsUnavailable(err) {
			break
		}
	}
	return err
}
