package bustest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// KitConfig configures a [Kit] for applications with their own settings. The zero value works;
// [NewKit] uses it.
type KitConfig struct {
	// Registry configures the tables and the codec. Defaults to plain names and JSON.
	Registry bus.RegistryConfig
	// Producer configures Kit.Producer. Zero fields mean the defaults.
	Producer outbox.ProducerConfig
	// Processor configures how messages run: the middleware, MaxAttempts, AttemptDelay. Zero
	// fields mean the defaults, except that the backoff has no jitter: failed messages wait for
	// AttemptDelay, twice that, and so on, up to 15 minutes. A Middleware chain is used unchanged.
	// The Logger defaults to the test's log.
	Processor outbox.ProcessorConfig
	// Scheduler configures Kit.Scheduler. Zero fields mean the defaults.
	Scheduler schedule.SchedulerConfig
	// Schedules configures how schedules fire. Zero fields mean the defaults; the Logger defaults
	// to the Processor's.
	Schedules schedule.ProcessorConfig
	// Start is the kit's clock before the first Advance. Defaults to time.Now().
	Start time.Time
	// IDs makes the ids of Kit.Producer's messages; see [SequentialIDs]. Defaults to the
	// producer's own random ids.
	IDs func() uuid.UUID
	// Limit is how many messages one drain may run, and how many schedules one Advance may fire,
	// before the test fails. Defaults to 1000.
	Limit int
}

// Kit runs an application's consumers in a test, one call at a time. Pass its Producer and
// Scheduler to the application's code.
//
// A Kit belongs to one test, whose goroutine calls its methods; only Context and Now may be called
// from other goroutines. Methods fail the test on an error.
type Kit struct {
	// Registry has the consumers.
	Registry *bus.Registry
	// Producer writes messages that are due by the kit's clock, with any context.
	Producer *outbox.Producer
	// Scheduler writes schedules. It reads the time from the context: use one derived from
	// [Kit.Context].
	Scheduler *schedule.Scheduler
	// Admin and Poison read and change pending and poisoned messages. Call them with a context
	// derived from [Kit.Context], and the kit's database.
	Admin  *admin.Client
	Poison *poison.Store

	t         testing.TB
	db        *bun.DB
	clock     atomic.Pointer[time.Time] // stands still until a method moves it; consumers read it
	store     *store.Store
	processor *outbox.Processor
	schedules *schedule.Processor
	lease     time.Duration
	limit     int
	ids       func() uuid.UUID
	steady    bool // the chain is the default one: backoff without jitter

	places sync.Map // by message id, of messages with a key or a priority

	repeat repeat            // of a check in progress, otherwise nil
	crash  func(step string) // called after each stored step, if not nil
	lost   map[delivery]bool // messages whose first outcome the check dropped; true until they are redelivered

	mu        sync.Mutex                // messages of a batch pass through the chain concurrently
	ran       []Delivery                // by the current step
	recovered bool                      // the current step's claims were recovered, so its outcomes do not count
	delivered map[uuid.UUID]bus.Message // all delivered messages, as first delivered
	problem   string                    // an error found by the check
}

// NewKit makes a kit for the consumers on the caller's database. It creates the library's tables,
// and fails the test if a consumer or the database cannot be used. Use the test's own database:
// the kit runs all messages in its tables.
func NewKit(t testing.TB, db *bun.DB, consumers ...bus.Consumer) *Kit {
	t.Helper()
	return KitConfig{}.NewKit(t, db, consumers...)
}

// NewKit makes a kit; see the function [NewKit].
func (c KitConfig) NewKit(t testing.TB, db *bun.DB, consumers ...bus.Consumer) *Kit {
	t.Helper()
	k := &Kit{t: t, db: db, lease: c.Processor.LeaseDuration, limit: c.Limit, ids: c.IDs, delivered: map[uuid.UUID]bus.Message{}}
	if err := k.build(c, consumers); err != nil {
		t.Fatalf("bustest: NewKit: %v", err)
	}
	if err := outbox.Migrate(k.Context(), db, k.Registry.Tables()); err != nil {
		t.Fatalf("bustest: NewKit: %v", err)
	}
	return k
}

