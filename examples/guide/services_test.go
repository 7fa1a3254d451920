package guide_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/examples/guide"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// wire is a broker of one subscription.
type wire chan []broker.Record

func (w wire) Publish(_ context.Context, records []broker.Record) []error {
	w <- append([]broker.Record(nil), records...)
	return nil
}

func (w wire) Subscribe(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
	select {
	case records := <-w:
		if err := fn(ctx, records); err != nil {
			return err
		}
	case <-ctx.Done():
	}
	<-ctx.Done()
	return nil
}

// TestServices has one service tell another of an order.
func TestServices(t *testing.T) {
	link := make(wire, 1)
	kit := bustest.KitConfig{}.NewKit(t, openMemory(t), guide.ToServices(link))
	kit.Produce(guide.OrderPlaced{OrderID: "7"})
	kit.DrainUntilIdle()
	records := <-link
	if r := records[0]; len(records) != 1 || r.Destination != "orders.placed" || string(r.Body) != `{"number":"7"}` {
		t.Fatalf("published: got %+v, want the order as others are told of it", records)
	}
	link <- records
	t.Run("receiver", func(t *testing.T) {
		db := openMemory(t)
		if err := outbox.Migrate(t.Context(), db, bus.Tables{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		shipped := make(chan string, 1)
		ship := bus.Consume("ship", func(_ context.Context, o guide.OrderAccepted) error { shipped <- o.Number; return nil })
		done := make(chan error, 1)
		go func() { done <- guide.FromServices(ctx, db, link, []bus.Consumer{ship}) }()
		select {
		case got := <-shipped:
			if got != "7" {
				t.Errorf("shipped: got %q, want order 7", got)
			}
		case err := <-done:
			t.Fatalf("it ended before anything was shipped: %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestShipping has an order of the shop shipped, in a service that makes its own tables.
func TestShipping(t *testing.T) {
	sub := make(wire, 1)
	sub <- []broker.Record{{ContentType: "application/json", Body: []byte(`{"order_id":"7"}`),
		Attributes: map[string]string{"specversion": "1.0", "id": "1", "source": "/orders", "type": "order.placed"}}}
	conns, err := sql.Open("sqlite", "file:"+t.TempDir()+
		"/shipping.db?_txlock=immediate&_pragma=busy_timeout(15000)&_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	db := bun.NewDB(conns, sqlitedialect.New())
	defer db.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	shipped, done := make(chan string, 1), make(chan error, 1)
	ship := func(_ context.Context, _ bun.Tx, o guide.OrderPlaced) error { shipped <- o.OrderID; return nil }
	go func() { done <- guide.Shipping(ctx, db, sub, ship) }()
	select {
	case got := <-shipped:
		if got != "7" {
			t.Errorf("shipped: got %q, want order 7", got)
		}
	case err := <-done:
		t.Fatalf("it ended before anything was shipped: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestForeignRecordsAreMapped has a record of another format become a message, and the next one parked.
func TestForeignRecordsAreMapped(t *testing.T) {
	sub := make(wire, 1)
	sub <- []broker.Record{{Body: []byte(`{"number":"8"}`)}, {Body: []byte(`{}`)}}
	db := openMemory(t)
	receiver := guide.FromElsewhere(sub)
	ship := bus.Consume("ship", func(context.Context, guide.OrderAccepted) error { return nil })
	registry, err := bus.NewRegistry(ship, receiver.Consumer())
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.Migrate(t.Context(), db, registry.Tables()); err != nil {
		t.Fatal(err)
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	runner, err := inbox.NewRunner(db, registry, producer, inbox.RunnerConfig{}, receiver)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx) }()
	for {
		stats, err := runner.Stats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if stats[0].Accepted == 1 && stats[0].Parked == 1 {
			break
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestAConsumerThatHasMoved forwards what is for it alone.
func TestAConsumerThatHasMoved(t *testing.T) {
	link := make(wire, 1)
	kit := bustest.KitConfig{}.NewKit(t, openMemory(t), guide.MovedToPayments(link))
	kit.Produce(guide.OrderPlaced{OrderID: "7"})
	kit.DrainUntilIdle()
	if r := (<-link)[0]; r.Destination != "payments.order-placed" || r.Attributes["consumers"] != "charge-card" {
		t.Errorf("published: got %+v, want it for charge-card", r)
	}
}
