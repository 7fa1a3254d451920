package bustest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// exampleT stands for the *testing.T that examples do not have.
type exampleT struct {
	testing.TB
	name     string
	cleanups *[]func()
}

func newT(name string) (t testing.TB, done func()) {
	e := exampleT{name: name, cleanups: new([]func())}
	return e, func() {
		for _, cleanup := range *e.cleanups {
			cleanup()
		}
	}
}

func (exampleT) Helper()                  {}
func (e exampleT) Name() string           { return e.name }
func (exampleT) Context() context.Context { return context.Background() }
func (exampleT) Output() io.Writer        { return io.Discard }
func (e exampleT) Cleanup(fn func())      { *e.cleanups = append(*e.cleanups, fn) }
func (exampleT) Failed() bool             { return false }

func (exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (exampleT) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }

// charge produces what shipping waits for.
func charge(k **bustest.Kit, db *bun.DB) bus.Consumer {
	return bus.Consume("charge", func(ctx context.Context, e OrderPlaced) error {
		_, err := (*k).Producer.Produce(ctx, db, OrderCharged(e), outbox.InsertID("charged:"+e.ID))
		return err
	})
}

func ship() bus.Consumer {
	return bus.Consume("ship", func(_ context.Context, e OrderCharged) error {
		fmt.Println("shipped", e.ID)
		return nil
	})
}

func Example_new() {
	t, done := newT("new") // in a test it is given
	defer done()
	kit := bustest.NewKit(t, openMemory(t), ship()) // SQLite in memory; any *bun.DB does
	kit.Produce(OrderCharged{ID: "o-1"})
	kit.ProcessNext()
	// Output: shipped o-1
}

func Example_config() {
	t, done := newT("config")
	defer done()
	kit := bustest.KitConfig{
		Start:     time.Date(2031, 2, 3, 4, 0, 0, 0, time.UTC),
		IDs:       bustest.SequentialIDs(),
		Processor: outbox.ProcessorConfig{AttemptDelay: time.Minute},
	}.NewKit(t, openMemory(t), bus.Consume("fails", func(context.Context, OrderPlaced) error { return errors.New("no luck") }))
	receipt := kit.Produce(OrderPlaced{ID: "o-1"})
	fmt.Println(receipt.MessageID, "at", kit.Now())
	fmt.Println("again in", kit.ProcessNext().Outcome.Delay)
	// Output:
	// 00000000-0000-7000-8000-000000000001 at 2031-02-03 04:00:00 +0000 UTC
	// again in 1m0s
}

func Example_produce() {
	t, done := newT("produce")
	defer done()
	kit := bustest.NewKit(t, openMemory(t), ship())
	first := kit.Produce(OrderCharged{ID: "o-1"}, outbox.InsertID("charged:o-1"))
	again := kit.Produce(OrderCharged{ID: "o-1"}, outbox.InsertID("charged:o-1"))
	fmt.Println(first.Enqueued, again.Duplicates)
	// Output: 1 1
}

func Example_processNext() {
	t, done := newT("processNext")
	defer done()
	kit := bustest.NewKit(t, openMemory(t), bus.Consume("charge", func(context.Context, OrderPlaced) error {
		return bus.Permanent(errors.New("card expired"))
	}))
	kit.Produce(OrderPlaced{ID: "o-1"})
	got := kit.ProcessNext()
	fmt.Println(got.Message.Consumer, got.Message.Attempt, got.Outcome.Outcome, got.Outcome.Err)
	// Output: charge 1 poisoned card expired
}

func Example_processNextFor() {
	t, done := newT("processNextFor")
	defer done()
	kit := bustest.NewKit(t, openMemory(t), ship(), bus.Consume("thank", func(context.Context, OrderCharged) error {
		fmt.Println("thank you")
		return nil
	}))
	kit.Produce(OrderCharged{ID: "o-1"}) // one message for each of the two
	kit.ProcessNext("thank")
	kit.ProcessNext("ship")
	// Output:
	// thank you
	// shipped o-1
}

func Example_drainUntilIdle() {
	t, done := newT("drainUntilIdle")
	defer done()
	db := openMemory(t)
	var kit *bustest.Kit
	kit = bustest.NewKit(t, db, charge(&kit, db), ship())
	kit.Produce(OrderPlaced{ID: "o-1"})
	for _, run := range kit.DrainUntilIdle() {
		fmt.Println(run.Message.Consumer, run.Outcome.Outcome)
	}
	// Output:
	// shipped o-1
	// charge done
	// ship done
}