func (k *Kit) build(c KitConfig, consumers []bus.Consumer) (err error) {
	if k.db == nil || k.db.DB == nil {
		return errors.New("the database handle is nil")
	}
	if c.Start.IsZero() {
		c.Start = time.Now()
	}
	k.turnTo(c.Start.UTC().Truncate(time.Microsecond)) // the precision of the databases
	if k.limit <= 0 {
		k.limit = 1000
	}
	k.lease = cmp.Or(k.lease, 30*time.Second)
	if c.Registry.Dialect == nil {
		c.Registry.Dialect = k.db.Dialect()
	}
	if k.Registry, err = c.Registry.NewRegistry(consumers...); err != nil {
		return err
	}
	if k.store, err = store.For(k.db.Dialect().Name(), k.Registry.Tables()); err != nil {
		return err
	}
	c.Producer.Middleware = append([]bus.ProduceMiddleware{k.stamp}, c.Producer.Middleware...)
	if k.Producer, err = outbox.NewProducer(k.Registry, c.Producer); err != nil {
		return err
	}
	if k.Scheduler, err = schedule.NewScheduler(k.Registry, c.Scheduler); err != nil {
		return err
	}
	if k.Poison, err = poison.NewStore(k.Registry); err != nil {
		return err
	}
	if k.Admin, err = admin.NewClient(k.Registry); err != nil {
		return err
	}
	return k.buildProcessors(c)
}

func (k *Kit) buildProcessors(c KitConfig) (err error) {
	p := c.Processor
	p.LeaseDuration = k.lease
	p.Logger = cmp.Or(p.Logger, testLogger(k.t.Output()))
	if k.steady = p.Middleware == nil; k.steady {
		p.Middleware = middleware.Default(middleware.Options{Logger: p.Logger})
	}
	p.Middleware = append([]bus.Middleware{k.observe}, p.Middleware...)
	if k.processor, err = outbox.NewProcessor(k.db, k.Registry, p); err != nil {
		return err
	}
	c.Schedules.Logger = cmp.Or(c.Schedules.Logger, p.Logger)
	k.schedules, err = schedule.NewProcessor(k.db, k.Registry, k.Producer, c.Schedules)
	return err
}

// testLogger logs without the time, which is not the kit's.
func testLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// stamp is the outermost user layer of the produce chain. It makes the insert use the kit's time,
// so that code under test may use any context. It also stores keys and priorities, which the
// tables do not keep for all messages.
func (k *Kit) stamp(next bus.ProduceFunc) bus.ProduceFunc {
	return func(ctx context.Context, b *bus.Batch) error {
		if k.ids != nil {
			for _, m := range b.Messages {
				m.ID = k.ids()
			}
		}
		err := next(store.WithClock(ctx, k.Now), b)
		for _, m := range b.Messages {
			if m.OrderingKey != "" || m.Priority != bus.Normal {
				k.places.Store(m.ID, place{m.OrderingKey, m.Priority})
			}
		}
		return err
	}
}

// place is a message's key and priority.
type place struct {
	key      string
	priority bus.Priority
}

// Context returns the context for code under test: the library's statements use the kit's clock
// with it. It has the values of t.Context(), and is never cancelled.
func (k *Kit) Context() context.Context {
	return store.WithClock(context.WithoutCancel(k.t.Context()), k.Now)
}

// Now returns the time on the kit's clock, in UTC. The clock is for due times only: consumers'
// timeouts are in real time.
func (k *Kit) Now() time.Time { return *k.clock.Load() }

func (k *Kit) turnTo(t time.Time) { k.clock.Store(&t) }

// Produce produces a payload in its own transaction, as outbox.Producer does, and fails the test
// on an error.
func (k *Kit) Produce(payload bus.Payload, options ...outbox.Option) outbox.Receipt {
	k.t.Helper()
	receipt, err := k.Producer.Produce(k.Context(), k.db, payload, options...)
	if err != nil {
		k.t.Fatalf("bustest: Produce: %v", err)
	}
	return receipt
}
