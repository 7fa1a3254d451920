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
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func TestLostConnectionOfATransactionCostsNoAttempt(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	killer := testdb.OpenPostgres(t, dsn)
	var runs atomic.Int64
	a := testapp.New(t, testdb.OpenPostgres(t, dsn), outbox.ConsumeTx("c", func(ctx context.Context, tx bun.Tx, _ order) error {
		if m, _ := bus.MessageFromContext(ctx); m.Attempt != 1 {
			t.Errorf("attempt: got %d, want 1 however often the connection is lost", m.Attempt)
		}
		if runs.Add(1) > 3 {
			return nil
		}
		var pid int
		if err := tx.NewRaw("SELECT pg_backend_pid()").Scan(ctx, &pid); err != nil {
			return err
		}
		if _, err := killer.NewRaw("SELECT pg_terminate_backend(?)", pid).Exec(ctx); err != nil {
			return err
		}
		return tx.NewRaw("SELECT 1").Scan(ctx, new(int))
	}))
	a.Produce(order{ID: "1"})
	r := a.Start(testapp.Fast())
	testapp.Eventually(t, "it is consumed", a.Empty)
	r.MustStop()
	if len(a.Poisoned()) != 0 || runs.Load() != 4 {
		t.Errorf("got %d runs and %d poisoned, want a fourth run that succeeds", runs.Load(), len(a.Poisoned()))
	}
}

// foreignConflict is a serialization failure of some other database.
type foreignConflict struct{}

func (foreignConflict) Error() string    { return "could not serialize access" }
func (foreignConflict) SQLState() string { return "40001" }

func TestConflictsOfOtherDatabasesCount(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db,
			outbox.ConsumeTx("foreign", func(context.Context, bun.Tx, order) error { return foreignConflict{} }, bus.MaxAttempts(2),
				bus.Timeout(2*time.Second)),
			outbox.ConsumeTx("permanent", func(context.Context, bun.Tx, order) error { return bus.Permanent(foreignConflict{}) },
				bus.Timeout(2*time.Second)))
		a.Produce(order{ID: "1"})
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "both are poisoned", func() bool { return len(a.Poisoned()) == 2 })
		r.MustStop()
	})
}

func TestFenceLeavesLockTimeoutToTheConsumer(t *testing.T) {
	t.Parallel()
	var got atomic.Value
	dsn := testdb.PostgresDSN(t, "lock_timeout=7s")
	a := testapp.New(t, testdb.OpenPostgres(t, dsn), outbox.ConsumeTx("c", func(ctx context.Context, tx bun.Tx, _ order) error {
		var setting string
		if err := tx.NewRaw("SELECT current_setting('lock_timeout')").Scan(ctx, &setting); err != nil {
			return err
		}
		got.Store(setting)
		return nil
	}))
	a.Produce(order{ID: "1"})
	r := a.Start(testapp.Fast())
	testapp.Eventually(t, "it is consumed", a.Empty)
	r.MustStop()
	if got.Load() != "7s" {
		t.Errorf("lock_timeout inside the consumer: got %v, want the application's 7s", got.Load())
	}
}

func TestExhaustedPoolDoesNotHoldUpAStop(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	a := testapp.New(t, db, outbox.ConsumeTx("c", func(context.Context, bun.Tx, order) error { return nil }))
	config := testapp.Fast()
	config.Fetchers, config.TxConcurrency, config.DrainTimeout = 1, 1, 100*time.Millisecond
	db.SetMaxOpenConns(3)
	a.DB = db.WithQueryHook(&beforeOnce{match: "INSERT INTO \"message_claims\"", do: func() {
		// One claims, one renews leases, and the application takes the third and keeps it.
		conn, err := db.Conn(context.Background())
		if err != nil {
			t.Error(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}})
	a.Produce(order{ID: "1"})
	r := a.Start(config)
	testapp.Eventually(t, "it is claimed", func() bool { return r.Stats().Claimed == 1 })
	start := time.Now()
	_ = r.Wait() // it may report what it could not settle
	if took := time.Since(start); took > time.Minute {
		t.Errorf("stopping took %s, want no longer than a statement may take", took)
	}
}

func TestKillersRunBetweenLongHandlers(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var ran testapp.Moments
		a := newApp(
			bus.Consume("suspect", func(context.Context, refund) error { ran.Add(); return nil }),
			bus.Consume("long", func(context.Context, order) error { <-time.After(5 * time.Second); return nil }))
		a.ProduceAt(ctx, refund{ID: "1"})
		a.Exec("UPDATE consumer_messages SET crashes = 2")
		for i := range 60 {
			a.ProduceAt(ctx, order{ID: fmt.Sprint(i)})
		}
		start := time.Now()
		r := a.StartWith(ctx, outbox.ProcessorConfig{Concurrency: 1})
		testapp.Sooner(t, "the suspect runs", func() bool { return ran.Len() == 1 })
		r.MustStop()
		if took := ran.At(0).Sub(start); took > time.Minute {
			t.Errorf("ran after %s, want before the backlog of 5 minutes is done", took)
		}
	})
}

