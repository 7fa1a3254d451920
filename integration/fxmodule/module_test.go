package fxmodule_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/fxmodule"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

func TestFxWorksWithOnlyADatabase(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		options := fx.Options(fx.Supply(db), fxmodule.Module, fxmodule.Migrate())
		if err := fx.ValidateApp(options, fx.NopLogger); err != nil {
			t.Fatalf("validate: %v", err)
		}
		fxtest.New(t, options, fx.Invoke(func(*bus.Registry, *outbox.Producer, *outbox.Processor, *schedule.Scheduler,
			*schedule.Processor, *poison.Store, *admin.Client) {
		})).RequireStart().RequireStop()
	})
}

func TestFxRunsConsumersOfSeveralModules(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var mu sync.Mutex
		ran := map[string]int{}
		consumer := func(name string) bus.Consumer {
			return bus.Consume(name, func(context.Context, order) error {
				mu.Lock()
				defer mu.Unlock()
				ran[name]++
				return nil
			})
		}
		var producer *outbox.Producer
		app := fxtest.New(t, fx.Supply(db), fxmodule.Module, fxmodule.Migrate(),
			fxmodule.Consumers(consumer("value"), func() bus.Consumer { return consumer("constructor") }),
			fx.Module("other", fxmodule.Consumers(
				func(*bun.DB) ([]bus.Consumer, error) {
					return []bus.Consumer{consumer("list-1"), consumer("list-2")}, nil
				})),
			fx.Populate(&producer))
		app.RequireStart()
		testapp.OK(t, testapp.Second(producer.Produce(t.Context(), db, order{})))
		testapp.Eventually(t, "all four run", func() bool { mu.Lock(); defer mu.Unlock(); return len(ran) == 4 })
		app.RequireStop()
	})
}

func TestFxNamesAWrongArgument(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken constructor")
	var nothing func() bus.Consumer
	for name, test := range map[string]struct {
		argument any
		want     string
	}{
		"a string":                   {"consumer", "Consumers argument 1 (string) is not a constructor"},
		"nothing":                    {nil, "Consumers argument 1 (<nil>) is not a constructor"},
		"a nil constructor":          {nothing, "Consumers argument 1 (func() bus.Consumer) is nil"},
		"a constructor of something": {func() int { return 0 }, "returns int"},
		"too many results":           {func() (bus.Consumer, int, error) { return bus.Consumer{}, 0, nil }, "returns 3 values"},
		"no error":                   {func() (bus.Consumer, int) { return bus.Consumer{}, 0 }, "not an error"},
		"a constructor that fails":   {func() (bus.Consumer, error) { return bus.Consumer{}, broken }, "broken constructor"},
		"a consumer with a mistake":  {bus.Consume[order]("", nil), `name "" is empty`},
	} {
		good := bus.Consume("c", func(context.Context, refund) error { return nil })
		app := fx.New(fx.NopLogger, fx.Supply(testdb.SQLite(t)), fxmodule.Module, fxmodule.Consumers(good, test.argument))
		if err := app.Err(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

func TestFxKeepsTheOrderOfMiddleware(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	testapp.OK(t, outbox.Migrate(t.Context(), db, bus.Tables{}))
	for range 100 {
		var sent, consumed []string
		sending := func(name string) bus.ProduceMiddleware {
			return func(next bus.ProduceFunc) bus.ProduceFunc {
				return func(ctx context.Context, b *bus.Batch) error {
					sent = append(sent, name)
					return next(ctx, b)
				}
			}
		}
		consuming := func(name string) bus.Middleware {
			return func(next bus.Handler) bus.Handler {
				return func(ctx context.Context, m *bus.Message) error {
					consumed = append(consumed, name)
					return next(ctx, m)
				}
			}
		}
		var producer *outbox.Producer
		var processor *outbox.Processor
		app := fx.New(fx.NopLogger, fx.Supply(db), fxmodule.Module,
			fxmodule.Consumers(bus.Consume("c", func(context.Context, order) error { return nil })),
			fx.Provide(
				func() fxmodule.ProduceMiddleware {
					return fxmodule.ProduceMiddleware{sending("a"), sending("b"), sending("c")}
				},
				func() fxmodule.ConsumeMiddleware {
					return fxmodule.ConsumeMiddleware{consuming("x"), consuming("y"), consuming("z")}
				}),
			fx.Populate(&producer, &processor))
		testapp.OK(t, app.Err())
		testapp.OK(t, testapp.Second(producer.Produce(t.Context(), db, order{})))
		if ran, err := processor.ProcessNext(t.Context()); !ran || err != nil {
			t.Fatalf("step: got %t, %v, want a run", ran, err)
		}
		if !slices.Equal(sent, []string{"a", "b", "c"}) || !slices.Equal(consumed, []string{"x", "y", "z"}) {
			t.Fatalf("order: got %v and %v, want a b c and x y z", sent, consumed)
		}
	}
}

func TestFxConsumeChainIsRightAroundTheConsumer(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, what)
	}
	layer := func(name string) bus.Middleware {
		return func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, m *bus.Message) error {
				note(name)
				if _, limited := ctx.Deadline(); !limited {
					note("no deadline")
				}
				return next(ctx, m)
			}
		}
	}
	db := testdb.SQLite(t)
	var producer *outbox.Producer
	app := fxtest.New(t, fx.Supply(db), fxmodule.Module, fxmodule.Migrate(),
		fxmodule.Consumers(bus.Consume("c", func(context.Context, order) error { note("consumer"); return nil })),
		fx.Provide(func() fxmodule.ConsumeMiddleware { return fxmodule.ConsumeMiddleware{layer("outer"), layer("inner")} }),
		fx.Populate(&producer)).RequireStart()
	testapp.OK(t, testapp.Second(producer.Produce(t.Context(), db, order{})))
	testapp.Eventually(t, "it runs", func() bool { mu.Lock(); defer mu.Unlock(); return slices.Contains(seen, "consumer") })
	app.RequireStop()
	if want := []string{"outer", "inner", "consumer"}; !slices.Equal(seen, want) {
		t.Errorf("got %v, want %v, inside the timeout", seen, want)
	}
}

