package guide_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/examples/guide"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func TestWaitingForAll(t *testing.T) {
	var producer *outbox.Producer
	var did []string
	note := func(what string) error { did = append(did, what); return nil }
	db := openMemory(t)
	kit := bustest.NewKit(t, db,
		outbox.ConsumeTx("pack", func(ctx context.Context, tx bun.Tx, e guide.PackItem) error {
			switch e.Item {
			case "set":
				return guide.PackParts(ctx, tx, producer, e, []string{"cup", "plate"})
			case "lost":
				return bus.Permanent(errors.New("not on the shelf"))
			}
			return note("pack " + e.Item)
		}),
		bus.Consume("ship", func(_ context.Context, e guide.ShipOrder) error { return note("ship " + e.OrderID) }),
		bus.Consume("cancel", func(_ context.Context, e guide.CancelOrder) error { return note("cancel " + e.OrderID) }))
	producer = kit.Producer
	for order, items := range map[string][]string{"1": {"fork", "set"}, "2": {"lost"}, "3": nil} {
		if err := guide.PackOrder(t.Context(), db, producer, order, items); err != nil {
			t.Fatal(err)
		}
	}
	kit.DrainUntilIdle()
	shipped := slices.Index(did, "ship 1")
	for _, item := range []string{"fork", "cup", "plate"} {
		if packed := slices.Index(did, "pack "+item); packed < 0 || packed > shipped {
			t.Errorf("did %v, want %s to be packed before the order is shipped", did, item)
		}
	}
	slices.Sort(did)
	if want := []string{"cancel 2", "pack cup", "pack fork", "pack plate", "ship 1", "ship 3"}; !slices.Equal(did, want) {
		t.Errorf("did: got %v, want %v", did, want)
	}
}
