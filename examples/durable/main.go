// The durable example fulfils two orders in three steps each, and then closes the day. Its process is killed in
// the middle of the third step of an order. The next process goes on there: it does not reserve or charge again.
// At the end the example shows what ran. It needs nothing but Go, and takes a few seconds.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// workerVariable has the program be a worker: "dies" or "lives".
const workerVariable = "DURABLE_WORKER"

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	if how := os.Getenv(workerVariable); how != "" {
		return work(ctx, os.Args[1], how == "dies")
	}
	dir, err := os.MkdirTemp("", "durable")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "shop.db")
	if err := orders(ctx, path); err != nil {
		return err
	}
	for _, how := range []string{"dies", "lives"} {
		fmt.Printf("A worker that %s:\n", how)
		worker := exec.CommandContext(ctx, os.Args[0], path)
		worker.Env = append(os.Environ(), workerVariable+"="+how)
		worker.Stdout, worker.Stderr = os.Stdout, os.Stderr
		err := worker.Run()
		if _, exited := errors.AsType[*exec.ExitError](err); err != nil && (!exited || how == "lives") {
			return err
		}
	}
	return show(ctx, path)
}

// orders produces a message for each order, and one for when all of them are fulfilled.
func orders(ctx context.Context, path string) error {
	db, registry, err := open(path, new(shop))
	if err != nil {
		return err
	}
	defer db.Close()
	if err := outbox.Migrate(ctx, db, registry.Tables()); err != nil {
		return err
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		return err
	}
	all := outbox.Group("monday")
	return producer.RunInTx(ctx, db, func(ctx context.Context, tx bun.Tx) error {
		for _, number := range []int{17, 18} {
			if _, err := producer.Produce(ctx, tx, Fulfil{Order: number}, all); err != nil {
				return err
			}
		}
		return producer.WhenDone(ctx, tx, all, CloseDay{Day: "monday"})
	})
}

// show prints what ran.
func show(ctx context.Context, path string) error {
	db, registry, err := open(path, new(shop))
	if err != nil {
		return err
	}
	defer db.Close()
	client, err := admin.NewClient(registry)
	if err != nil {
		return err
	}
	consumed, _, err := client.Consumed(ctx, db, admin.ConsumedFilter{}, admin.Page{})
	if err != nil {
		return err
	}
	fmt.Println("What ran, the newest first:")
	for _, m := range consumed {
		fmt.Printf("  %s %s: %s, attempt %d\n", m.Consumer, m.Payload, m.Outcome, m.Attempts)
	}
	return nil
}

// work runs a processor until nothing is left.
func work(ctx context.Context, path string, dies bool) error {
	db, registry, err := open(path, &shop{dies: dies})
	if err != nil {
		return err
	}
	defer db.Close()
	processor, err := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{
		LeaseDuration: time.Second, // after which others recover the messages of a process that is gone
		Logger:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- processor.Run(ctx) }()
	for left := int64(1); left > 0; {
		select {
		case err := <-done:
			return err
		case <-time.After(50 * time.Millisecond):
		}
		const pending = "SELECT (SELECT count(*) FROM consumer_messages) + (SELECT count(*) FROM message_groups)"
		if err := db.NewRaw(pending).Scan(ctx, &left); err != nil {
			return err
		}
	}
	stop()
	return <-done
}

func open(path string, s *shop) (*bun.DB, *bus.Registry, error) {
	conns, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(15000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, nil, err
	}
	registry, err := bus.NewRegistry(
		bus.Consume("fulfil", s.fulfil, bus.Concurrency(1), bus.Keep(24*time.Hour), bus.KeepPayload()),
		bus.Consume("close-day", s.closeDay, bus.Keep(24*time.Hour), bus.KeepPayload()))
	if err != nil {
		return nil, nil, errors.Join(err, conns.Close())
	}
	return bun.NewDB(conns, sqlitedialect.New()), registry, nil
}
