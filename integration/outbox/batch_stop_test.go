package outbox_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// startWatched starts a processor whose looks for requests to stop can be counted.
func startWatched(a *app, config outbox.ProcessorConfig) (r *testapp.Running, looks func() int) {
	a.Helper()
	var sent queries
	watched := *a
	watched.DB = a.DB.WithQueryHook(sent.hook())
	return watched.Start(config), func() int { return sent.count("message_stops", "outcome IS NULL") }
}

// askToStop has somebody ask that a message be stopped, and returns when its process knows of it.
// The answer comes when the message is settled.
func askToStop(a *app, looks func() int, id int64) (answer <-chan admin.StopResult) {
	a.Helper()
	answered := make(chan admin.StopResult, 1)
	go func() {
		how, err := a.Admin().Stop(context.WithoutCancel(a.Context()), a.DB, id)
		if err != nil {
			a.Errorf("Stop: %v", err)
		}
		answered <- how
	}()
	testapp.Eventually(a, "it is asked", func() bool { return a.Count("SELECT count(*) FROM message_stops") == 1 || len(answered) > 0 })
	before := looks() // the next finds it, and is over when there is one more
	testapp.Eventually(a, "the process knows", func() bool { return looks() >= before+2 || len(answered) > 0 })
	return answered
}

// waitsFor is a call that goes on when it is let, or ends with its context.
func waitsFor(ctx context.Context, goOn <-chan struct{}) error {
	select {
	case <-goOn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestToStopWhatWaitsLeavesTheRunBeforeItAlone: the first of the key comes alone, as it has failed,
// and has but one attempt left.
func TestToStopWhatWaitsLeavesTheRunBeforeItAlone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var seen calls
		again, goOn := make(chan struct{}), make(chan struct{})
		consume := func(ctx context.Context, steps []step) error {
			switch seen.addSteps(steps) {
			case 1:
				return errors.New("not this time")
			case 2:
				close(again)
				return waitsFor(ctx, goOn)
			}
			return nil
		}
		a := testapp.New(t, db, bus.ConsumeBatch("c", consume, bus.Ordered(bus.BlockKey), bus.MaxAttempts(2),
			bus.AttemptDelay(5*time.Millisecond), bus.Timeout(time.Minute)))
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, stepsOf(3, "a")...))
		second := a.Pending()[1].ID
		r, looks := startWatched(a, alone())
		<-again
		answer := askToStop(a, looks, second)
		close(goOn)
		if how := <-answer; how != admin.StopCancelled {
			t.Errorf("Stop: got %q, want %q", how, admin.StopCancelled)
		}
		testapp.Eventually(t, "all ran", func() bool { return a.Empty() || len(a.Poisoned()) > 0 })
		r.MustStop()
		if runs := seen.runs(); len(a.Poisoned()) > 0 || runs["a1"] != 2 || runs["a2"] != 1 || runs["a3"] != 2 {
			t.Errorf("got calls %v and %d poisoned, want a1 done in its second, and a3 without a2", seen.all, len(a.Poisoned()))
		}
	})
}

// TestToStopWhatIsNotInTheCallLeavesTheCallAlone: a layer of the last one takes longer than the
// others wait.
func TestToStopWhatIsNotInTheCallLeavesTheCallAlone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var seen calls
		var first sync.Once
		running, goOn := make(chan struct{}), make(chan struct{})
		a := testapp.New(t, db, bus.ConsumeBatch("c", func(ctx context.Context, orders []order) error {
			seen.add(orders)
			first.Do(func() { close(running) })
			return waitsFor(ctx, goOn)
		}, bus.MaxAttempts(1), bus.Timeout(time.Minute)))
		a.ProduceMany(3)
		last := a.Pending()[2]
		config := alone()
		config.Middleware = append(middleware.Default(middleware.Options{}), func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, m *bus.Message) error {
				if m.ID.String() == last.MessageID {
					<-goOn
				}
				return next(ctx, m)
			}
		})
		r, looks := startWatched(a, config)
		<-running
		answer := askToStop(a, looks, last.ID)
		close(goOn)
		if how := <-answer; how != admin.StopCancelled {
			t.Errorf("Stop: got %q, want %q", how, admin.StopCancelled)
		}
		testapp.Eventually(t, "nothing waits", a.Empty)
		r.MustStop()
		if runs := seen.runs(); len(a.Poisoned()) > 0 || runs["0"] != 1 || runs["1"] != 1 || runs["2"] != 0 {
			t.Errorf("got calls %v and %d poisoned, want the others done in their first, and none of the last", seen.all, len(a.Poisoned()))
		}
	})
}

// TestToStopTheSecondOfAKeyTakesItOutOfItsBatch: the call ends, and the others run again.
func TestToStopTheSecondOfAKeyTakesItOutOfItsBatch(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var seen calls
		running := make(chan struct{})
		consume := func(ctx context.Context, steps []step) error {
			if seen.addSteps(steps) > 1 {
				return nil
			}
			close(running)
			return waitsFor(ctx, nil)
		}
		a := testapp.New(t, db, bus.ConsumeBatch("c", consume, bus.Ordered(bus.BlockKey), bus.MaxAttempts(1), bus.Timeout(time.Minute)))
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, stepsOf(3, "a")...))
		second := a.Pending()[1].ID
		r := a.Start(alone())
		<-running
		if how, err := a.Admin().Stop(t.Context(), db, second); how != admin.StopCancelled || err != nil {
			t.Errorf("Stop: got %q, %v, want %q", how, err, admin.StopCancelled)
		}
		testapp.Eventually(t, "all ran", func() bool { return a.Empty() || len(a.Poisoned()) > 0 })
		r.MustStop()
		if runs := seen.runs(); len(a.Poisoned()) > 0 || runs["a1"] != 2 || runs["a2"] != 1 || runs["a3"] != 2 {
			t.Errorf("got calls %v and %d poisoned, want a1 and a3 once more", seen.all, len(a.Poisoned()))
		}
	})
}

// TestToStopTheSecondOfAKeyTakesItOutOfItsGroup although the first, behind which it waits, fails.
func TestToStopTheSecondOfAKeyTakesItOutOfItsGroup(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var firsts, seconds atomic.Int64
	running, goOn := make(chan struct{}), make(chan struct{})
	a := testapp.New(t, db, outbox.ConsumeTx("c", func(_ context.Context, _ bun.Tx, s step) error {
		switch {
		case s.N == 2:
			seconds.Add(1)
		case s.N == 1 && firsts.Add(1) == 1:
			close(running)
			<-goOn
			return errors.New("not this time")
		}
		return nil
	}, bus.Ordered(bus.BlockKey), outbox.GroupCommit(10), bus.AttemptDelay(5*time.Millisecond), bus.Timeout(time.Minute)))
	testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, stepsOf(3, "a")...))
	second := a.Pending()[1].ID
	r, looks := startWatched(a, alone())
	<-running
	answer := askToStop(a, looks, second)
	close(goOn)
	if how := <-answer; how != admin.StopCancelled {
		t.Errorf("Stop: got %q, want %q", how, admin.StopCancelled)
	}
	testapp.Eventually(t, "all ran", a.Empty)
	r.MustStop()
	if seconds.Load() > 0 {
		t.Errorf("got %d runs of the second, want it gone before it ever ran", seconds.Load())
	}
}
