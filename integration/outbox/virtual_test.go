package outbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func TestRetriesWaitForTheBackoff(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var runs testapp.Moments
		a := newApp(bus.Consume("fails", func(context.Context, order) error {
			runs.Add()
			return errors.New("no luck")
		}, bus.Backoff(func(attempt int) time.Duration { return time.Duration(attempt) * time.Minute }), bus.MaxAttempts(4)))
		a.ProduceAt(ctx, order{ID: "1"})
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		testapp.Sooner(t, "the message is poisoned", func() bool { return len(a.Poisoned()) == 1 })
		r.MustStop()
		if runs.Len() != 4 {
			t.Fatalf("runs: got %d, want 4", runs.Len())
		}
		for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute} {
			if got := runs.At(i + 1).Sub(runs.At(i)); got < want-time.Millisecond || got > want+time.Second {
				t.Errorf("wait after attempt %d: got %s, want %s", i+1, got, want)
			}
		}
	})
}

func TestDelayedMessageStartsOnTime(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var ran atomic.Pointer[time.Time]
		a := newApp(bus.Consume("later", func(context.Context, order) error {
			now := time.Now()
			ran.Store(&now)
			return nil
		}))
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		produced := time.Now()
		a.ProduceAt(ctx, order{ID: "1"}, outbox.Delay(90*time.Second+350*time.Millisecond))
		testapp.Sooner(t, "the message ran", func() bool { return ran.Load() != nil })
		r.MustStop()
		late := ran.Load().Sub(produced) - 90*time.Second - 350*time.Millisecond
		if late < 0 || late > 50*time.Millisecond {
			t.Errorf("started %s after it was due, want within 50ms: polls look ahead", late)
		}
	})
}

func TestHandlerThatIgnoresItsTimeoutIsAbandoned(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		release := make(chan struct{})
		var runs atomic.Int64
		a := newApp(bus.Consume("deaf", func(context.Context, order) error {
			if runs.Add(1) == 1 {
				<-release
			}
			return nil
		}, bus.Timeout(3*time.Second), bus.Backoff(middleware.Constant(time.Minute))))
		a.ProduceAt(ctx, order{ID: "1"})
		start := time.Now()
		r := a.StartWith(ctx, outbox.ProcessorConfig{Concurrency: 1})
		testapp.Sooner(t, "the handler is abandoned", func() bool { return len(r.Health().Abandoned) == 1 })
		if took := time.Since(start); took < 8*time.Second || took > 9*time.Second {
			t.Errorf("abandoned after %s, want timeout 3s + grace 5s", took)
		}
		testapp.Sooner(t, "a failed attempt is settled", func() bool {
			rows := a.Pending()
			return len(rows) == 1 && rows[0].Attempts == 1 && strings.Contains(rows[0].Errors, bus.ErrAbandoned.Error())
		})
		if health := r.Health(); health.Ready {
			t.Errorf("health with as many abandoned handlers as Concurrency: got %+v, want not ready", health)
		}
		close(release)
		testapp.Sooner(t, "the handler is buried", func() bool { return r.Health().Ready })
		testapp.Sooner(t, "the retry is done", a.Empty)
		r.MustStop()
		if got := runs.Load(); got != 2 {
			t.Errorf("runs: got %d, want 2", got)
		}
	})
}

func TestALayerThatDoesNotReturnIsReported(t *testing.T) {
	for name, options := range map[string][]bus.ConsumerOption{"alone": nil, "in a batch": {bus.BatchSize(2)}} {
		t.Run(name, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				release := make(chan struct{})
				options := append(options, bus.Timeout(3*time.Second))
				consumer := bus.Consume("c", func(context.Context, order) error { return nil }, options...)
				if name != "alone" {
					consumer = bus.ConsumeBatch("c", func(context.Context, []order) error { return nil }, options...)
				}
				a := newApp(consumer)
				a.ProduceAt(ctx, order{ID: "1"})
				a.ProduceAt(ctx, order{ID: "2"})
				hangs := func(next bus.Handler) bus.Handler {
					return func(ctx context.Context, m *bus.Message) error {
						err := next(ctx, m)
						<-release
						return err
					}
				}
				start := time.Now()
				r := a.StartWith(ctx, outbox.ProcessorConfig{Concurrency: 1, Middleware: []bus.Middleware{hangs}})
				testapp.Sooner(t, "it is reported", func() bool { return !r.Health().LastClaim.IsZero() && !r.Health().Ready })
				if took := time.Since(start); took < 38*time.Second || took > 40*time.Second {
					t.Errorf("reported after %s, want timeout 3s + grace 5s + lease 30s", took)
				}
				if got := r.Health().Abandoned; !slices.Equal(got, []string{"c"}) {
					t.Errorf("abandoned: got %v, want c", got)
				}
				close(release)
				testapp.Sooner(t, "it is ready again", func() bool { return r.Health().Ready })
				testapp.Sooner(t, "all is consumed", a.Empty)
				r.MustStop()
			})
		})
	}
}

