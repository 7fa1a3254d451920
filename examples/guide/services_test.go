package guide_test

import (
	"context"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/examples/guide"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// wire is a broker of one subscription.
type wire chan []relay.Record

func (w wire) Publish(_ context.Context, records []relay.Record) []error {
	w <- append([]relay.Record(nil), records...)
	return nil
}

func (w wire) Subscribe(ctx context.Context, fn func(context.Context, []relay.Record) error) error {
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
	broker := make(wire, 1)
	kit := bustest.KitConfig{}.NewKit(t, openMemory(t), guide.ToServices(broker))
	kit.Produce(guide.OrderPlaced{OrderID: "7"})
	kit.DrainUntilIdle()
	records := <-broker
	if r := records[0]; len(records) != 1 || r.Destination != "orders.placed" || string(r.Body) != `{"number":"7"}` {
		t.Fatalf("published: got %+v, want the order as others are told of it", records)
	}
	broker <- records
	t.Run("receiver", func(t *testing.T) {
		db := openMemory(t)
		if err := outbox.Migrate(t.Context(), db, bus.Tables{}); err != nil { // so that it can be looked at below
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ship := bus.Consume("ship", func(context.Context, guide.OrderAccepted) error { return nil })
		done := make(chan error, 1)
		go func() { done <- guide.FromServices(ctx, db, broker, []bus.Consumer{ship}) }()
		for n := 0; n == 0; {
			if err := db.NewRaw("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'ship'").Scan(ctx, &n); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestForeignRecordsAreMapped has a record of another format become a message, and the next one parked.
func TestForeignRecordsAreMapped(t *testing.T) {
	broker := make(wire, 1)
	broker <- []relay.Record{{Body: []byte(`{"number":"8"}`)}, {Body: []byte(`{}`)}}
	db := openMemory(t)
	receiver := guide.FromElsewhere(broker)
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
	runner, err := relay.NewRunner(db, registry, producer, relay.RunnerConfig{}, receiver)
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
		if stats[0].New == 1 && stats[0].Parked == 1 {
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
	broker := make(wire, 1)
	kit := bustest.KitConfig{}.NewKit(t, openMemory(t), guide.MovedToPayments(broker))
	kit.Produce(guide.OrderPlaced{OrderID: "7"})
	kit.DrainUntilIdle()
	if r := (<-broker)[0]; r.Destination != "payments.order-placed" || r.Attributes["consumers"] != "charge-card" {
		t.Errorf("published: got %+v, want it for charge-card", r)
	}
}
