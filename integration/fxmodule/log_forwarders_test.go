package fxmodule_test

import (
	"context"
	"strings"
	"testing"

	"github.com/uptrace/bun"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/fxmodule"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// letters is a publisher that hands on what it is given.
type letters chan broker.Record

func (l letters) Publish(_ context.Context, records []broker.Record) []error {
	for _, record := range records {
		l <- record
	}
	return nil
}

// TestFxRunsLogForwarders: given by a constructor or as a list, they find the application's log.
func TestFxRunsLogForwarders(t *testing.T) {
	t.Parallel()
	db, out := testdb.SQLite(t), make(letters, 10)
	of := func(name string) relay.LogForwarder {
		return relay.NewLogForwarder(name, out, relay.LogConfig{Source: "/shop", Routes: []relay.Route{relay.To[order]("orders")}})
	}
	var log *eventlog.Log
	app := fxtest.New(t, fx.Supply(db), fxmodule.Module, fxmodule.Migrate(), fxmodule.EventLog(eventlog.Event[order]()),
		fxmodule.LogForwarders(func() relay.LogForwarder { return of("one") }, []relay.LogForwarder{of("two")}), fx.Populate(&log)).RequireStart()
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
	if err := fx.New(fx.Supply(testdb.SQLite(t)), fxmodule.Module, fxmodule.LogForwarders(of("three")), fx.NopLogger).Err(); err == nil {
		t.Error("without an event log: got no error, want one")
	}
}

// TestFxDoesNotStartWhatRelaysRefuse: the application does not start, rather than end as soon as it has.
func TestFxDoesNotStartWhatRelaysRefuse(t *testing.T) {
	t.Parallel()
	db, out := testdb.SQLite(t), make(letters, 10)
	with := func(shards int) *fx.App {
		return fx.New(fx.NopLogger, fx.Supply(db), fxmodule.Module, fxmodule.Migrate(), fxmodule.EventLog(eventlog.Event[order]()),
			fxmodule.LogForwarders(relay.NewLogForwarder("one", out,
				relay.LogConfig{Source: "/shop", Shards: shards, Routes: []relay.Route{relay.To[order]("orders")}})))
	}
	for _, test := range []struct {
		shards int
		want   string
	}{{1, ""}, {2, "Shards 2: it has 1 already"}} {
		app := with(test.shards)
		err := app.Start(t.Context())
		if err == nil != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("start with %d shards: got error %v, want %q", test.shards, err, test.want)
		}
		if err := app.Stop(t.Context()); err != nil {
			t.Errorf("stop with %d shards: got error %v", test.shards, err)
		}
	}
}