// TestSlowLayersDoNotHoldBackABatchOfAKey: the layers of a key's messages run one after the other, for longer than half the
// timeout of those that arrived first.
func TestSlowLayersDoNotHoldBackABatchOfAKey(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var runs atomic.Int64
		a := newApp(bus.ConsumeBatch("c", func(_ context.Context, steps []step) error {
			runs.Add(int64(len(steps)))
			return nil
		}, bus.Ordered(bus.BlockKey)))
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(ctx, a.DB, stepsOf(100, "a")...))
		slow := func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, m *bus.Message) error {
				<-time.After(60 * time.Millisecond)
				return next(ctx, m)
			}
		}
		start := time.Now()
		r := a.StartWith(ctx, outbox.ProcessorConfig{Middleware: append(middleware.Default(middleware.Options{}), slow)})
		testapp.Sooner(t, "all is consumed", a.Empty)
		r.MustStop()
		if took := time.Since(start); runs.Load() != 100 || took > 15*time.Second {
			t.Errorf("got %d runs after %s, want 100 within 15s", runs.Load(), took)
		}
	})
}

func TestDrainNamesConsumersThatDoNotListen(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		release := make(chan struct{})
		var listened atomic.Bool
		a := newApp(
			bus.Consume("deaf", func(context.Context, order) error { <-release; return nil }, bus.Timeout(time.Hour)),
			bus.Consume("listens", func(ctx context.Context, _ refund) error {
				<-ctx.Done()
				listened.Store(context.Cause(ctx) == bus.ErrStopping)
				return ctx.Err()
			}, bus.Timeout(time.Hour)),
		)
		a.ProduceAt(ctx, order{ID: "1"})
		a.ProduceAt(ctx, refund{ID: "2"})
		r := a.StartWith(ctx, outbox.ProcessorConfig{DrainTimeout: 7 * time.Second})
		testapp.Sooner(t, "both run", func() bool { return !r.Health().LastClaim.IsZero() })
		synctest.Wait()
		start := time.Now()
		err := r.Wait()
		var drain *bus.DrainError
		if !errors.As(err, &drain) || !slices.Equal(drain.Consumers, []string{"deaf"}) {
			t.Errorf("run: got %v, want a DrainError that names deaf", err)
		}
		if took := time.Since(start); took < 7*time.Second || took > 8*time.Second {
			t.Errorf("stopping took %s, want the drain timeout of 7s and at most a second more", took)
		}
		if !listened.Load() {
			t.Error("the listening handler was not cancelled with ErrStopping")
		}
		for _, m := range a.Pending() {
			if m.Attempts != 0 || m.Crashes != 0 {
				t.Errorf("%s: got %d attempts and %d crashes, want none", m.ConsumerType, m.Attempts, m.Crashes)
			}
		}
		if n := len(a.Pending()); n != 2 {
			t.Errorf("messages left: got %d, want both", n)
		}
		if n := a.Count("SELECT count(*) FROM message_claims"); n != 0 {
			t.Errorf("claims left: got %d, want none", n)
		}
		close(release)
	})
}

func TestMessagesOfALostOwnerRunAfterTheLease(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var crashes []int
		var ran time.Time
		a := newApp(bus.Consume("c", func(ctx context.Context, _ order) error {
			m, _ := bus.MessageFromContext(ctx)
			crashes, ran = append(crashes, m.CrashCount), time.Now()
			return nil
		}))
		a.ProduceAt(ctx, order{ID: "1"})
		start := time.Now()
		vanish(ctx, a, 30*time.Second, false)
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		testapp.Sooner(t, "the message is done", a.Empty)
		r.MustStop()
		if !slices.Equal(crashes, []int{1}) {
			t.Errorf("runs saw crashes %v, want one run that saw 1", crashes)
		}
		if wait := ran.Sub(start); wait < 30*time.Second || wait > 33*time.Second {
			t.Errorf("ran after %s, want the lease of 30s and a poll", wait)
		}
	})
}

// vanish claims everything due under an owner that will never settle.
func vanish(ctx context.Context, a *app, lease time.Duration, solo bool) {
	a.Helper()
	s := testapp.Must[*store.Store](a)(store.For(a.DB.Dialect().Name(), a.Registry.Tables()))
	var wants []store.Want
	for _, c := range a.Registry.Consumers() {
		wants = append(wants, store.Want{Consumer: c.Name(), Payload: c.PayloadType(), Limit: 100})
	}
	request := store.ClaimRequest{Owner: "vanished", Lease: lease, Wants: wants, Limit: 100, MaxBytes: 1 << 20, Solo: solo}
	if solo {
		request.Select = store.Killers
	}
	claim, err := s.Claims.Claim(ctx, a.DB, request)
	if err != nil || claim.ID == 0 {
		a.Fatalf("claim of a vanished owner: got %+v, %v", claim, err)
	}
}

