package guide_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/asyncmonolith/asyncmonolith-go/examples/guide"
	"github.com/asyncmonolith/asyncmonolith-go/fxmodule"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func TestModulesOfTheGuideShareOnlyPayloads(t *testing.T) {
	db := openMemory(t)
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE parcels (order_id text); CREATE TABLE invoices (order_id text)"); err != nil {
		t.Fatal(err)
	}
	var producer *outbox.Producer
	app := fxtest.New(t, fx.NopLogger, fx.Supply(db, slog.New(slog.DiscardHandler), outbox.ProcessorConfig{DefaultTimeout: time.Second}),
		fxmodule.Module, fxmodule.Migrate(), guide.Parcels, guide.Invoices, fx.Populate(&producer))
	app.RequireStart()
	defer app.RequireStop()
	err := db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := producer.Produce(ctx, tx, guide.OrderPaid{OrderID: "o-1"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var order string
	for order == "" {
		err := db.QueryRowContext(ctx, "SELECT order_id FROM invoices JOIN parcels USING (order_id)").Scan(&order)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			t.Fatal(err)
		}
		<-tick.C
	}
	if order != "o-1" {
		t.Errorf("invoiced: got %q, want o-1", order)
	}
}
