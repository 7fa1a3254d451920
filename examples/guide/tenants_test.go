package guide_test

import (
	"context"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/examples/guide"
)

func TestTenantsOfTheGuideGetTheirOwnMessages(t *testing.T) {
	db, ctx := openMemory(t), t.Context()
	got := make(chan string, 2)
	for _, name := range []string{"acme", "brick"} {
		tenant, err := guide.OpenTenant(ctx, db, bus.Tables{Prefix: name + "_"}, // SQLite has no schemas
			bus.Consume("ship", func(_ context.Context, e guide.OrderPaid) error { got <- name + " ships " + e.OrderID; return nil }))
		if err != nil {
			t.Fatal(err)
		}
		err = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			_, err := tenant.Producer.Produce(ctx, tx, guide.OrderPaid{OrderID: "of " + name})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- tenant.Processor.Run(running) }()
		if first, want := <-got, name+" ships of "+name; first != want {
			t.Errorf("got %q, want %q", first, want)
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("processor of %s: %v", name, err)
		}
	}
	if len(got) > 0 {
		t.Errorf("got %q as well, want a message for each tenant", <-got)
	}
}
