package testapp

import (
	"context"
	"fmt"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/pending"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Order is the payload of most tests.
type Order struct {
	ID string `json:"id"`
	N  int    `json:"n"`
}

// PayloadType is its name in the tables.
func (Order) PayloadType() string { return "order.placed" }

// Refund is a second payload type.
type Refund struct {
	ID string `json:"id"`
}

// PayloadType is its name in the tables.
func (Refund) PayloadType() string { return "order.refunded" }

// App is an application under test: a database with tables, a registry and a
// producer.
type App struct {
	*testing.T
	DB       *bun.DB
	Registry *bus.Registry
	Producer *outbox.Producer
}

// New makes an application of these consumers and creates the tables.
func New(t *testing.T, db *bun.DB, consumers ...bus.Consumer) *App {
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
	return &App{T: t, DB: db, Registry: registry, Producer: producer}
}

// Produce produces in a transaction of its own.
func (a *App) Produce(payload bus.Payload, options ...outbox.Option) outbox.Receipt {
	a.Helper()
	receipt, err := a.Producer.Produce(a.Context(), a.DB, payload, options...)
	if err != nil {
		a.Fatalf("produce: %v", err)
	}
	return receipt
}

// ProduceAt is [App.Produce] on the clock of a context.
func (a *App) ProduceAt(ctx context.Context, payload bus.Payload, options ...outbox.Option) {
	a.Helper()
	if _, err := a.Producer.Produce(ctx, a.DB, payload, options...); err != nil {
		a.Fatalf("produce: %v", err)
	}
}

// ProduceMany produces orders that are numbered from 0.
func (a *App) ProduceMany(n int) {
	a.Helper()
	items := make([]outbox.Item, n)
	for i := range items {
		items[i] = outbox.Item{Payload: Order{ID: fmt.Sprint(i), N: i}}
	}
	if _, err := a.Producer.ProduceMany(a.Context(), a.DB, items...); err != nil {
		a.Fatalf("produce: %v", err)
	}
}

// Admin is one of the application.
func (a *App) Admin() *admin.Client {
	a.Helper()
	return Must[*admin.Client](a.T)(admin.NewClient(a.Registry))
}

// PendingReader is one of the application.
func (a *App) PendingReader() *pending.Reader { return pending.NewReader(a.Registry) }

// Scheduler is one of the application.
func (a *App) Scheduler() *schedule.Scheduler {
	a.Helper()
	s, err := schedule.NewScheduler(a.Registry, schedule.SchedulerConfig{})
	if err != nil {
		a.Fatalf("scheduler: %v", err)
	}
	return s
}
