package outbox_test

import (
	"context"
	"errors"
	"fmt"
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

// TestEachLayerLeftOut shows that the layers of the default chain really are
// middleware: without one its behaviour is gone, and the processor falls back to
// what it does by itself.
func TestEachLayerLeftOut(t *testing.T) {
	const minute = time.Minute
	recoverer, timeout, attempts, poison := middleware.Recover(), middleware.Timeout(), middleware.Attempts(middleware.Constant(5*minute)),
		middleware.Poison(nil)
	fails := func(context.Context, order) error { return errors.New("no luck") }
	panics := func(context.Context, order) error { panic("no luck") }
	permanent := func(context.Context, order) error { return bus.Permanent(errors.New("no luck")) }
	waits := func(ctx context.Context, _ order) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * minute): // four leases: without a deadline the lease is still renewed
			return nil
		}
	}
	tests := []struct {
		name    string
		chain   []bus.Middleware
		consume func(context.Context, order) error
		want    string        // state after the first run
		wait    time.Duration // until the second run starts
	}{
		{"complete: an error is retried by policy and counts", []bus.Middleware{poison, attempts, recoverer, timeout}, fails,
			"pending, 1 attempts", 5 * minute},
		{"without attempts: an error is retried after AttemptDelay and counts nothing", []bus.Middleware{poison, recoverer, timeout},
			fails, "pending, 0 attempts", minute},
		{"complete: a condemned message is poisoned", []bus.Middleware{poison, attempts, recoverer, timeout}, permanent,
			"poisoned, 1 attempts", 0},
		{"without poison: a condemned message is retried after AttemptDelay", []bus.Middleware{attempts, recoverer, timeout}, permanent,
			"pending, 1 attempts", minute},
		{"complete: a panic is an error like any other", []bus.Middleware{poison, attempts, recoverer, timeout}, panics,
			"pending, 1 attempts", 5 * minute},
		{"without recover: a panic is caught, retried after AttemptDelay, and counts nothing",
			[]bus.Middleware{poison, attempts, timeout}, panics, "pending, 0 attempts", minute},
		{"complete: the deadline ends a run", []bus.Middleware{poison, attempts, recoverer, timeout}, waits, "pending, 1 attempts", 5 * minute},
		{"without timeout: there is no deadline", []bus.Middleware{poison, attempts, recoverer}, waits, "done", 0},
		{"no chain at all: an error is retried after AttemptDelay", []bus.Middleware{}, fails, "pending, 0 attempts", minute},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var starts, ends testapp.Moments
				a := newApp(bus.Consume("c", func(ctx context.Context, o order) error {
					starts.Add()
					defer ends.Add()
					return test.consume(ctx, o)
				}))
				a.ProduceAt(ctx, order{ID: "1"})
				r := a.StartWith(ctx, outbox.ProcessorConfig{Middleware: test.chain, AttemptDelay: minute})
				testapp.Sooner(t, "the first run is settled",
					func() bool { return ends.Len() > 0 && a.Count("SELECT count(*) FROM message_claims") == 0 })
				if got := stateOf(a); got != test.want {
					t.Errorf("state: got %q, want %q", got, test.want)
				}
				if test.wait > 0 {
					testapp.Sooner(t, "the second run starts", func() bool { return starts.Len() == 2 })
					if got := starts.At(1).Sub(ends.At(0)); got < test.wait-time.Second || got > test.wait+time.Second {
						t.Errorf("second run after %s, want %s", got, test.wait)
					}
				}
				_ = r.Wait()
			})
		})
	}
}

// stateOf sums up where the only message is.
func stateOf(a *app) string {
	a.Helper()
	for _, m := range a.Pending() {
		return fmt.Sprintf("pending, %d attempts", m.Attempts)
	}
	for _, m := range a.Poisoned() {
		return fmt.Sprintf("poisoned, %d attempts", m.Attempts)
	}
	return "done"
}

