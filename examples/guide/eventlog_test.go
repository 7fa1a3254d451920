package guide_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/examples/guide"
)

// newWarehouse makes a warehouse in a database in memory, and a kit that runs its
// reactors.
func newWarehouse(t *testing.T, told *[]string) (*guide.Warehouse, *bustest.Kit) {
	t.Helper()
	db := openMemory(t)
	types, err := guide.ItemEvents()
	if err != nil {
		t.Fatal(err)
	}
	kit := bustest.KitConfig{Registry: bus.RegistryConfig{Events: types}}.NewKit(t, db,
		bus.Consume("tell-customer", func(_ context.Context, e guide.Sent) error { *told = append(*told, e.Order); return nil }))
	log, err := eventlog.NewLog(kit.Registry, kit.Producer, eventlog.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	runner, err := projection.NewRunner(db, log, projection.RunnerConfig{}, guide.StockProjection(), guide.StockProjection2())
	if err != nil {
		t.Fatal(err)
	}
	return &guide.Warehouse{DB: db, Log: log, Stock: runner}, kit
}

func createStock(t *testing.T, db *bun.DB) {
	t.Helper()
	for _, model := range []any{(*guide.StockRow)(nil), (*guide.StockRow2)(nil)} {
		if _, err := db.NewCreateTable().Model(model).Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEventLog(t *testing.T) {
	var told []string
	w, kit := newWarehouse(t, &told)
	ctx := kit.Context() // the clock that Replay asks
	createStock(t, w.DB)
	send := func(ctx context.Context, tx bun.Tx) error {
		_, err := w.Log.Append(ctx, tx, "item-book", eventlog.AnyVersion, guide.Received{Count: 10}, guide.Sent{Count: 3, Order: "o-1"})
		return err
	}
	// snippet: drain
	if err := w.Log.RunInTx(ctx, w.DB, send); err != nil {
		t.Fatal(err)
	}
	kit.DrainUntilIdle()                            // the reactors
	if _, err := w.Stock.CatchUp(ctx); err != nil { // the projections
		t.Fatal(err)
	}
	// end
	var row guide.StockRow
	if err := w.DB.NewSelect().Model(&row).Scan(ctx); err != nil || row.Count != 7 {
		t.Errorf("stock: got %+v and %v, want 7 books", row, err)
	}
	var second guide.StockRow2
	if err := w.DB.NewSelect().Model(&second).Scan(ctx); err != nil || second.Count != 7 || second.Moves != 2 {
		t.Errorf("stock of version 2: got %+v and %v, want 7 books in 2 moves", second, err)
	}
	if n, err := w.TellAgain(ctx); n != 1 || err != nil {
		t.Errorf("replay: got %d and %v, want one message", n, err)
	}
	kit.DrainUntilIdle()
	if strings.Join(told, " ") != "o-1 o-1" {
		t.Errorf("told: got %v, want o-1 twice", told)
	}
	if err := w.Promote(ctx); err != nil {
		t.Error(err)
	}
}

func TestReadYourWrites(t *testing.T) {
	w, _ := newWarehouse(t, new([]string))
	createStock(t, w.DB)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.Stock.Run(ctx) }()
	if err := w.Receive(ctx, "book", 10); err != nil {
		t.Error(err)
	}
	if n, err := w.DB.NewSelect().Model((*guide.StockRow)(nil)).Where("count = 10").Count(ctx); n != 1 || err != nil {
		t.Errorf("own write: got %d rows and %v, want one", n, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestOldItems(t *testing.T) {
	types, err := guide.ItemEvents()
	if err != nil {
		t.Fatal(err)
	}
	text, err := types.Upcast(t.Context(), "item.bought", 1, []byte(`{"dozens": 2}`))
	if string(text) != `{"count":24}` || err != nil {
		t.Errorf("upcast: got %s and %v, want 24", text, err)
	}
}
