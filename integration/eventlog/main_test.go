package eventlog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func TestMain(m *testing.M) { testapp.Main(m) }

// opened and moved are the events of most tests.
type opened struct {
	Owner string `json:"owner"`
}

func (opened) PayloadType() string { return "account.opened" }

type moved struct {
	Amount int `json:"amount"`
}

func (moved) PayloadType() string { return "account.moved" }

// secret is no event.
type secret struct{}

func (secret) PayloadType() string { return "secret" }

func types(t testing.TB, more ...eventlog.Type) *eventlog.Types {
	t.Helper()
	all, err := eventlog.NewTypes(append(more, eventlog.Event[opened](), eventlog.Event[moved]())...)
	if err != nil {
		t.Fatalf("types: %v", err)
	}
	return all
}

// app is an application under test.
type app struct {
	testing.TB
	ctx      context.Context
	db       *bun.DB
	registry *bus.Registry
	producer *outbox.Producer
	log      *eventlog.Log
}

type setup struct {
	types    *eventlog.Types
	producer outbox.ProducerConfig
	log      eventlog.LogConfig
	tables   bus.Tables
}

func newApp(t testing.TB, db *bun.DB, consumers ...bus.Consumer) *app {
	t.Helper()
	return setup{}.newApp(t, db, consumers...)
}

func (s setup) newApp(t testing.TB, db *bun.DB, consumers ...bus.Consumer) *app {
	t.Helper()
	if s.types == nil {
		s.types = types(t)
	}
	a := &app{TB: t, ctx: context.WithoutCancel(t.Context()), db: db}
	var err error
	if a.registry, err = (bus.RegistryConfig{Events: s.types, Tables: s.tables}).NewRegistry(consumers...); err != nil {
		t.Fatalf("registry: %v", err)
	}
	if a.producer, err = outbox.NewProducer(a.registry, s.producer); err != nil {
		t.Fatalf("producer: %v", err)
	}
	if a.log, err = eventlog.NewLog(a.registry, a.producer, s.log); err != nil {
		t.Fatalf("log: %v", err)
	}
	if err := outbox.Migrate(a.ctx, db, a.registry.Tables()); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	return a
}

// inTx runs fn in a transaction that wakes whoever waits for its commit: on
// PostgreSQL in one of READ COMMITTED, whatever the database's default, since
// appends of stricter ones may lose conflicts.
func (a *app) inTx(fn func(ctx context.Context, tx bun.Tx) error) error {
	if a.isPostgres() {
		return a.log.RunInTx(a.ctx, a.db, fn)
	}
	return a.producer.RunInTx(a.ctx, a.db, fn)
}

// try appends in a transaction of its own.
func (a *app) try(stream string, want eventlog.ExpectedVersion, events ...bus.Payload) (appended eventlog.Appended, err error) {
	err = a.inTx(func(ctx context.Context, tx bun.Tx) error {
		appended, err = a.log.Append(ctx, tx, stream, want, events...)
		return err
	})
	return appended, err
}

func (a *app) append(stream string, want eventlog.ExpectedVersion, events ...bus.Payload) eventlog.Appended {
	a.Helper()
	appended, err := a.try(stream, want, events...)
	if err != nil {
		a.Fatalf("append to %s: %v", stream, err)
	}
	return appended
}

func (a *app) number() int {
	a.Helper()
	n, err := a.log.AssignPositions(a.ctx, a.db)
	if err != nil {
		a.Fatalf("number: %v", err)
	}
	return n
}

func (a *app) stream(name string) (events []eventlog.RecordedEvent) {
	a.Helper()
	for event, err := range a.log.ReadStream(a.ctx, a.db, name, 0) {
		if err != nil {
			a.Fatalf("read stream %s: %v", name, err)
		}
		events = append(events, event)
	}
	return events
}

// all numbers and reads the log.
func (a *app) all(filter eventlog.Filter) (events []eventlog.RecordedEvent) {
	a.Helper()
	a.number()
	for event, err := range a.log.ReadLog(a.ctx, a.db, 0, filter) {
		if err != nil {
			a.Fatalf("read log: %v", err)
		}
		events = append(events, event)
	}
	return events
}

func (a *app) exec(query string, args ...any) {
	a.Helper()
	if _, err := a.db.NewRaw(query, args...).Exec(a.ctx); err != nil {
		a.Fatalf("%s: %v", query, err)
	}
}

func (a *app) count(query string, args ...any) (n int) {
	a.Helper()
	if err := a.db.NewRaw(query, args...).Scan(a.ctx, &n); err != nil {
		a.Fatalf("%s: %v", query, err)
	}
	return n
}

func (a *app) isPostgres() bool { return a.db.Dialect().Name().String() == "pg" }

// running runs something until the test, or its stop, ends it.
func running(t testing.TB, what string, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// process runs the consumers until the test ends.
func (a *app) process() {
	a.Helper()
	processor, err := outbox.NewProcessor(a.db, a.registry, outbox.ProcessorConfig{
		AttemptDelay: time.Millisecond, PollInterval: 50 * time.Millisecond, MaxAttempts: 2,
		DefaultTimeout: 5 * time.Second, DrainTimeout: 5 * time.Second,
	})
	if err != nil {
		a.Fatalf("processor: %v", err)
	}
	running(a, "processor", processor.Run)
}

// receive waits for a value.
func receive[T any](t testing.TB, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(time.Minute):
		t.Fatal("gave up waiting for a value")
	}
	return value
}

// eventually polls until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	testapp.Eventually(t, what, condition)
}

func wantConflict(t testing.TB, err error, actual int64) {
	t.Helper()
	conflict, ok := errors.AsType[*eventlog.ConflictError](err)
	if !ok || conflict.Actual != actual {
		t.Errorf("got error %v, want a conflict with version %d", err, actual)
	}
}

// consumeMoved makes a consumer that tells its attempts.
func consumeMoved(name string, run func(ctx context.Context, attempt int)) bus.Consumer {
	return bus.Consume(name, func(ctx context.Context, _ moved) error {
		m, _ := bus.MessageFromContext(ctx)
		run(ctx, m.Attempt)
		return nil
	})
}
