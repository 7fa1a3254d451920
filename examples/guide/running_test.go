package guide_test

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"modernc.org/sqlite"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/examples/guide"
	"github.com/asyncmonolith/asyncmonolith-go/fxmodule"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

func TestProcessorOfTheGuideStopsAtASignal(t *testing.T) {
	db := openMemory(t)
	consuming := make(chan struct{})
	registry, err := bus.NewRegistry(bus.Consume("c", func(context.Context, guide.ReportDue) error {
		close(consuming)
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(guide.AwaitDatabase(t.Context(), db), outbox.Migrate(t.Context(), db, registry.Tables())); err != nil {
		t.Fatal(err)
	}
	processor, err := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := producer.Produce(t.Context(), db, guide.ReportDue{}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- guide.RunUntilSignalled(t.Context(), processor) }()
	select {
	case <-consuming: // so it listens for signals
	case err := <-ended:
		t.Fatalf("got %v, want it to run", err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("after the signal: got %v, want a clean stop", err)
	}
}

func TestAwaitDatabaseOfTheGuideEndsWithItsContext(t *testing.T) {
	db := openMemory(t)
	_ = db.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := guide.AwaitDatabase(ctx, db); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("got %v, want it to say that the database cannot be reached", err)
	}
}

// TestTransactionOfTheGuideHasItsTenant defines in SQLite what the example calls in PostgreSQL.
func TestTransactionOfTheGuideHasItsTenant(t *testing.T) {
	var set atomic.Value
	sqlite.MustRegisterScalarFunction("set_config", 3, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		set.Store(args[1])
		return args[1], nil
	})
	db := openMemory(t)
	kit := bustest.KitConfig{
		Producer: outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{guide.StampTenant}},
	}.NewKit(t, db, outbox.ConsumeTx("ship", func(ctx context.Context, tx bun.Tx, payload guide.OrderPlaced) error {
		return guide.InTenant(func(context.Context, bun.Tx, guide.OrderPlaced) error { return nil })(guide.WithTenant(ctx, "acme"), tx, payload)
	}))
	kit.Produce(guide.OrderPlaced{OrderID: "o-1"})
	if run := kit.ProcessNext(); run.Outcome.Outcome != bus.Done || set.Load() != "acme" {
		t.Errorf("got %+v with the tenant %v, want it done with acme", run.Outcome, set.Load())
	}
}

func TestSchedulesOfTheGuideAreDeclaredAtTheStart(t *testing.T) {
	db := openMemory(t)
	var scheduler *schedule.Scheduler
	app := fxtest.New(t, fx.NopLogger, fx.Supply(db, slog.New(slog.DiscardHandler)), fxmodule.Module, fxmodule.Migrate(),
		fxmodule.Consumers(bus.Consume("report", func(context.Context, guide.ReportDue) error { return nil })),
		guide.Schedules, fx.Populate(&scheduler))
	app.RequireStart()
	defer app.RequireStop()
	if found, _, err := scheduler.List(t.Context(), db, schedule.Filter{Tag: "reports"}, admin.Page{}); err != nil || len(found) != 2 {
		t.Errorf("schedules: got %d, %v, want the two of the guide", len(found), err)
	}
}

func TestSavepointOfTheGuideTakesItsMessageBack(t *testing.T) {
	f := open(t)
	for _, want := range []error{nil, guide.ErrNoOrder} {
		err := f.db.RunInTx(f.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			return guide.Offer(ctx, tx, f.Producer, guide.Order{ID: "o-1"}, func(context.Context, bun.Tx) error { return want })
		})
		if err != nil {
			t.Errorf("with %v: got %v, want the transaction to go on", want, err)
		}
	}
	if n := len(bustest.Payloads[guide.OrderPlaced](t, f)); n != 1 {
		t.Errorf("produced: got %d orders, want the one that could be reserved", n)
	}
}

func TestFleetAndRunnerOfTheGuideEnd(t *testing.T) {
	f := open(t)
	ctx, cancel := context.WithCancel(f.Context())
	var out bytes.Buffer
	if err := guide.Fleet(ctx, f.db, f.admin, &out); err != nil {
		t.Errorf("fleet: %v", err)
	}
	service, err := guide.OpenService(f.db, f.Registry)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- guide.RunOperations(ctx, service) }()
	cancel()
	select {
	case err := <-ended:
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the runner of operations: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the runner of operations does not end with its context")
	}
}
