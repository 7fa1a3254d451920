// The ledger keeps accounts as events. Deposits, withdrawals and transfers are
// decided on, a reactor lets transfers arrive, and a projection keeps the balances,
// which is rebuilt while money moves. It needs no server: the database is a SQLite
// file in a temporary folder. go run ./examples/ledger
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/decider"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// bank is the application.
type bank struct {
	db       *bun.DB
	log      *eventlog.Log
	messages *outbox.Processor
	readers  *projection.Runner
	out      io.Writer
}

// run opens a bank in a temporary folder, and closes it again.
func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "ledger")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	conns, err := sql.Open(
		"sqlite", "file:"+filepath.Join(dir, "ledger.db")+"?_txlock=immediate&_pragma=busy_timeout(15000)&_pragma=journal_mode(WAL)",
	)
	if err != nil {
		return err
	}
	db := bun.NewDB(conns, sqlitedialect.New())
	defer func() { err = errors.Join(err, db.Close()) }()
	b, err := open(ctx, db, out)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx) // when one part ends, so does the other
	ended := make(chan error)
	for _, part := range []func(context.Context) error{b.messages.Run, b.readers.Run} {
		go func() { defer stop(); ended <- part(running) }()
	}
	err = b.tell(running)
	stop()
	return errors.Join(err, <-ended, <-ended)
}

// open makes the tables and wires every part.
func open(ctx context.Context, db *bun.DB, out io.Writer) (*bank, error) {
	b := &bank{db: db, out: out}
	// snippet: eventlog
	types, err := eventTypes()
	if err != nil {
		return nil, err
	}
	registry, err := bus.RegistryConfig{Events: types}.NewRegistry(outbox.ConsumeTx("receive-transfer", b.receive))
	if err != nil {
		return nil, err
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		return nil, err
	}
	if b.log, err = eventlog.NewLog(registry, producer, eventlog.LogConfig{}); err != nil {
		return nil, err
	}
	if b.readers, err = projection.NewRunner(db, b.log, projection.RunnerConfig{}, balances()); err != nil {
		return nil, err
	}
	// end
	if err := outbox.Migrate(ctx, db, registry.Tables()); err != nil {
		return nil, err
	}
	if _, err := db.NewCreateTable().Model((*Balance)(nil)).Exec(ctx); err != nil {
		return nil, err
	}
	quiet := middleware.Default(middleware.Options{Logger: slog.New(slog.DiscardHandler)})
	b.messages, err = outbox.NewProcessor(db, registry, outbox.ProcessorConfig{Middleware: quiet})
	return b, err
}

// snippet: execute

// do executes a command in its own transaction.
func (b *bank) do(ctx context.Context, account string, wish Event) (Account, error) {
	state, _, err := decider.Execute(ctx, b.log, b.db, accounts(), account, Command{wish})
	return state, err
}

// end

func (b *bank) say(format string, args ...any) { _, _ = fmt.Fprintf(b.out, format+"\n", args...) }

// tell opens accounts and moves money.
func (b *bank) tell(ctx context.Context) error {
	people := []string{"ann", "bob", "cem"}
	for _, name := range people {
		if _, err := b.do(ctx, name, Opened{name}); err != nil {
			return err
		}
		if _, err := b.do(ctx, name, Deposited{100}); err != nil {
			return err
		}
	}
	b.say("three accounts with 100 each")
	if _, err := b.do(ctx, "bob", Withdrawn{500}); !errors.Is(err, errOverdrawn) {
		return fmt.Errorf("withdraw 500 of 100: got %v, want errOverdrawn", err)
	}
	b.say("bob may not withdraw 500")
	before, err := b.log.Head(ctx, b.db)
	if err != nil {
		return err
	}
	if err := errors.Join(b.move(ctx, people), b.compare(ctx)); err != nil {
		return err
	}
	then, err := b.asOf(ctx, before)
	if err != nil {
		return err
	}
	now, _, err := decider.Load(ctx, b.log, b.db, accounts(), "ann")
	if err != nil {
		return err
	}
	b.say("ann had %d before all that, at position %d, and has %d now", then["account-ann"], before, now.Balance)
	return nil
}

// move moves money around, and rebuilds the read model meanwhile.
func (b *bank) move(ctx context.Context, people []string) error {
	const moves = 120
	for n := range moves {
		from, to := people[n%3], people[(n+1)%3]
		wish := []Event{TransferSent{To: to, Amount: 5}, Deposited{3}, Withdrawn{2}}[n/3%3]
		if _, err := b.do(ctx, from, wish); err != nil {
			return err
		}
		if n == moves/2 {
			if err := b.readers.Rebuild(ctx, "balances"); err != nil {
				return err
			}
			b.say("the balances are rebuilt from the start, and money goes on moving")
		}
	}
	b.say("%d commands have moved money", moves)
	return nil
}

// compare waits until every transfer has arrived and the projection has it, and
// compares that with the log.
func (b *bank) compare(ctx context.Context) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		queues, err := b.messages.Queues(ctx)
		if err != nil {
			return err
		}
		readers, err := b.readers.Stats(ctx)
		if err != nil {
			return err
		}
		if queues[0].Ready+queues[0].Delayed+queues[0].Leased == 0 && readers[0].Lag == 0 {
			break
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	projected, err := b.readModel(ctx)
	if err != nil {
		return err
	}
	folded, err := b.asOf(ctx, math.MaxInt64)
	if err != nil {
		return err
	}
	b.say("projection: %v", projected)
	if !maps.Equal(projected, folded) {
		return fmt.Errorf("the projection is not the fold of the log: %v", folded)
	}
	b.say("the projection equals the fold of the log")
	return nil
}
