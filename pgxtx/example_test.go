package pgxtx_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/pgxtx"
)

// OrderPlaced is a payload.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
}

func (OrderPlaced) PayloadType() string { return "order.placed" }

// Write rows of the application and messages in one pgx.Tx.
func ExampleOf() {
	var (
		ctx      = context.Background()
		pool     *pgxpool.Pool // of the application
		producer *outbox.Producer
	)
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", "o-1"); err != nil {
			return err
		}
		_, err := producer.Produce(ctx, pgxtx.Of(tx), OrderPlaced{OrderID: "o-1"})
		return err
	})
	fmt.Println(err)
}

// The application and the library share a pool. A consumer gets a pgx.Tx.
func Example() {
	pool, err := pgxpool.New(context.Background(), "postgres://app:secret@127.0.0.1:1/shop?pool_max_conns=20")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	db := bun.NewDB(pgxtx.Open(pool), pgdialect.New())
	defer db.Close()
	registry, err := bus.NewRegistry(pgxtx.ConsumeTx("reserve-stock", func(ctx context.Context, tx pgx.Tx, e OrderPlaced) error {
		_, err := tx.Exec(ctx, "UPDATE orders SET reserved = TRUE WHERE id = $1", e.OrderID)
		return err
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = outbox.NewProcessor(db, registry, outbox.ProcessorConfig{}) // Run connects
	fmt.Println(db.Stats().MaxOpenConnections, err)
	// Output: 20 <nil>
}
