package guide_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/examples/guide"
)

func TestProcessManagerOfTheGuide(t *testing.T) {
	db := openMemory(t)
	if _, err := db.NewCreateTable().Model((*guide.Fulfilment)(nil)).Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	var asked []string
	manager := new(guide.ProcessManager)
	kit := bustest.NewKit(t, db, append(manager.Consumers(),
		bus.Consume("reserve", func(_ context.Context, e guide.ReserveGoods) error {
			asked = append(asked, "reserve "+e.OrderID)
			return nil
		}),
		bus.Consume("release", func(_ context.Context, e guide.ReleaseGoods) error {
			asked = append(asked, "release "+e.OrderID)
			return nil
		}),
		bus.Consume("ship", func(_ context.Context, e guide.ShipGoods) error { asked = append(asked, "ship "+e.OrderID); return nil }),
	)...)
	manager.Producer = kit.Producer
	want := func(what string, calls ...string) {
		t.Helper()
		kit.DrainUntilIdle()
		if !slices.Equal(asked, calls) {
			t.Errorf("%s: got %q, want %q", what, asked, calls)
		}
		asked = nil
	}
	kit.Produce(guide.OrderPlaced{OrderID: "1"})
	kit.Produce(guide.OrderPlaced{OrderID: "2"})
	want("placed", "reserve 1", "reserve 2")
	kit.Advance(time.Hour)
	kit.Produce(guide.OrderPaid{OrderID: "1"})
	kit.Produce(guide.OrderPaid{OrderID: "1"}) // the provider says so twice
	want("paid", "ship 1")
	kit.Advance(24 * time.Hour)
	want("overdue", "release 2")
	kit.Produce(guide.OrderPaid{OrderID: "2"}) // too late
	want("paid after the timeout")
	kit.Produce(guide.OrderPaid{OrderID: "3"}) // consumed before its order
	want("paid before it is placed")
	kit.Produce(guide.OrderPlaced{OrderID: "3"})
	want("placed after the payment", "reserve 3")
	kit.Advance(time.Hour)
	want("retried", "ship 3")
	kit.Advance(24 * time.Hour)
	want("overdue after the payment")
}
