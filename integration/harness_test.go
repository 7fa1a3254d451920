package integration_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"go.uber.org/goleak"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if os.Getenv(childVariable) != "" {
		os.Exit(runChild())
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit))
}

// order is the payload of most tests.
type order struct {
	ID string `json:"id"`
	N  int    `json:"n"`
}

func (order) PayloadType() string { return "order.placed" }

// refund is a second payload type.
type refund struct {
	ID string `json:"id"`
}

func (refund) PayloadType() string { return "order.refunded" }

// app is an application under test: a database with tables, a registry and a
// producer.
type app struct {
	*testing.T
	db       *bun.DB
	registry *bus.Registry
	producer *outbox.Producer
}

func newApp(t *testing.T, db *bun.DB, consumers ...bus.Consumer) *app {
	t.Helper()
	registry, err := bus.NewRegistry(consumers...)
	if err != nil {
		t.Fatalf("registry: %v", err)
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		t.Fatalf("producer: %v", err)
	}
	if err := outbox.Migrate(t.Context(), db, registry.Tables()); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	return &app{T: t, db: db, registry: registry, producer: producer}
}

func (a *app) produce(payload bus.Payload, options ...outbox.Option) outbox.Receipt {
	a.Helper()
	receipt, err := a.producer.Produce(a.Context(), a.db, payload, options...)
	if err != nil {
		a.Fatalf("produce: %v", err)
	}
	return receipt
}

func (a *app) produceMany(n int) {
	a.Helper()
	items := make([]outbox.Item, n)
	for i := range items {
		items[i] = outbox.Item{Payload: order{ID: fmt.Sprint(i), N: i}}
	}
	if _, err := a.producer.ProduceMany(a.Context(), a.db, items...); err != nil {
		a.Fatalf("produce: %v", err)
	}
}

// fast is a configuration that keeps tests short: nothing waits long.
func fast() outbox.ProcessorConfig {
	return outbox.ProcessorConfig{
		AttemptDelay: time.Millisecond, PollInterval: 50 * time.Millisecond,
		ConsumerTimeout: 5 * time.Second, DrainTimeout: 5 * time.Second,
	}
}

// running is a processor that runs until it is stopped.
type running struct {
	*outbox.Processor
	t    *testing.T
	stop context.CancelCauseFunc
	done chan struct{}
	err  error
}

// start runs a processor; the test stops it at its end if it has not before.
func (a *app) start(config outbox.ProcessorConfig) *running {
	a.Helper()
	return a.startWith(context.WithoutCancel(a.Context()), config)
}

func (a *app) startWith(ctx context.Context, config outbox.ProcessorConfig) *running {
	a.Helper()
	processor, err := outbox.NewProcessor(a.db, a.registry, config)
	if err != nil {
		a.Fatalf("processor: %v", err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	r := &running{Processor: processor, t: a.T, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		if r.err = processor.Run(ctx); ctx.Err() == nil {
			a.Errorf("run: ended by itself with %v", r.err)
		}
	}()
	a.Cleanup(func() { r.stop(nil); <-r.done })
	return r
}

// wait stops the processor and returns what Run returned.
func (r *running) wait() error {
	r.stop(errors.New("test stops the processor"))
	<-r.done
	return r.err
}

// mustStop stops the processor, which must drain cleanly.
func (r *running) mustStop() {
	r.t.Helper()
	if err := r.wait(); err != nil {
		r.t.Fatalf("run: got %v, want a clean stop", err)
	}
}

// eventually polls until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	poll(t, what, 2*time.Minute, 2*time.Millisecond, condition)
}

func poll(t testing.TB, what string, patience, every time.Duration, condition func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("gave up waiting: %s", what)
		}
	}
}

// row is a message as the tests look at it.
type row struct {
	ID           int64  `bun:"id"`
	MessageID    string `bun:"message_id"`
	ConsumerType string `bun:"consumer_type"`
	PayloadType  string `bun:"payload_type"`
	Payload      string `bun:"payload"`
	Headers      string `bun:"headers"`
	InsertID     string `bun:"insert_id"`
	Attempts     int    `bun:"attempts"`
	Crashes      int    `bun:"crashes"`
	Errors       string `bun:"errors"`
	Reason       string `bun:"reason"`
}

func (a *app) pending() []row { a.Helper(); return a.rows("consumer_messages", "''") }

func (a *app) poisoned() []row { a.Helper(); return a.rows("poisoned_messages", "reason") }

func (a *app) rows(table, reason string) (rows []row) {
	a.Helper()
	err := reading(func() error {
		return a.db.NewRaw("SELECT id, message_id, consumer_type, payload_type, payload, headers, insert_id, attempts, crashes, errors, "+
			reason+" AS reason FROM "+table+" ORDER BY id").Scan(context.WithoutCancel(a.Context()), &rows)
	})
	if err != nil {
		a.Fatalf("read %s: %v", table, err)
	}
	return rows
}

func (a *app) count(query string, args ...any) (n int) {
	a.Helper()
	if err := reading(func() error { return a.db.NewRaw(query, args...).Scan(context.WithoutCancel(a.Context()), &n) }); err != nil {
		a.Fatalf("%s: %v", query, err)
	}
	return n
}

// empty tells whether nothing waits or is claimed any more.
func (a *app) empty() bool {
	return a.count("SELECT (SELECT count(*) FROM consumer_messages) + (SELECT count(*) FROM message_claims)") == 0
}

// retry repeats a statement of the test's own for as long as it loses conflicts,
// which it may where a stricter isolation is the database's default.
func insist(statement func() error) error {
	for {
		if err := statement(); !dberr.IsConflict(err) {
			return err
		}
	}
}

// reading also repeats a statement a few times whose connection is lost, as the tests
// lose them on purpose: the pool may hold several.
func reading(statement func() error) (err error) {
	for range 20 {
		if err = insist(statement); !dberr.IsUnavailable(err) {
			break
		}
	}
	return err
}

// nowOf is the clock of a database, as it stores instants, as SQL.
func nowOf(db *bun.DB) string {
	switch db.Dialect().Name() {
	case dialect.PG:
		return "statement_timestamp()"
	case dialect.MySQL:
		return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	}
	return "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
}

// exec runs a statement of the test's own.
func (a *app) exec(query string, args ...any) {
	a.Helper()
	err := insist(func() error {
		_, err := a.db.NewRaw(query, args...).Exec(context.WithoutCancel(a.Context()))
		return err
	})
	if err != nil {
		a.Fatalf("%s: %v", query, err)
	}
}