func TestManyDeadClaimsAreRecoveredAtOnce(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var n atomic.Int64
		a := newApp(testapp.Counting("c", &n))
		for i := range 100 {
			a.ProduceAt(ctx, order{ID: fmt.Sprint(i)})
			vanish(ctx, a, time.Second, false)
		}
		<-time.After(2 * time.Second)
		start := time.Now()
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		testapp.Sooner(t, "everything runs", func() bool { return n.Load() == 100 && a.Empty() })
		if took := time.Since(start); took > 10500*time.Millisecond {
			t.Errorf("took %s, want them recovered right after the grace of a third of a lease", took)
		}
		r.MustStop()
	})
}

func TestZeroHandlesAreErrors(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	a := testapp.New(t, testdb.SQLite(t), testapp.Counting("c", &n))
	raw, err := a.DB.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Rollback() //nolint:errcheck // nothing is written
	for name, handle := range map[string]bun.IDB{"no handle": nil, "a Tx by hand": bun.Tx{Tx: raw}, "a zero DB": &bun.DB{},
		"a nil *DB": (*bun.DB)(nil), "a zero Tx": bun.Tx{}, "a zero Conn": bun.Conn{}, "a nil *Tx": (*bun.Tx)(nil),
		"a nil *Conn": (*bun.Conn)(nil)} {
		if _, err := a.Producer.Produce(t.Context(), handle, order{}); err == nil {
			t.Errorf("%s: got no error", name)
		}
		if _, err := a.Scheduler().Create(t.Context(), handle, order{}, "@daily", "UTC"); err == nil {
			t.Errorf("%s: schedule: got no error", name)
		}
	}
	testapp.OK(t, raw.Rollback())
	err = a.DB.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := a.Producer.Produce(ctx, &tx, order{})
		return errors.Join(err, errOutage)
	})
	if !errors.Is(err, errOutage) || a.Count("SELECT count(*) FROM consumer_messages") != 0 {
		t.Errorf("produce in a *bun.Tx that is rolled back: got %v and %d messages", err, a.Count("SELECT count(*) FROM consumer_messages"))
	}
}

// A layer may send in parts, and fail between them or at last.
// Promise: all-or-none
func TestPartsSentByALayerAreAllOrNone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &n))
		for _, parts := range []int{1, 2} {
			inParts := func(next bus.ProduceFunc) bus.ProduceFunc {
				return func(ctx context.Context, b *bus.Batch) error {
					for _, m := range b.Messages[:parts] {
						part := *b
						part.Messages = []*bus.Message{m}
						if err := next(ctx, &part); err != nil {
							return err
						}
					}
					if b.Messages[1].Headers["last"] != "" {
						return nil
					}
					return errOutage
				}
			}
			producer, err := outbox.NewProducer(a.Registry, outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{inParts}})
			if err != nil {
				t.Fatal(err)
			}
			items := []outbox.Item{{Payload: order{ID: "1"}}, {Payload: order{ID: "2"}}}
			if _, err := producer.ProduceMany(t.Context(), db, items...); !errors.Is(err, errOutage) || len(a.Pending()) != 0 {
				t.Fatalf("%d parts: got %v and %d messages, want the layer's error and none", parts, err, len(a.Pending()))
			}
			if parts == 2 {
				items[1].Options = []outbox.Option{outbox.Header("last", "yes")}
				r := a.Start(outbox.ProcessorConfig{PollInterval: time.Hour})
				if _, err := producer.ProduceMany(t.Context(), db, items...); err != nil {
					t.Errorf("%d parts: got %v, want no error", parts, err)
				}
				testapp.Eventually(t, "both run, since the commit is announced", func() bool { return n.Load() == 2 })
				r.MustStop()
			}
		}
	})
}

