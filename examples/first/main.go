// snippet: program

// First writes an order and its message in one transaction, and consumes the message.
package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite"
)

// OrderPlaced is a payload: a plain struct with a stable stored name.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
}

func (OrderPlaced) PayloadType() string { return "order.placed" }

// placeOrder commits the order and its messages together.
func placeOrder(ctx context.Context, db *sql.DB, producer *outbox.Producer, id string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", id); err != nil {
		return err
	}
	if _, err := producer.Produce(ctx, tx, OrderPlaced{OrderID: id}); err != nil {
		return err
	}
	return tx.Commit()
}

func newConsumers(out io.Writer) []bus.Consumer {
	return []bus.Consumer{
		// Runs at least once, retried with backoff if it returns an error.
		bus.Consume("send-receipt", func(ctx context.Context, e OrderPlaced) error {
			_, err := fmt.Fprintln(out, "receipt for", e.OrderID)
			return err
		}),
		// Its effects in tx and the removal of its message commit together: exactly once.
		outbox.ConsumeTx("reserve-stock", func(ctx context.Context, tx *sql.Tx, e OrderPlaced) error {
			fmt.Fprintln(out, "stock reserved for", e.OrderID)
			_, err := tx.ExecContext(ctx, "UPDATE orders SET reserved = TRUE WHERE id = ?", e.OrderID)
			return err
		}),
	}
}

func run(ctx context.Context, path string, out io.Writer) error {
	conns, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(15000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return err
	}
	defer conns.Close()
	_, err = conns.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, reserved BOOLEAN NOT NULL DEFAULT FALSE)")
	if err != nil {
		return err
	}
	db := bun.NewDB(conns, sqlitedialect.New()) // the library's own queries go through Bun
	registry, err := bus.RegistryConfig{Dialect: db.Dialect()}.NewRegistry(newConsumers(out)...)
	if err != nil {
		return err
	}
	if err := outbox.Migrate(ctx, db, registry.Tables()); err != nil { // the library's tables
		return err
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		return err
	}
	processor, err := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{})
	if err != nil {
		return err
	}
	if err := placeOrder(ctx, conns, producer, rand.Text()); err != nil {
		return err
	}
	return processor.Run(ctx) // until ctx ends and running consumers are done
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, "shop.db", os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// end
