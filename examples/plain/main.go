// Plain runs AsyncMonolith without fx: every part is made, started and stopped
// by hand. Every second a schedule asks for a heartbeat, and a consumer gives it,
// until SIGINT. The database is a SQLite file: go run ./examples/plain -db plain.db
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite" // the driver "sqlite"
	_ "time/tzdata"        // for systems without time zones

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// HeartbeatDue is the payload.
type HeartbeatDue struct{}

// PayloadType is the name under which it is stored.
func (HeartbeatDue) PayloadType() string { return "heartbeat.due" }

func main() {
	path := flag.String("db", "plain.db", "SQLite `file`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *path, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run works until ctx ends, and then stops cleanly.
func run(ctx context.Context, path string, out io.Writer) (err error) {
	// snippet: open
	conns, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(15000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return err
	}
	db := bun.NewDB(conns, sqlitedialect.New())
	// end
	defer func() { err = errors.Join(err, db.Close()) }()
	beat := func(context.Context, HeartbeatDue) error { _, err := fmt.Fprintln(out, "beat"); return err }
	return process(ctx, db, bus.Consume("beat", beat))
}

// snippet: wiring

// process makes every part and runs the processors until ctx ends.
func process(ctx context.Context, db *bun.DB, consumers ...bus.Consumer) error {
	registry, err := bus.NewRegistry(consumers...)
	if err != nil {
		return err
	}
	if err := outbox.Migrate(ctx, db, registry.Tables()); err != nil {
		return err
	}
	producer, producerErr := outbox.NewProducer(registry, outbox.ProducerConfig{})
	scheduler, schedulerErr := schedule.NewScheduler(registry, schedule.Config{})
	messages, messagesErr := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{})
	schedules, schedulesErr := schedule.NewProcessor(db, registry, producer, schedule.ProcessorConfig{})
	if err := errors.Join(producerErr, schedulerErr, messagesErr, schedulesErr); err != nil {
		return err
	}
	_, err = scheduler.Schedule(ctx, db, HeartbeatDue{}, "@every_second", "UTC", schedule.Name("heartbeat"))
	if err != nil {
		return err
	}

	ctx, stop := context.WithCancel(ctx) // when one ends, so does the other
	defer stop()
	ended := make(chan error)
	for _, part := range []func(context.Context) error{messages.Run, schedules.Run} {
		go func() { defer stop(); ended <- part(ctx) }()
	}
	return errors.Join(<-ended, <-ended)
}

// end