func TestKillerIsPoisonedAfterThreeSoloDeliveries(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var ran atomic.Int64
		a := newApp(bus.Consume("killer", func(context.Context, order) error { ran.Add(1); return nil }))
		a.ProduceAt(ctx, order{ID: "1"})
		a.Exec("UPDATE consumer_messages SET crashes = 2")
		vanish(ctx, a, time.Second, true)
		var lines testapp.Lines
		r := a.StartWith(ctx, outbox.ProcessorConfig{Logger: lines.Logger()})
		testapp.Sooner(t, "the message is poisoned", func() bool { return len(a.Poisoned()) == 1 })
		testapp.Sooner(t, "a line tells which message that is", func() bool {
			return strings.Contains(lines.String(),
				`level=ERROR msg="message poisoned" consumer=killer payload_type=order.placed message_id=`+a.Poisoned()[0].MessageID+
					` reason="process lost 3 times"`)
		})
		r.MustStop()
		got := a.Poisoned()[0]
		if got.Reason != "process lost 3 times" || got.Crashes != 3 || got.Attempts != 0 {
			t.Errorf("poisoned: got %+v, want 3 crashes, no attempts and the reason", got)
		}
		if ran.Load() != 0 {
			t.Errorf("the consumer ran %d times, want never", ran.Load())
		}
	})
}

func TestCrashedMessageRunsSolo(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var running, most atomic.Int64
		a := newApp(
			bus.Consume("suspect", func(context.Context, order) error {
				most.Store(max(most.Load(), running.Load()))
				<-time.After(3 * time.Second)
				most.Store(max(most.Load(), running.Load()))
				return nil
			}),
			bus.Consume("others", func(context.Context, refund) error {
				running.Add(1)
				defer running.Add(-1)
				<-time.After(100 * time.Millisecond)
				return nil
			}))
		a.ProduceAt(ctx, order{ID: "1"})
		a.Exec("UPDATE consumer_messages SET crashes = 2")
		for range 200 {
			a.ProduceAt(ctx, refund{ID: "x"})
		}
		r := a.StartWith(ctx, outbox.ProcessorConfig{Concurrency: 4})
		testapp.Sooner(t, "everything is done", a.Empty)
		r.MustStop()
		if got := most.Load(); got != 0 {
			t.Errorf("%d others ran next to a message that has crashed twice, want none", got)
		}
	})
}

func TestStopNowCutsTheDrainShort(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		a := newApp(bus.Consume("slow", func(ctx context.Context, _ order) error {
			<-ctx.Done()
			return ctx.Err()
		}, bus.Timeout(time.Hour)))
		a.ProduceAt(ctx, order{ID: "1"})
		r := a.StartWith(ctx, outbox.ProcessorConfig{DrainTimeout: time.Hour})
		testapp.Sooner(t, "it runs", func() bool { return r.Stats().Running == 1 })
		r.Close() // not stopping yet: no effect on the running consumer
		r.Stop(nil)
		<-time.After(10 * time.Minute)
		if r.Stats().Running != 1 {
			t.Error("the consumer does not run any more, want it to have its drain timeout")
		}
		start := time.Now()
		r.Close()
		if err := r.Wait(); err != nil {
			t.Errorf("run: got %v, want a clean drain", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("stopping took %s, want at once", took)
		}
		if rows := a.Pending(); len(rows) != 1 || rows[0].Attempts != 0 {
			t.Errorf("left: got %+v, want the message untouched", rows)
		}
	})
}

func TestUnregisteredMessagesAreReported(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var n atomic.Int64
		old := newApp(testapp.Counting("gone", &n), testapp.Counting("misfit", &n))
		old.ProduceAt(ctx, order{ID: "1"})
		old.Exec("UPDATE consumer_messages SET payload_type = 'order.unheard-of' WHERE consumer_type = 'misfit'")
		registry := testapp.Must[*bus.Registry](t)(bus.NewRegistry(testapp.Counting("misfit", &n)))
		a := *old
		a.Registry = registry
		var log testapp.Lines
		r := a.StartWith(ctx, outbox.ProcessorConfig{Logger: log.Logger()})
		<-time.After(10 * time.Minute)
		r.MustStop()
		for _, want := range []string{"consumer=gone payload_type=order.placed", "consumer=misfit payload_type=order.unheard-of"} {
			if strings.Count(log.String(), want) != 1 {
				t.Errorf("log: got %s, want one line with %q", log.String(), want)
			}
		}
		if n.Load() != 0 || len(a.Pending()) != 2 {
			t.Errorf("got %d runs and %d messages left, want both messages untouched", n.Load(), len(a.Pending()))
		}
	})
}

// TestLooksForWhatIsExpectedRest, however often somebody produces what nobody announces.
func TestLooksForWhatIsExpectedRest(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		a := newApp(testapp.Consumed("c"))
		var looks atomic.Int64
		a.DB = a.DB.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
			if strings.Contains(query, "0 AS kind") && !strings.Contains(query, "UNION ALL") {
				looks.Add(1)
			}
		}))
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		for range 500 {
			tx, err := a.DB.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			testapp.OK(t, testapp.Second(a.Producer.Produce(ctx, tx, order{ID: "1"})))
			testapp.OK(t, tx.Rollback())
			<-time.After(time.Millisecond)
		}
		r.MustStop()
		if n := looks.Load(); n < 20 || n > 110 {
			t.Errorf("got %d looks in half a second, want some, and 5ms between them", n)
		}
	})
}
