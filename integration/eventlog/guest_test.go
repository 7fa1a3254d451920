package eventlog_test

import (
	"context"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// A projection's function may set search_path and a role for its transaction: the
// checkpoint that moves is the one that was locked.
// Promise: search-path
func TestCheckpointsIgnoreTheSearchPathOfTheHandler(t *testing.T) {
	db := testdb.OpenPostgres(t, testdb.EmptyPostgresDSN(t, "search_path=tenant_a"))
	for _, schema := range []string{"tenant_a", "tenant_b"} {
		testapp.OK(t, testapp.Second(db.ExecContext(t.Context(), "CREATE SCHEMA "+schema)))
	}
	testapp.OK(t, outbox.Migrate(t.Context(), db, bus.Tables{Schema: "tenant_b"}))
	a := newApp(t, db)
	a.exec("CREATE TABLE tenant_b.effects (n int)")
	a.exec("GRANT USAGE ON SCHEMA tenant_b TO pg_monitor") // a role that every server has
	a.exec("GRANT ALL ON tenant_b.effects TO pg_monitor")
	reset := 0
	astray := func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.ExecContext(ctx, "SET LOCAL ROLE pg_monitor; SET LOCAL search_path = tenant_b")
		return err
	}
	runner, err := projection.NewRunner(db, a.log, projection.RunnerConfig{}, projection.Projection{
		Name: "tenants", BatchSize: 3, OnError: projection.ParkStream, MaxAttempts: 1,
		Reset: func(ctx context.Context, tx bun.Tx) error {
			reset++
			if err := astray(ctx, tx); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "DELETE FROM effects")
			return err
		},
		On: []projection.Handler{projection.On(func(ctx context.Context, tx bun.Tx, e moved) error {
			if e.Amount < 0 {
				return bus.Permanent(errRefused)
			}
			if err := astray(ctx, tx); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (?)", e.Amount)
			return err
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		a.append("account-a", eventlog.ExpectedVersion(i), moved{1})
	}
	a.append("account-b", eventlog.NoStream, moved{-1}, moved{1}) // parked, and its stream with it
	for range 2 {
		if _, err := runner.CatchUp(t.Context()); err != nil && !strings.Contains(err.Error(), errRefused.Error()) {
			t.Fatalf("catch up: %v", err)
		}
		if _, err := runner.CatchUp(t.Context()); err != nil {
			t.Fatalf("catch up: %v", err)
		}
		if n := a.count("SELECT count(*) FROM tenant_b.effects"); n != 10 {
			t.Errorf("events applied: got %d, want each of 10 once", n)
		}
		parked, err := runner.Parked(t.Context(), "tenants", 10)
		if err != nil || len(parked) != 2 {
			t.Errorf("parked: got %v, error %v, want two of a stream", parked, err)
		}
		if err := runner.Rebuild(t.Context(), "tenants"); err != nil {
			t.Fatalf("rebuild: %v", err)
		}
	}
	if reset != 2 {
		t.Errorf("resets: got %d, want 2", reset)
	}
}
