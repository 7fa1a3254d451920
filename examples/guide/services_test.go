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
		if err := outbox.Migrate(t.Context(), db, bus.Tables{}); err != nil {
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