func TestGoexitCostsAnAttemptAndNoSlot(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var done atomic.Int64
		a := newApp(
			bus.Consume("exits", func(_ context.Context, o order) error {
				if o.ID >= "5" { // some of them
					defer func() { panic("on the way") }()
				}
				goexit()
				return nil
			}, bus.MaxAttempts(1)),
			bus.Consume("works", func(context.Context, refund) error { done.Add(1); return nil }))
		for i := range 20 {
			a.ProduceAt(ctx, order{ID: fmt.Sprint(i)})
		}
		r := a.StartWith(ctx, outbox.ProcessorConfig{Concurrency: 2})
		testapp.Sooner(t, "all are poisoned", func() bool { return len(a.Poisoned()) == 20 })
		a.ProduceAt(ctx, refund{ID: "1"})
		testapp.Sooner(t, "the slots still work", func() bool { return done.Load() == 1 })
		r.MustStop()
	})
}

func TestGoexitInMiddlewareCostsNoSlot(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var done, exits atomic.Int64
		a := newApp(testapp.Counting("works", &done))
		exit := func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, m *bus.Message) error {
				if exits.Add(1) <= 3 {
					goexit()
				}
				return next(ctx, m)
			}
		}
		a.ProduceAt(ctx, order{ID: "1"})
		r := a.StartWith(ctx, outbox.ProcessorConfig{Concurrency: 1,
			Middleware: middleware.Default(middleware.Options{Middleware: []bus.Middleware{exit}})})
		testapp.Sooner(t, "the message is done", func() bool { return done.Load() == 1 && a.Empty() })
		r.MustStop()
	})
}

// TestLayersThatDoNotWait: a layer must not go on without the one below it. Where it
// does, no message is settled while its consumer runs, or runs once it is settled.
func TestLayersThatDoNotWait(t *testing.T) {
	t.Parallel()
	impatient := errors.New("impatient")
	for name, goOn := range map[string]func(below func() error, entered <-chan struct{}) error{
		"returns before it": func(below func() error, entered <-chan struct{}) error {
			go func() { _ = below() }()
			<-entered
			return impatient
		},
		"calls it twice at once": func(below func() error, entered <-chan struct{}) error {
			go func() { _ = below() }()
			<-entered
			return below()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a *app
			var runs atomic.Int64
			entered := make(chan struct{})
			a = testapp.New(t, testdb.SQLite(t), bus.Consume("c", func(ctx context.Context, o order) error {
				runs.Add(1)
				entered <- struct{}{}
				<-ctx.Done()
				if n := a.Count("SELECT count(*) FROM message_claims WHERE message_ids LIKE '%' || (SELECT id FROM consumer_messages WHERE payload LIKE ?) || '%'", `%"`+o.ID+`"%`); n != 1 {
					t.Errorf("%s: got settled while it ran, want that afterwards", o.ID)
				}
				return nil
			}, bus.MaxAttempts(1), bus.Timeout(100*time.Millisecond)))
			layer := func(next bus.Handler) bus.Handler {
				return func(ctx context.Context, m *bus.Message) error {
					return goOn(func() error { return next(ctx, m) }, entered)
				}
			}
			for i := range 3 {
				a.Produce(order{ID: fmt.Sprint("order-", i)})
			}
			config := testapp.Fast()
			config.Concurrency, config.Middleware = 1, middleware.Default(middleware.Options{Middleware: []bus.Middleware{layer}})
			r := a.Start(config)
			testapp.Eventually(t, "all are poisoned", func() bool { return len(a.Poisoned()) == 3 })
			r.MustStop()
			if runs.Load() != 3 {
				t.Errorf("runs: got %d, want one of each message", runs.Load())
			}
		})
	}
}

