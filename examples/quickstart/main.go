// The quickstart places an order in a transaction and lets consumers react to
// it. It needs no server: the database is a SQLite file in a temporary folder.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// snippet: payload

// OrderPlaced is a payload: a plain struct with a stable stored name.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
}

func (OrderPlaced) PayloadType() string { return "order.placed" }

// end

// FeedbackDue asks the customer how it went, a while later.
type FeedbackDue struct {
	OrderID string `json:"order_id"`
}

func (FeedbackDue) PayloadType() string { return "feedback.due" }

// Order is a table of the application.
type Order struct {
	bun.BaseModel `bun:"table:orders"`

	ID       string `bun:"id,pk"`
	Reserved bool   `bun:"reserved"`
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run tells the whole story to out.
func run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "quickstart")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := openDB(ctx, filepath.Join(dir, "shop.db"))
	if err != nil {
		return err
	}
	defer db.Close()

	story := newStory(out)
	shop := &shop{story: story}

	// snippet: wiring
	registry, err := bus.NewRegistry(
		bus.Consume("send-receipt", shop.SendReceipt),
		outbox.ConsumeTx("reserve-stock", shop.ReserveStock, bus.Timeout(2*time.Second)),
		bus.Consume("charge-card", shop.ChargeCard),
		bus.Consume("notify-warehouse", shop.NotifyWarehouse, bus.MaxAttempts(3)),
		bus.Consume("ask-for-feedback", shop.AskForFeedback),
	)
	if err != nil {
		return err // every wiring mistake at once
	}
	if err := outbox.Migrate(ctx, db, registry.Tables()); err != nil {
		return err
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{
		Chain: []bus.SendMiddleware{stampTenant},
	})
	if err != nil {
		return err
	}
	processor, err := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{
		AttemptDelay: 200 * time.Millisecond,
		Chain: middleware.Default(middleware.Options{
			Logger: slog.New(slog.DiscardHandler), // the story on stdout says it all
			User:   []bus.Middleware{story.tellOutcome},
		}),
	})
	if err != nil {
		return err
	}
	// end

	stop, stopped := start(ctx, processor)
	defer stop()

	if err := placeOrder(ctx, db, producer, story); err != nil {
		return err
	}
	story.wait(10 * time.Second)
	stop()
	if err := <-stopped; err != nil {
		return err
	}
	return story.printEnd(ctx, db)
}

// start runs the processor until stop is called; stopped then has its error.
func start(ctx context.Context, processor *outbox.Processor) (stop context.CancelFunc, stopped <-chan error) {
	ctx, stop = context.WithCancel(ctx)
	result := make(chan error, 1)
	go func() { result <- processor.Run(ctx) }()
	return stop, result
}

func openDB(ctx context.Context, path string) (*bun.DB, error) {
	conns, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, err
	}
	db := bun.NewDB(conns, sqlitedialect.New())
	if _, err := db.NewCreateTable().Model((*Order)(nil)).Exec(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// placeOrder writes the order and its messages in one transaction: either both
// are committed or neither is.
func placeOrder(ctx context.Context, db *bun.DB, producer *outbox.Producer, story *story) error {
	order := Order{ID: "o-1"}
	// snippet: produce
	err := producer.RunInTx(ctx, db, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&order).Exec(ctx); err != nil {
			return err
		}
		if _, err := producer.Produce(ctx, tx, OrderPlaced{OrderID: order.ID}); err != nil {
			return err
		}
		_, err := producer.Produce(ctx, tx, FeedbackDue{OrderID: order.ID},
			outbox.Delay(1500*time.Millisecond), outbox.InsertID("feedback:"+order.ID))
		return err
	})
	// end
	if err != nil {
		return err
	}
	story.tell("shop", "order %s is committed, and with it 4 messages and a delayed one", order.ID)

	again, err := producer.Produce(ctx, db, FeedbackDue{OrderID: order.ID}, outbox.InsertID("feedback:"+order.ID))
	if err != nil {
		return err
	}
	story.tell("shop", "the same insert id once more: %d written, %d duplicate", again.Enqueued, again.Duplicates)

	lost := errors.New("the customer changed their mind")
	err = producer.RunInTx(ctx, db, func(ctx context.Context, tx bun.Tx) error {
		if _, err := producer.Produce(ctx, tx, OrderPlaced{OrderID: "o-2"}); err != nil {
			return err
		}
		return lost
	})
	if !errors.Is(err, lost) {
		return fmt.Errorf("placing o-2: %w", err)
	}
	story.tell("shop", "order o-2 is rolled back, so nobody will ever hear of it")
	return nil
}
