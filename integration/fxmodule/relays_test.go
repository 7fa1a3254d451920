package fxmodule_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/uptrace/bun"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/fxmodule"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
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
	}{{1, ""}, {2, "Shards 2: the forwarder already has 1"}} {
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

// postbox delivers one record, and then waits.
type postbox struct{ record broker.Record }

func (p postbox) Subscribe(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
	if err := fn(ctx, []broker.Record{p.record}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// TestFxRunsReceivers: a receiver, given by a constructor, is run, and so is its consumer of
// what cannot be taken.
func TestFxRunsReceivers(t *testing.T) {
	t.Parallel()
	consumed := make(chan order, 1)
	attributes := map[string]string{"specversion": "1.0", "id": "1", "source": "/shop", "type": order{}.PayloadType()}
	good := postbox{broker.Record{Attributes: attributes, ContentType: "application/json", Body: []byte(`{}`)}}
	bad := postbox{broker.Record{Body: []byte("no event")}}
	var runner *inbox.Runner
	var registry *bus.Registry
	app := fxtest.New(t, fx.Supply(testdb.SQLite(t)), fxmodule.Module, fxmodule.Migrate(),
		fxmodule.Receivers(func() inbox.Receiver { return inbox.NewReceiver("from-shop", good, inbox.Accept[order]()) }),
		fxmodule.Receivers([]inbox.Receiver{inbox.NewReceiver("from-elsewhere", bad, inbox.Accept[order]())}),
		fxmodule.Consumers(bus.Consume("c", func(_ context.Context, o order) error { consumed <- o; return nil })),
		fx.Populate(&runner, &registry)).RequireStart()
	<-consumed
	for _, name := range []string{"receive:from-shop", "receive:from-elsewhere"} {
		if _, ok := registry.Consumer(name); !ok {
			t.Errorf("registry: got no consumer %q, want one", name)
		}
	}
	app.RequireStop()
	stats, err := runner.Stats(t.Context())
	if err != nil || len(stats) != 2 || stats[1].Accepted != 1 {
		t.Errorf("stats: got %+v, error %v, want one new record of the second", stats, err)
	}
	app = fxtest.New(t, fx.Supply(testdb.SQLite(t)), fxmodule.Module, fx.Populate(&runner))
	if app.Err() != nil || runner != nil {
		t.Errorf("without receivers: got runner %v, error %v, want none", runner, app.Err())
	}
}

// TestFxReportsMistakesOfReceivers: what cannot be run is an error of the application.
func TestFxReportsMistakesOfReceivers(t *testing.T) {
	t.Parallel()
	for want, option := range map[string]fx.Option{
		"inbox.Receiver, []inbox.Receiver or a": fxmodule.Receivers(7),
		"the subscriber is nil":                 fxmodule.Receivers(inbox.NewReceiver("r", nil, inbox.Accept[order]())),
		"not as a zero value":                   fxmodule.Receivers(inbox.Receiver{}),
		"no consumer is registered":             fxmodule.Receivers(inbox.NewReceiver("r", postbox{}, inbox.Accept[order]())),
		"provide the value":                     fx.Supply(&inbox.RunnerConfig{}),
	} {
		app := fx.New(fx.Supply(testdb.SQLite(t)), fxmodule.Module, option, fx.NopLogger)
		if err := app.Err(); err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("got error %v, want %q in it", err, want)
		}
	}
}