func TestFxStartFailsWithoutTables(t *testing.T) {
	t.Parallel()
	app := fx.New(fx.NopLogger, fx.Supply(testdb.SQLite(t)), fxmodule.Module)
	if err := app.Start(t.Context()); !errors.Is(err, outbox.ErrSchemaOutdated) {
		t.Errorf("start: got %v, want ErrSchemaOutdated", err)
	}
}

func TestFxRefusesTwoChains(t *testing.T) {
	t.Parallel()
	app := fx.New(fx.NopLogger, fx.Supply(testdb.SQLite(t)), fxmodule.Module,
		fx.Supply(outbox.ProcessorConfig{Middleware: []bus.Middleware{}}),
		fx.Provide(func() fxmodule.ConsumeMiddleware { return fxmodule.ConsumeMiddleware{} }))
	if err := app.Err(); err == nil || !strings.Contains(err.Error(), "one of them is allowed") {
		t.Errorf("got %v, want both chains refused", err)
	}
	app = fx.New(fx.NopLogger, fx.Supply(testdb.SQLite(t), fxmodule.OuterMiddleware{}), fxmodule.Module,
		fx.Supply(outbox.ProcessorConfig{Middleware: []bus.Middleware{}}))
	if err := app.Err(); err == nil || !strings.Contains(err.Error(), "both fxmodule.OuterMiddleware and") {
		t.Errorf("got %v, want both chains refused", err)
	}
}

// TestFxOuterChainSeesTheOutcome: it is outside of the layers that decide, and in its order.
func TestFxOuterChainSeesTheOutcome(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	var seen []string
	outer := func(name string) bus.Middleware {
		return func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, m *bus.Message) error {
				err := next(ctx, m)
				seen = append(seen, fmt.Sprint(name, ": ", bus.OutcomeOf(err).Outcome))
				return err
			}
		}
	}
	var producer *outbox.Producer
	var processor *outbox.Processor
	app := fx.New(fx.NopLogger, fx.Supply(db, fxmodule.OuterMiddleware{outer("a"), outer("b")}), fxmodule.Module,
		fxmodule.Consumers(bus.Consume("c", func(context.Context, order) error { return errors.New("no") })),
		fx.Populate(&producer, &processor))
	testapp.OK(t, app.Err())
	testapp.OK(t, outbox.Migrate(t.Context(), db, bus.Tables{}))
	testapp.OK(t, testapp.Second(producer.Produce(t.Context(), db, order{})))
	if ran, err := processor.ProcessNext(t.Context()); !ran || err != nil {
		t.Fatalf("step: got %t, %v, want a run", ran, err)
	}
	if want := []string{"b: " + bus.Retried.String(), "a: " + bus.Retried.String()}; !slices.Equal(seen, want) {
		t.Errorf("got %v, want %v", seen, want)
	}
}

