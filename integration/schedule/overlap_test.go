package schedule_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// TestSkipOverlapCountsWhatIsPending: a schedule written with SkipOverlap has one message for each consumer, also if it is due
// and triggered at once, and while its message is to be retried. A poisoned message is not pending.
func TestSkipOverlapCountsWhatIsPending(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"),
			bus.Consume("d", func(context.Context, order) error { return errors.New("no luck") }, bus.MaxAttempts(2),
				bus.Backoff(func(int) time.Duration { return time.Hour })))
		s, ctx := a.Scheduler(), t.Context()
		id := testapp.Must[int64](t)(s.Upsert(ctx, db, order{ID: "n"}, "@every 1h", "UTC", schedule.Name("n"), schedule.SkipOverlap()))
		p := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, a.Registry, a.Producer, quiet()))
		fire := func(what string, c, d int) {
			t.Helper()
			if err := s.Trigger(ctx, db, id); err != nil {
				t.Fatal(err)
			}
			makeDue(a, time.Second)
			if n, err := p.FireDue(ctx); err != nil || n != 1 {
				t.Fatalf("%s: got %d fires, error %v, want 1", what, n, err)
			}
			ofC := a.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'c'")
			ofD := a.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'd'")
			if ofC != c || ofD != d {
				t.Errorf("%s: got %d messages of c and %d of d, want %d and %d", what, ofC, ofD, c, d)
			}
		}
		run := func() {
			t.Helper()
			processor := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(db, a.Registry, testapp.Fast()))
			for ran := true; ran; {
				ran = testapp.Must[bool](t)(processor.ProcessNext(ctx))
			}
		}
		fire("the first", 1, 1)
		fire("both wait", 1, 1)
		run()
		fire("d is to be retried", 1, 1)
		a.Exec("UPDATE consumer_messages SET available_after = " + testapp.In(db, -time.Second))
		run()
		fire("d is poisoned", 1, 1)
		if poisoned := len(a.Poisoned()); poisoned != 1 {
			t.Errorf("poisoned: got %d, want 1", poisoned)
		}
	})
}

// TestSkipOverlapDoesNotWaitForARun: while a consumer runs in its transaction, which has its message locked, a fire leaves that
// consumer out and delays no other schedule.
// Promise: schedule-blocked
func TestSkipOverlapDoesNotWaitForARun(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		running, over := make(chan struct{}), make(chan struct{})
		run := func() error {
			close(running)
			<-over
			return nil
		}
		consumer := outbox.ConsumeTx("c", func(context.Context, bun.Tx, order) error { return run() })
		if db.Dialect().Name() == dialect.SQLite { // its transaction would have the database's only write lock
			consumer = bus.Consume("c", func(context.Context, order) error { return run() })
		}
		a := testapp.New(t, db, consumer, bus.Consume("d", func(context.Context, refund) error { return nil }))
		s, ctx := a.Scheduler(), t.Context()
		testapp.Must[int64](t)(s.Upsert(ctx, db, order{ID: "n"}, "@every 1h", "UTC", schedule.Name("n"), schedule.SkipOverlap()))
		p := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, a.Registry, a.Producer, quiet()))
		fire := func(want int) {
			t.Helper()
			makeDue(a, time.Second)
			if n, err := p.FireDue(ctx); err != nil || n != want {
				t.Fatalf("got %d fires, error %v, want %d", n, err, want)
			}
		}
		fire(1)
		r := a.Start(testapp.Fast())
		<-running
		testapp.Must[int64](t)(s.Upsert(ctx, db, refund{ID: "m"}, "@every 1h", "UTC", schedule.Name("m")))
		begun := time.Now()
		fire(2)
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("the fire took %s, want it not to wait for the run", took)
		}
		if n := a.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'c'"); n != 1 {
			t.Errorf("messages of c: got %d, want the one that runs", n)
		}
		close(over)
		testapp.Eventually(t, "all are consumed", a.Empty)
		r.MustStop()
	})
}

// TestWhatTakesARunNowBack has another schedule do so, and another payload not.
func TestWhatTakesARunNowBack(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { return nil }))
		s, ctx := a.Scheduler(), t.Context()
		p := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, a.Registry, a.Producer, schedule.ProcessorConfig{}))
		id := testapp.Must[int64](t)(s.Upsert(ctx, db, order{ID: "x"}, "@yearly", "UTC", schedule.Name("n")))
		for _, step := range []struct {
			what   string
			change func() error
			fires  int
		}{
			{"UpdateSchedule", func() error { return s.UpdateSchedule(ctx, db, id, "0 0 2 1 *", "UTC") }, 0},
			{"UpdatePayload", func() error { return s.UpdatePayload(ctx, db, id, order{ID: "y"}) }, 1},
			{"Schedule", func() error {
				_, err := s.Upsert(ctx, db, order{ID: "z"}, "@yearly", "UTC", schedule.Name("n"))
				return err
			}, 1},
		} {
			testapp.OK(t, s.Trigger(ctx, db, id))
			testapp.OK(t, step.change())
			if n, err := p.FireDue(ctx); n != step.fires || err != nil {
				t.Errorf("asked for before %s: got %d fires and %v, want %d", step.what, n, err, step.fires)
			}
		}
	})
}
