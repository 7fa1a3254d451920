package fxmodule_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/fxmodule"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestFxNamesMistakesFirstAndInOneOrder makes mistakes in many consumers, which fx
// shuffles.
func TestFxNamesMistakesFirstAndInOneOrder(t *testing.T) {
	t.Parallel()
	var consumers []any
	for i := range 8 {
		consumers = append(consumers, func() bus.Consumer {
			return bus.Consume[order](fmt.Sprint("bad-", i), nil, bus.Timeout(-1),
				func(c *bus.ConsumerConfig) { c.MaxAttempts, c.Concurrency = -1, -1 })
		})
	}
	db, first := testdb.SQLite(t), ""
	for range 5 {
		err := fx.New(fx.NopLogger, fx.Supply(db), fxmodule.Module, fxmodule.Consumers(consumers...)).Err()
		if err == nil || !strings.HasPrefix(err.Error(), `bus: consumer "bad-0": `) {
			t.Fatalf("got %v, want the first mistake at once", err)
		}
		if first == "" {
			first = err.Error()
		}
		if err.Error() != first {
			t.Errorf("got %v, want it like before: %s", err, first)
		}
	}
}

func TestFxTakesOnPoison(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	told := make(chan string, 1)
	hook := func() middleware.OnPoison {
		return func(_ context.Context, m *bus.Message, _ string, err error) { told <- m.Consumer + ": " + err.Error() }
	}
	consumer := bus.Consume("c", func(context.Context, order) error { return bus.Permanent(errors.New("no luck")) })
	app := fx.New(fx.NopLogger, fx.Supply(db), fx.Provide(hook), fxmodule.Module, fxmodule.Migrate(), fxmodule.Consumers(consumer),
		fx.Invoke(func(lifecycle fx.Lifecycle, p *outbox.Producer) {
			lifecycle.Append(fx.StartHook(func(ctx context.Context) error { return testapp.Second(p.Produce(ctx, db, order{})) }))
		}))
	testapp.OK(t, app.Start(t.Context()))
	if got := <-told; got != "c: no luck" {
		t.Errorf("told: got %q, want the consumer and its error", got)
	}
	if err := app.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	both := fx.New(fx.NopLogger, fx.Supply(db, outbox.ProcessorConfig{Middleware: []bus.Middleware{middleware.Recover()}}), fx.Provide(hook),
		fxmodule.Module, fxmodule.Consumers(consumer)).Err()
	if both == nil || !strings.Contains(both.Error(), "middleware.OnPoison") {
		t.Errorf("beside a whole chain: got %v, want it refused", both)
	}
}