// TestLayerThatCallsWhatIsOver calls the layer below once the message is settled.
func TestLayerThatCallsWhatIsOver(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	a := testapp.New(t, testdb.SQLite(t), testapp.Counting("c", &runs))
	over, late := make(chan struct{}), make(chan error, 1)
	layer := func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			go func() { <-over; late <- next(ctx, m) }()
			return nil
		}
	}
	a.Produce(order{ID: "1"})
	config := testapp.Fast()
	config.Middleware = []bus.Middleware{layer}
	r := a.Start(config)
	testapp.Eventually(t, "settled", a.Empty)
	close(over)
	if err := <-late; err == nil || !strings.Contains(err.Error(), "must wait until next has returned") || runs.Load() != 0 {
		t.Errorf("the layer below, too late: got error %v and %d runs, want that it must wait, and none", err, runs.Load())
	}
	r.MustStop()
}

// TestProduceLayersMayAddAndLeaveOut has layers change what a batch holds.
func TestProduceLayersMayAddAndLeaveOut(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { return nil }))
	produce := func(change func(ctx context.Context, b *bus.Batch, next bus.ProduceFunc) error) ([]outbox.Receipt, error) {
		producer := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry, outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{
			func(next bus.ProduceFunc) bus.ProduceFunc {
				return func(ctx context.Context, b *bus.Batch) error { return change(ctx, b, next) }
			},
		}}))
		tx := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
		defer func() {
			if err := tx.Commit(); err != nil {
				t.Error(err)
			}
		}()
		return producer.ProduceMany(t.Context(), tx, outbox.Item{Payload: order{ID: "1"}}, outbox.Item{Payload: order{ID: "2"}})
	}
	other := func() *bus.Message { return &bus.Message{PayloadType: "order.placed", Payload: []byte(`{"id":"3"}`)} }
	receipts, err := produce(func(ctx context.Context, b *bus.Batch, next bus.ProduceFunc) error {
		b.Messages = append(b.Messages[1:], other(), other())
		return next(ctx, b)
	})
	if err != nil || receipts[0].Enqueued != 0 || receipts[1].Enqueued != 1 {
		t.Errorf("receipts: got %+v and error %v, want none of the first and one of the second", receipts, err)
	}
	if n := a.Count("SELECT count(DISTINCT message_id) FROM consumer_messages WHERE message_id <> '00000000-0000-0000-0000-000000000000'"); n != 3 {
		t.Errorf("ids: got %d, want 3", n)
	}
	receipts, err = produce(func(ctx context.Context, b *bus.Batch, next bus.ProduceFunc) (err error) {
		for _, m := range b.Messages {
			err = errors.Join(err, next(ctx, withMessages(b, m)))
		}
		return err
	})
	if err != nil || receipts[0].Enqueued != 1 || receipts[1].Enqueued != 1 {
		t.Errorf("receipts of parts: got %+v and error %v, want one of each", receipts, err)
	}
	a.Exec("DELETE FROM consumer_messages WHERE message_id IN (?, ?)", receipts[0].MessageID, receipts[1].MessageID)
	for name, change := range map[string]func(ctx context.Context, b *bus.Batch, next bus.ProduceFunc) error{
		"next twice": func(ctx context.Context, b *bus.Batch, next bus.ProduceFunc) error {
			return errors.Join(next(ctx, b), next(ctx, b))
		},
		"a message twice": func(ctx context.Context, b *bus.Batch, next bus.ProduceFunc) error {
			b.Messages = append(b.Messages, b.Messages[0])
			return next(ctx, b)
		},
	} {
		if _, err := produce(change); !errors.Is(err, bus.ErrInvalidOption) {
			t.Errorf("%s: got error %v, want ErrInvalidOption", name, err)
		}
		if n := a.Count("SELECT count(*) FROM consumer_messages"); n != 3 {
			t.Errorf("%s: got %d messages, want the 3 from before", name, n)
		}
	}
}

func withMessages(b *bus.Batch, messages ...*bus.Message) *bus.Batch {
	b.Messages = messages
	return b
}
