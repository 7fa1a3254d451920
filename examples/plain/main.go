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

	_ "time/tzdata" // for systems without time zones

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
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
	p, err := wire(ctx, db, bus.Consume("beat", beat))
	if err != nil {
		return err
	}
	_, err = p.Scheduler.Upsert(ctx, db, HeartbeatDue{}, "@every_second", "UTC", schedule.Name("heartbeat"))
	if err != nil {
		return err
	}
	return p.run(ctx)
}

// snippet: wiring

// parts holds what a program calls and what runs in the background.
type parts struct {
	DB        *bun.DB
	Registry  *bus.Registry
	Producer  *outbox.Producer
	Scheduler *schedule.Scheduler
	Poisoned  *poison.Store
	Admin     *admin.Client
	Service   *ops.Service

	messages   *outbox.Processor
	schedules  *schedule.Processor
	operations *ops.Runner
}

// wire creates the tables, and all parts from one registry.
func wire(ctx context.Context, db *bun.DB, consumers ...bus.Consumer) (*parts, error) {
	registry, err := bus.RegistryConfig{Dialect: db.Dialect()}.NewRegistry(consumers...) // Dialect: for transactions of other libraries
	if err != nil {
		return nil, err
	}
	if err := outbox.Migrate(ctx, db, registry.Tables()); err != nil {
		return nil, err
	}
	p, errs := &parts{DB: db, Registry: registry}, [8]error{}
	p.Producer, errs[0] = outbox.NewProducer(registry, outbox.ProducerConfig{})
	p.Scheduler, errs[1] = schedule.NewScheduler(registry, schedule.SchedulerConfig{})
	p.Poisoned, errs[2] = poison.NewStore(registry)
	p.Admin, errs[3] = admin.NewClient(registry)
	p.messages, errs[4] = outbox.NewProcessor(db, registry, outbox.ProcessorConfig{})
	p.schedules, errs[5] = schedule.NewProcessor(db, registry, p.Producer, schedule.ProcessorConfig{})
	p.Service, errs[6] = ops.New(ops.Config{DB: db, Registry: registry})
	p.operations, errs[7] = ops.NewRunner(p.Service, nil) // nil, or a *projection.Runner to rebuild projections
	return p, errors.Join(errs[:]...)
}

// run runs the processors and the operators' operations until ctx ends, then drains them.
func (p *parts) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx) // when one ends, the others stop
	defer stop()
	ended := make(chan error)
	for _, part := range []func(context.Context) error{p.messages.Run, p.schedules.Run, p.operations.Run} {
		go func() { defer stop(); ended <- part(ctx) }()
	}
	return errors.Join(<-ended, <-ended, <-ended)
}

// end
