package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// unruly is a layer that does all that a layer may do, and some that it may not.
func unruly(next bus.Handler) bus.Handler {
	return func(ctx context.Context, m *bus.Message) error {
		switch rand.IntN(60) {
		case 0:
			return errors.New("not even called")
		case 1:
			runtime.Goexit()
		case 2:
			panic("before")
		case 3:
			<-time.After(time.Duration(rand.IntN(40)) * time.Millisecond)
		case 4:
			_ = next(ctx, m)
			panic("after")
		case 5:
			_ = next(ctx, m)
			runtime.Goexit()
		case 6:
			_ = next(ctx, m)
			return errors.New("after")
		case 7:
			_ = next(ctx, m)
			return bus.Snooze(time.Millisecond)
		case 8:
			return goesOn(ctx, m, next)
		}
		err := next(ctx, m)
		if err != nil && bus.OutcomeOf(err).Outcome != bus.Released && rand.IntN(2) == 0 {
			err = next(ctx, m)
		}
		if err == nil && rand.IntN(30) == 0 {
			<-time.After(time.Duration(rand.IntN(40)) * time.Millisecond)
		}
		return err
	}
}

// goesOn calls the layer below, and may not wait for it.
func goesOn(ctx context.Context, m *bus.Message, next bus.Handler) error {
	done := make(chan error, 1)
	go func() {
		defer func() { _ = recover() }()
		done <- next(ctx, m)
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Duration(rand.IntN(10)) * time.Millisecond):
		return errors.New("went on without it")
	}
}

// unrulySteps is how many steps of each of six keys run below unruly layers.
const unrulySteps = 25

// runUnruly has two processors run steps below unruly layers, until none is left.
func runUnruly(a *app) {
	a.Helper()
	config := testapp.Fast()
	config.Middleware = append(middleware.Default(middleware.Options{}), unruly)
	testapp.Must[[]outbox.Receipt](a)(a.Producer.ProduceMany(a.Context(), a.DB, stepsOf(unrulySteps, "a", "b", "c", "d", "e", "f")...))
	one, two := a.Start(config), a.Start(config)
	testapp.Eventually(a, "all ran", a.Empty)
	one.MustStop()
	two.MustStop()
}

// unrulyOptions have messages come again at once, as often as it takes.
func unrulyOptions(more ...bus.ConsumerOption) []bus.ConsumerOption {
	return append(inOrderOptions(), append(more, bus.MaxAttempts(1000), bus.Backoff(func(int) time.Duration { return time.Millisecond }))...)
}

// TestUnrulyLayersLeaveBatchesInOrder, whose function fails in all the ways there are.
func TestUnrulyLayersLeaveBatchesInOrder(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		j := newJournal(func(context.Context, step) error {
			<-time.After(time.Duration(rand.IntN(100)) * time.Microsecond)
			switch rand.IntN(60) {
			case 0:
				return errors.New("not this time")
			case 1:
				return bus.Snooze(time.Millisecond)
			}
			return nil
		})
		j.again = true
		runUnruly(testapp.New(t, db, bus.ConsumeBatch("c", func(ctx context.Context, steps []step) error {
			switch rand.IntN(60) {
			case 0:
				runtime.Goexit()
			case 1:
				panic("at the very beginning")
			case 2:
				return errors.New("none of them")
			}
			return j.consumeBatch(ctx, steps)
		}, unrulyOptions(bus.BatchSize(30), bus.Timeout(5*time.Second))...)))
		want := make(map[string]int)
		for _, customer := range []string{"a", "b", "c", "d", "e", "f"} {
			want[customer] = unrulySteps
		}
		j.check(t, want)
	})
}

// TestUnrulyLayersLeaveTransactionsInOrder, of groups and of batches, with each effect once.
func TestUnrulyLayersLeaveTransactionsInOrder(t *testing.T) {
	t.Parallel()
	var wrong atomic.Value
	for name, consumer := range map[string]bus.Consumer{
		"in groups": outbox.ConsumeTx("c", inOrder(30, &wrong), unrulyOptions(outbox.GroupCommit(10))...),
		"in batches": outbox.ConsumeBatchTx("c", func(ctx context.Context, tx bun.Tx, steps []step) error {
			failed := bus.BatchError{}
			for i, s := range steps {
				failed[i] = inOrder(60, &wrong)(ctx, tx, s)
			}
			return failed
		}, unrulyOptions()...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				a := testapp.New(t, db, consumer)
				a.Exec("CREATE TABLE taken (customer VARCHAR(20), n INTEGER, UNIQUE (customer, n))")
				runUnruly(a)
				if said := wrong.Load(); said != nil {
					t.Error(said)
				}
				if n := a.Count("SELECT count(*) FROM taken"); n != 6*unrulySteps {
					t.Errorf("got %d effects, want %d", n, 6*unrulySteps)
				}
			})
		})
	}
}

// TestAnErrorAfterTheCommitIsLogged, because layers further out report that the message is poisoned.
func TestAnErrorAfterTheCommitIsLogged(t *testing.T) {
	t.Parallel()
	failing := func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			if err := next(ctx, m); err != nil || bytes.Contains(m.Payload, []byte("good")) {
				return err
			}
			return bus.Permanent(errors.New("too late"))
		}
	}
	for name, option := range map[string]func(*bus.ConsumerConfig){"alone": outbox.GroupCommit(1), "in groups": outbox.GroupCommit(20)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, log := testapp.New(t, testdb.SQLite(t), outbox.ConsumeTx("c", func(context.Context, bun.Tx, order) error { return nil }, option)),
				&testapp.Lines{}
			a.Produce(order{ID: "good"})
			a.Produce(order{ID: "bad"})
			config := testapp.Fast()
			config.Logger = log.Logger()
			config.Middleware = middleware.Default(middleware.Options{Middleware: []bus.Middleware{failing}, Logger: slog.New(slog.DiscardHandler)})
			r := a.Start(config)
			testapp.Eventually(t, "both are done", func() bool { return len(a.Pending()) == 0 })
			r.MustStop()
			if n := len(a.Poisoned()); n != 0 {
				t.Errorf("got %d poisoned messages, want none: they are committed", n)
			}
			const want = `level=WARN msg="outcome ignored, the consumer has committed" consumer=c`
			if got := log.String(); strings.Count(got, want) != 1 || !strings.Contains(got, "outcome=poisoned error=\"too late\"") {
				t.Errorf("log: got %s, want one line: %s", got, want)
			}
		})
	}
}
