package fxmodule_test

import (
	"context"
	"testing"

	"github.com/uptrace/bun"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/fxmodule"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// letters is a publisher that hands on what it is given.
type letters chan relay.Record

func (l letters) Publish(_ context.Context, records []relay.Record) []error {
	for _, record := range records {
		l <- record
	}
	return nil
}

// TestFxRunsLogRelays: given by a constructor or as a list, they find the application's log.
func TestFxRunsLogRelays(t *testing.T) {
	t.Parallel()
	db, out := testdb.SQLite(t), make(letters, 10)
	of := func(name string) relay.LogRelay {
		return relay.Log(name, out, relay.Source("/shop"), relay.Route[order]("orders"))
	}
	var log *eventlog.Log
	app := fxtest.New(t, fx.Supply(db), fxmodule.Module, fxmodule.Migrate(), fxmodule.EventLog(eventlog.Event[order]()),
		fxmodule.Relays(func() relay.LogRelay { return of("one") }, []relay.LogRelay{of("two")}), fx.Populate(&log)).RequireStart()
	err := log.RunInTx(t.Context(), db, func(ctx context.Context, tx bun.Tx) error {
		_, err := log.Append(ctx, tx, "order-1", eventlog.NoStream, order{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{(<-out).ID: true, (<-out).ID: true}
	if len(ids) != 2 {
		t.Errorf("got ids %v, want one of each relay", ids)
	}
	app.RequireStop()
	if err := fx.New(fx.Supply(testdb.SQLite(t)), fxmodule.Module, fxmodule.Relays(of("three")), fx.NopLogger).Err(); err == nil {
		t.Error("without an event log: got no error, want one")
	}
}