// TestFxStopDrainsWithinTheStopTimeout runs a consumer that outlives the stop
// timeout: it is cancelled in time, and hooks that stop later still run.
func TestFxStopDrainsWithinTheStopTimeout(t *testing.T) {
	t.Parallel()
	const stopTimeout = 10 * time.Second
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var running, cancelled, closed atomic.Bool
		endless := bus.Consume("slow", func(ctx context.Context, _ order) error {
			running.Store(true)
			<-ctx.Done()
			cancelled.Store(context.Cause(ctx) == bus.ErrStopping)
			return ctx.Err()
		}, bus.Timeout(time.Hour))
		var producer *outbox.Producer
		service := fxtest.New(t, fx.StopTimeout(stopTimeout),
			fx.Provide(func(lifecycle fx.Lifecycle) *bun.DB {
				lifecycle.Append(fx.StopHook(func() { closed.Store(true) }))
				return db
			}),
			fxmodule.Module, fxmodule.Migrate(), fxmodule.Consumers(endless),
			fx.Supply(outbox.ProcessorConfig{DrainTimeout: time.Hour}), fx.Populate(&producer)).RequireStart()
		testapp.OK(t, testapp.Second(producer.Produce(t.Context(), db, order{})))
		testapp.Eventually(t, "it runs", running.Load)
		ctx, cancel := context.WithTimeout(t.Context(), stopTimeout)
		defer cancel()
		err := service.Stop(ctx)
		// The machine was slow: there was no time to write the outcome.
		slow := err != nil && (strings.Contains(err.Error(), "outbox: settle: ") ||
			strings.Contains(err.Error(), "still running: processor of messages"))
		if err != nil && !slow {
			t.Errorf("stop: got %v, want no error", err)
		}
		if !cancelled.Load() || !closed.Load() {
			t.Errorf("consumer cancelled %t, later hook ran %t, want both", cancelled.Load(), closed.Load())
		}
		if slow {
			return // its lease gives the message back
		}
		a := &app{T: t, DB: db}
		if n := a.Count("SELECT count(*) FROM consumer_messages WHERE attempts = 0 AND crashes = 0"); n != 1 {
			t.Errorf("messages given back: got %d, want 1", n)
		}
	})
}

// TestFxPollsQuietly has a traced database: polls must not make spans.
func TestFxPollsQuietly(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var polls, traced atomic.Int64
		seen := testapp.QueryHook(func(ctx context.Context, _ string) {
			if polls.Add(1); !trace.SpanContextFromContext(ctx).IsValid() || trace.SpanContextFromContext(ctx).IsSampled() {
				traced.Add(1)
			}
		})
		app := fxtest.New(t, fx.Supply(db), fxmodule.Module, fxmodule.Migrate())
		app.RequireStart().RequireStop() // the tables are there
		service := fxtest.New(t, fx.Supply(db.WithQueryHook(seen)), fxmodule.Module)
		service.RequireStart()
		begun := polls.Load() // start-up checks have a context of the application's
		before := traced.Load()
		testapp.Eventually(t, "processors poll", func() bool { return polls.Load() > begun+3 })
		if n := traced.Load() - before; n > 0 {
			t.Errorf("polls in a context that may be sampled: got %d of %d, want none", n, polls.Load()-begun)
		}
		service.RequireStop()
	})
}

// TestFxCarriesOutOperations: what is started at the service that the module provides is done by it.
func TestFxCarriesOutOperations(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	var service *ops.Service
	var producer *outbox.Producer
	app := fxtest.New(t, fx.Supply(db), fxmodule.Module, fxmodule.Migrate(), fx.Supply(ops.Config{UndoWindow: time.Millisecond}),
		fxmodule.Consumers(bus.Consume("c", func(context.Context, order) error { return bus.Permanent(errors.New("never")) })),
		fx.Populate(&service, &producer)).RequireStart()
	defer app.RequireStop()
	ctx, s := t.Context(), operator.As(service, ops.Principal{Name: "ada", Role: ops.Administrator})
	testapp.OK(t, testapp.Second(producer.Produce(ctx, db, order{})))
	poisoned := func() int { return testapp.Must[int](t)(s.Poisoned().Count(ctx, poison.Filter{Consumer: "c"})) }
	testapp.Eventually(t, "it is poisoned", func() bool { return poisoned() == 1 })
	var o ops.Operation
	var err error
	testapp.Eventually(t, "it is older than the plan", func() bool { // SQLite counts milliseconds
		o, err = s.Operations().Plan(ctx, ops.Discard, ops.Target{Poisoned: &poison.Filter{Consumer: "c"}})
		return !errors.Is(err, ops.ErrNoMatch)
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = testapp.Must[ops.Operation](t)(s.Operations().Start(ctx, o.ID, ops.StartOptions{Reason: "never"}))
	testapp.Eventually(t, "it is discarded", func() bool { return poisoned() == 0 })
	if err := fx.New(fx.Supply(db), fxmodule.Module, fx.Supply(&ops.Config{}), fx.NopLogger).Err(); err == nil {
		t.Error("a pointer to a configuration: got no error")
	}
}