func Example_advance() {
	t, done := newT("advance")
	defer done()
	kit := bustest.NewKit(t, openMemory(t), ship())
	kit.Produce(OrderCharged{ID: "o-1"}, outbox.Delay(time.Hour))
	kit.Advance(59 * time.Minute)
	fmt.Println("ran after 59 minutes:", len(kit.DrainUntilIdle()))
	kit.Advance(time.Minute)
	kit.DrainUntilIdle()
	// Output:
	// ran after 59 minutes: 0
	// shipped o-1
}

func Example_context() {
	t, done := newT("context")
	defer done()
	db := openMemory(t)
	kit := bustest.KitConfig{Start: time.Date(2031, 2, 3, 4, 0, 0, 0, time.UTC)}.NewKit(t, db, ship())
	// The next fire time is counted from the kit's clock, not from today.
	_, err := kit.Scheduler.Create(kit.Context(), db, OrderCharged{ID: "daily"}, "@daily", "UTC")
	found := bustest.RequireScheduled[OrderCharged](t, kit, nil)
	fmt.Println(err, found.NextFire)
	// Output: <nil> 2031-02-04 00:00:00 +0000 UTC
}

func Example_now() {
	t, done := newT("now")
	defer done()
	kit := bustest.KitConfig{Start: time.Date(2031, 2, 3, 4, 0, 0, 0, time.UTC)}.NewKit(t, openMemory(t), ship())
	clock := kit.Now // for code under test that takes a func() time.Time
	kit.Advance(time.Minute)
	fmt.Println(clock())
	// Output: 2031-02-03 04:01:00 +0000 UTC
}

func Example_in() {
	t, done := newT("in")
	defer done()
	db := openMemory(t)
	kit := bustest.NewKit(t, db, ship())
	tx := testapp.Must[bun.Tx](t)(db.BeginTx(kit.Context(), nil))
	_, _ = kit.Producer.Produce(kit.Context(), tx, OrderCharged{ID: "o-1"}) // by the code under test
	bustest.RequireProduced[OrderCharged](t, kit.In(tx), nil)
	_ = tx.Rollback()
	bustest.RequireNotProduced[OrderCharged](t, kit, nil)
	fmt.Println("it was there, and never ran")
	// Output: it was there, and never ran
}

func Example_requirePoisoned() {
	t, done := newT("requirePoisoned")
	defer done()
	kit := bustest.NewKit(t, openMemory(t), bus.Consume("charge", func(context.Context, OrderPlaced) error {
		return errors.New("card expired")
	}, bus.MaxAttempts(1)))
	kit.Produce(OrderPlaced{ID: "o-1"})
	kit.DrainUntilIdle()
	got := bustest.RequirePoisoned(t, kit, "charge", func(e OrderPlaced) bool { return e.ID == "o-1" })
	fmt.Printf("%s: %s\n", got.Reason, got.Errors[0].Error)
	// Output: attempt 1 of 1 failed: card expired
}

func Example_requireIdempotent() {
	t, done := newT("requireIdempotent")
	defer done()
	emails := 0
	kit := bustest.NewKit(t, openMemory(t), bus.Consume("thank", func(context.Context, OrderCharged) error {
		emails++ // without a look whether it was sent before
		return nil
	}))
	kit.Produce(OrderCharged{ID: "o-1"})
	defer func() { fmt.Println("the test fails:", recover() != nil) }() // since there is no real t here
	kit.RequireIdempotent(func() any { return emails })
	// Output: the test fails: true
}

func Example_requireRedeliverable() {
	t, done := newT("requireRedeliverable")
	defer done()
	sent := map[uuid.UUID]bool{}
	kit := bustest.NewKit(t, openMemory(t), bus.Consume("thank", func(ctx context.Context, _ OrderCharged) error {
		m, _ := bus.MessageFromContext(ctx)
		fmt.Println("crashes:", m.CrashCount)
		sent[m.ID] = true // by a provider that takes the id as a key
		return nil
	}))
	kit.Produce(OrderCharged{ID: "o-1"})
	kit.RequireRedeliverable(func() any { return len(sent) })
	// Output:
	// crashes: 0
	// crashes: 1
}