// TestLayersThatRunAgainSeeWhatWasProduced: a transaction of the library's own is repeated when it loses a conflict.
func TestLayersThatRunAgainSeeWhatWasProduced(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		tries := 0
		seal := func(next bus.ProduceFunc) bus.ProduceFunc {
			return func(ctx context.Context, b *bus.Batch) error {
				for _, m := range b.Messages {
					m.Payload = fmt.Appendf(nil, `{"sealed":%s}`, m.Payload)
					m.Headers["sealed"] += "x"
				}
				err := next(ctx, b)
				if tries++; tries < 3 {
					return errors.Join(err, new(lostConflict))
				}
				return err
			}
		}
		producer := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry,
			outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{seal}}))
		receipt, err := producer.Produce(t.Context(), db, order{ID: "1"}, outbox.Header("sealed", "by "))
		rows := a.Pending()
		if err != nil || tries != 3 || len(rows) != 1 || rows[0].MessageID != receipt.MessageID.String() {
			t.Fatalf("got %+v, error %v after %d tries, want one message after three", rows, err, tries)
		}
		if strings.Count(rows[0].Payload, "sealed") != 1 || !strings.Contains(rows[0].Headers, `"by x"`) {
			t.Errorf("got %s with headers %s, want what the layer does, once", rows[0].Payload, rows[0].Headers)
		}
	})
}

func TestProduceBesideTheTransactionIsRefused(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &n))
		err := a.Producer.RunInTx(t.Context(), db, func(ctx context.Context, _ bun.Tx) error {
			_, err := a.Producer.Produce(ctx, db, order{})
			return err
		})
		if !errors.Is(err, outbox.ErrNotInTx) || len(a.Pending()) != 0 {
			t.Errorf("got %v and %d messages, want ErrNotInTx", err, len(a.Pending()))
		}
		err = a.Producer.RunInTx(t.Context(), db, func(ctx context.Context, _ bun.Tx) error {
			return a.Producer.RunInTx(ctx, db, func(context.Context, bun.Tx) error { t.Error("a transaction within ran"); return nil })
		})
		if !errors.Is(err, outbox.ErrNotInTx) {
			t.Errorf("a transaction within: got %v, want ErrNotInTx", err)
		}
	})
}

// TestWhatIsSentAgainIsAsGiven: a transaction may be repeated with the same messages.
func TestWhatIsSentAgainIsAsGiven(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		seal := bus.PerMessage(func(_ context.Context, m *bus.Message) error {
			m.Payload = fmt.Appendf(nil, `{"sealed":%s}`, m.Payload)
			m.Headers["sealed"] += "x"
			return nil
		})
		producer := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry,
			outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{seal}}))
		m := &bus.Message{PayloadType: order{}.PayloadType(), Payload: []byte(`{"id":"1"}`), Headers: map[string]string{"sealed": "by "}}
		undone := errors.New("undone")
		for _, result := range []error{undone, nil} {
			err := producer.RunInTx(t.Context(), db,
				func(ctx context.Context, tx bun.Tx) error { return errors.Join(producer.Send(ctx, tx, m), result) })
			if result == nil && err != nil || !errors.Is(err, result) {
				t.Fatal(err)
			}
		}
		rows := a.Pending()
		if len(rows) != 1 || rows[0].MessageID != m.ID.String() || strings.Count(rows[0].Payload, "sealed") != 1 ||
			!strings.Contains(rows[0].Headers, `"by x"`) {
			t.Errorf("got %+v, want message %s with what the layer does, once", rows, m.ID)
		}
	})
}

// TestAnInstantAtInfinityStopsNoPoll: somebody has put off a message for ever by hand.
func TestAnInstantAtInfinityStopsNoPoll(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	a := testapp.New(t, testdb.Postgres(t), testapp.Counting("c", &runs))
	for _, at := range []string{"infinity", "-infinity", "294276-12-31"} {
		a.Exec("INSERT INTO consumer_messages (message_id, consumer_type, payload_type, payload, created_at, available_after) VALUES (gen_random_uuid(), 'c', 'order.placed', '{}', now(), ?)", at)
	}
	r := a.Start(testapp.Fast())
	testapp.Eventually(t, "the one that is due ran", func() bool { return runs.Load() == 1 })
	elsewhere := testapp.New(t, a.DB, testapp.Consumed("c"))
	elsewhere.Produce(order{ID: "1"}) // which only a poll can find
	testapp.Eventually(t, "that of another process ran", func() bool { return runs.Load() == 2 })
	if health := r.Health(); !health.Ready {
		t.Errorf("health: got %+v, want ready", health)
	}
	r.MustStop()
}
