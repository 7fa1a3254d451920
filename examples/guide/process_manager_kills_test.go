package guide_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/examples/guide"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// managerFile makes this test binary a process that runs the process manager on that file, until it is killed. It stands
// still for good at the place of managerPlace, if that is more than 0.
const (
	managerFile  = "ASYNCMONOLITH_TEST_MANAGER"
	managerPlace = "ASYNCMONOLITH_TEST_MANAGER_PLACE"
)

// goods is what was done with the goods of an order.
type goods struct {
	bun.BaseModel `bun:"table:goods"`

	OrderID string `bun:"order_id"`
	Did     string `bun:"did"`
}

// did is a consumer whose effect is a row.
func did[P bus.Payload](what string, order func(P) string) bus.Consumer {
	return outbox.ConsumeTx(what, func(ctx context.Context, tx bun.Tx, e P) error {
		_, err := tx.NewInsert().Model(&goods{OrderID: order(e), Did: what}).Exec(ctx)
		return err
	})
}

// newManager makes the process manager of a file. It calls place in its transactions after each message that it produces.
func newManager(path string, place func()) (*bun.DB, *bus.Registry, *outbox.Producer, error) {
	conns, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(15000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, nil, nil, err
	}
	manager, db := new(guide.ProcessManager), bun.NewDB(conns, sqlitedialect.New())
	registry, err := bus.NewRegistry(append(manager.Consumers(),
		did("reserve", func(e guide.ReserveGoods) string { return e.OrderID }),
		did("release", func(e guide.ReleaseGoods) string { return e.OrderID }),
		did("ship", func(e guide.ShipGoods) string { return e.OrderID }))...)
	if err != nil {
		return db, nil, nil, err
	}
	manager.Producer, err = outbox.NewProducer(registry, outbox.ProducerConfig{
		Middleware: []bus.ProduceMiddleware{func(next bus.ProduceFunc) bus.ProduceFunc {
			return func(ctx context.Context, b *bus.Batch) error {
				defer place()
				return next(ctx, b)
			}
		}},
	})
	return db, registry, manager.Producer, err
}

// runManager is what such a process does. Its places are in the transactions, and after their commits.
func runManager() error {
	at, err := strconv.ParseInt(os.Getenv(managerPlace), 10, 64)
	if err != nil {
		return err
	}
	var places atomic.Int64
	place := func() {
		if places.Add(1) == at {
			fmt.Println("stands still")
			select {}
		}
	}
	db, registry, _, err := newManager(os.Getenv(managerFile), place)
	if err != nil {
		return err
	}
	after := func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			err := next(ctx, m)
			place()
			return err
		}
	}
	logger := slog.New(slog.DiscardHandler)
	processor, err := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{
		LeaseDuration: time.Second, PollInterval: 20 * time.Millisecond, BatchSize: 2, AttemptDelay: 20 * time.Millisecond, MaxAttempts: 1000,
		Middleware: middleware.Default(middleware.Options{Logger: logger, Middleware: []bus.Middleware{after}}), Logger: logger,
	})
	if err != nil {
		return err
	}
	return processor.Run(context.Background())
}

// killManagers starts one process after the other, each of which is killed at its place. The last one has none: it is killed
// when all is done.
func killManagers(t *testing.T, path string, done func() bool, places ...int) {
	t.Helper()
	for _, place := range append(places, 0) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		process := exec.CommandContext(ctx, os.Args[0])
		process.Env = append(os.Environ(), managerFile+"="+path, fmt.Sprint(managerPlace, "=", place))
		process.Stderr = os.Stderr
		output, err := process.StdoutPipe()
		if err == nil {
			err = process.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if place > 0 {
			_, err = bufio.NewReader(output).ReadString('\n')
		} else {
			for err == nil && !done() {
				select {
				case <-time.After(10 * time.Millisecond):
				case <-ctx.Done():
					err = ctx.Err()
				}
			}
		}
		cancel() // kills it
		_ = process.Wait()
		if err != nil {
			t.Fatalf("a process does not come to place %d, of which 0 is the end: %v", place, err)
		}
	}
}

// TestProcessManagerOfTheGuideIsKilled at many places. Each order ends once, with the effects of its end.
func TestProcessManagerOfTheGuideIsKilled(t *testing.T) {
	const orders, soon, never = 12, 6, 3 // those that are paid at once, and not at all; the others are paid when they are overdue
	path := filepath.Join(t.TempDir(), "shop.db")
	db, registry, producer, err := newManager(path, func() {})
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(nil, err)
	defer db.Close()
	must(nil, outbox.Migrate(t.Context(), db, registry.Tables()))
	must(db.NewCreateTable().Model((*guide.Fulfilment)(nil)).Exec(t.Context()))
	must(db.NewCreateTable().Model((*goods)(nil)).Exec(t.Context()))
	client, err := admin.NewClient(registry)
	must(nil, err)

	for i := range orders {
		must(producer.Produce(t.Context(), db, guide.OrderPlaced{OrderID: fmt.Sprint(i)}))
	}
	pay := func(from, to int) {
		for i := 2 * from; i < 2*to; i++ { // the provider says so twice
			must(producer.Produce(t.Context(), db, guide.OrderPaid{OrderID: fmt.Sprint(i / 2)}))
		}
	}
	pay(0, soon)
	killManagers(t, path, func() bool {
		n, err := db.NewSelect().Model((*goods)(nil)).Count(t.Context())
		must(n, err)
		return n >= orders+soon
	}, 5, 8, 6, 10, 7)

	pay(soon+never, orders)
	overdue, _, err := client.List(t.Context(), db, admin.Filter{Consumer: "fulfilment.overdue"}, admin.Page{})
	must(nil, err)
	ids := make([]int64, len(overdue))
	for i, m := range overdue {
		ids[i] = m.ID
	}
	must(client.RunNow(t.Context(), db, ids...))
	killManagers(t, path, func() bool {
		n, err := client.Count(t.Context(), db, admin.Filter{})
		must(n, err)
		return n == 0
	}, 6, 5, 7, 4)

	for i := range orders {
		row := guide.Fulfilment{OrderID: fmt.Sprint(i)}
		must(nil, db.NewSelect().Model(&row).WherePK().Scan(t.Context()))
		var effects []string
		must(nil, db.NewSelect().Model((*goods)(nil)).Column("did").Where("order_id = ?", row.OrderID).Order("did").Scan(t.Context(), &effects))
		want := map[string][]string{"paid": {"reserve", "ship"}, "cancelled": {"release", "reserve"}}[row.State]
		if want == nil || !slices.Equal(effects, want) || i < soon && row.State != "paid" ||
			soon <= i && i < soon+never && row.State != "cancelled" {
			t.Errorf("order %d: got %s with the effects %q", i, row.State, effects)
		}
	}
}
