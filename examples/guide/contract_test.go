package guide_test

import (
	"context"
	"flag"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/examples/guide"
)

// snippet: contract
var _ = flag.Bool("update", false, "accept compatible changes")

// TestPayloads fails if a change breaks stored payloads.
func TestPayloads(t *testing.T) {
	registry, err := bus.NewRegistry(consumers()...)
	if err != nil {
		t.Fatal(err)
	}
	bustest.Contract(t, registry, "testdata/payloads.json")
}

// end

func consumers() []bus.Consumer {
	return []bus.Consumer{
		bus.Consume("post-invoice", func(context.Context, guide.InvoiceSent) error { return nil }),
		guide.NewTracking(func(context.Context, guide.OrderShipped) error { return nil }),
	}
}

// TestUpcast delivers an invoice of the release before.
func TestUpcast(t *testing.T) {
	var got []guide.InvoiceSent
	db := openMemory(t)
	kit := bustest.NewKit(t, db,
		bus.Consume("post-invoice", func(_ context.Context, e guide.InvoiceSent) error { got = append(got, e); return nil }))
	// snippet: old
	stored := &bus.Message{PayloadType: "invoice.sent", Payload: []byte(`{"order_id":"o-1","amount":19.99}`), Schema: 1}
	err := kit.Producer.Send(kit.Context(), db, stored)
	// end
	if err != nil {
		t.Fatal(err)
	}
	kit.DrainUntilIdle()
	if len(got) != 1 || got[0] != (guide.InvoiceSent{OrderID: "o-1", Cents: 1999}) {
		t.Errorf("got %+v, want it in cents", got)
	}
}
