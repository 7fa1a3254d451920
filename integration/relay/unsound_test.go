package relay_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// deaf is an error of which the methods panic, being a nil pointer.
type deaf struct{ cause error }

func (d *deaf) Error() string { return d.cause.Error() }
func (d *deaf) Unwrap() error { return d.cause }

const deafIn = "ASYNCMONOLITH_TEST_UNSOUND_ERROR"

// TestErrorsWhoseMethodsPanic end no process: each is tried in a process of its own.
func TestErrorsWhoseMethodsPanic(t *testing.T) {
	if where := os.Getenv(deafIn); where != "" {
		beDeaf(t, where)
		return
	}
	t.Parallel()
	for _, where := range []string{"forwarder: publisher", "forwarder: MapPayload", "log forwarder: publisher",
		"log forwarder: MapPayload", "log forwarder: Telemetry",
		"receiver: layer", "receiver: Telemetry", "receiver: MapRecord", "receiver: subscriber"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestErrorsWhoseMethodsPanic$", "-test.timeout=60s", "-test.v")
			child.Env = append(os.Environ(), deafIn+"="+where)
			if out, err := child.CombinedOutput(); err != nil {
				t.Errorf("the process ended with %v\n%.1500s", err, out)
			}
		})
	}
}

func beDeaf(t *testing.T, where string) {
	db := testdb.SQLite(t)
	var called atomic.Int64
	say := func() error { called.Add(1); return (*deaf)(nil) }
	bad := func(bus.ProduceFunc) bus.ProduceFunc { return func(context.Context, *bus.Batch) error { return say() } }
	b := newBroker()
	kind, of, _ := strings.Cut(where, ": ")
	if of == "publisher" {
		b.failWith(func(broker.Record) error { return say() })
	}
	switch kind {
	case "forwarder":
		config := relay.Config{Source: shop, Routes: []relay.Route{relay.To[order]("orders")}}
		if of == "MapPayload" {
			config.Routes = []relay.Route{relay.To[order]("orders", relay.MapPayload(func(o order) (order, error) { return o, say() }))}
		}
		a := testapp.New(t, db, relay.NewForwarder("to-broker", b, config, bus.AttemptDelay(1), bus.MaxAttempts(2)))
		a.ProduceMany(3)
		a.Start(testapp.Fast())
		testapp.Eventually(t, "they are poisoned", func() bool { return a.Empty() && len(a.Poisoned()) == 3 })
	case "log forwarder":
		config := relay.LogConfig{Source: "/bank", AttemptDelay: 1,
			Routes: []relay.Route{relay.To[opened]("accounts"), relay.To[deposited]("accounts")}}
		if of == "MapPayload" {
			mapping := relay.MapPayload(func(d deposited) (deposited, error) { return d, say() })
			config.Routes[1] = relay.To[deposited]("accounts", mapping)
		}
		runnerConfig := relay.RunnerConfig{Logger: slog.New(slog.DiscardHandler)}
		if of == "Telemetry" {
			runnerConfig.Telemetry = bad
		}
		l := newLedger(t, db)
		l.deposit(1, 1)
		l.runsWith(runnerConfig, relay.NewLogForwarder("ledger", b, config))
		testapp.Eventually(t, "it is called", func() bool { return called.Load() > 1 })
	case "receiver":
		b.put(event("1", order{ID: "1"}))
		options := []inbox.Option{inbox.Accept[order]()}
		if of == "MapRecord" {
			options = append(options, inbox.MapRecord(func(r broker.Record) (broker.Record, error) { return r, say() }))
		}
		sub := b.subscribe()
		receiver := inbox.NewReceiver("from-shop", subscriber(func(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
			if of == "subscriber" {
				return say()
			}
			return sub.Subscribe(ctx, func(ctx context.Context, records []broker.Record) error { // on a goroutine of its own
				done := make(chan error)
				go func() { done <- fn(ctx, records) }()
				return <-done
			})
		}), options...)
		a := testapp.New(t, db, testapp.Consumed("ship"), receiver.Consumer())
		config, runnerConfig := outbox.ProducerConfig{}, inbox.RunnerConfig{Logger: slog.New(slog.DiscardHandler)}
		switch of {
		case "layer":
			config.Middleware = []bus.ProduceMiddleware{bad}
		case "Telemetry":
			runnerConfig.Telemetry = bad
		}
		producer := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry, config))
		runner := testapp.Must[*inbox.Runner](t)(inbox.NewRunner(a.DB, a.Registry, producer, runnerConfig, receiver))
		s := &service{app: a, runner: runner, stop: func() {}}
		s.run()
		s.Start(testapp.Fast())
		testapp.Eventually(t, "it is called", func() bool { return called.Load() > 0 })
		testapp.Eventually(t, "it is dealt with", func() bool { got := s.stats(); return got.Paused != "" || got.Parked > 0 })
	}
}
