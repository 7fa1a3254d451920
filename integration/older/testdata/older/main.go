// The program is an application of an older version of the library, with one consumer for
// each name that it is given. It reads commands, one JSON object a line, and answers each
// with a line; each run that begins or is done is a line, too. It ends with its input.
package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// job is the payload; the test has the same.
type job struct {
	Key    string `json:"key"`
	N      int    `json:"n"`
	Blocks bool   `json:"blocks"` // its run waits for the command "release"
}

func (job) PayloadType() string { return "job" }

type command struct {
	Do       string  `json:"do"`
	Jobs     []job   `json:"jobs"`
	InsertID string  `json:"insert_id"`
	IDs      []int64 `json:"ids"`
	Error    string  `json:"error"`
}

// line is what it says: the answer to a command, or with a consumer, of a run.
type line struct {
	N        int    `json:"n"`
	Error    string `json:"error,omitempty"`
	Consumer string `json:"consumer,omitempty"`
	Job      job    `json:"job"`
	Done     bool   `json:"done,omitempty"`
}

type program struct {
	db        *bun.DB
	registry  *bus.Registry
	producer  *outbox.Producer
	processor *outbox.Processor
	admin     *outbox.Admin
	poisoned  *poison.Store
	mu        sync.Mutex
	outcomes  chan error // of runs that wait
	tx        bun.Tx
	stop      func() error
}

func main() {
	p := &program{outcomes: make(chan error)}
	if err := p.open(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		panic(err)
	}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		var c command
		if err := json.Unmarshal(input.Bytes(), &c); err != nil {
			panic(err)
		}
		n, err := p.do(context.Background(), c)
		answer := line{N: n}
		if err != nil {
			answer.Error = err.Error()
		}
		p.say(answer)
	}
}

func (p *program) say(l line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(l); err != nil {
		panic(err)
	}
}

func (p *program) open(driver, dsn string, consumers []string) (err error) {
	conns, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	conns.SetMaxOpenConns(10)
	switch driver {
	case "pgx":
		p.db = bun.NewDB(conns, pgdialect.New())
	case "mysql":
		p.db = bun.NewDB(conns, mysqldialect.New())
	default:
		p.db = bun.NewDB(conns, sqlitedialect.New())
	}
	var all []bus.Consumer
	for _, name := range consumers {
		all = append(all, bus.Consume(name, func(ctx context.Context, j job) error { return p.run(ctx, name, j) }))
	}
	if p.registry, err = bus.NewRegistry(all...); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	p.producer, err = outbox.NewProducer(p.registry, outbox.ProducerConfig{})
	if err != nil {
		return err
	}
	p.processor, err = outbox.NewProcessor(p.db, p.registry, outbox.ProcessorConfig{
		AttemptDelay: time.Hour, PollInterval: 50 * time.Millisecond, ConsumerTimeout: time.Minute, Logger: log,
	})
	if err != nil {
		return err
	}
	if p.admin, err = outbox.NewAdmin(p.registry); err != nil {
		return err
	}
	p.poisoned, err = poison.NewStore(p.registry)
	return err
}

func (p *program) run(ctx context.Context, consumer string, j job) (err error) {
	p.say(line{Consumer: consumer, Job: j})
	if j.Blocks {
		select {
		case err = <-p.outcomes:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	p.say(line{Consumer: consumer, Job: j, Done: err == nil})
	return err
}

func (p *program) do(ctx context.Context, c command) (n int, err error) {
	var changed outbox.Result
	switch c.Do {
	case "migrate":
		return 0, outbox.Migrate(ctx, p.db, p.registry.Tables())
	case "check":
		return 0, p.processor.Check(ctx)
	case "produce":
		return p.produce(ctx, c)
	case "drain": // and tell how many messages have run
		for ran := true; ran && err == nil; {
			if ran, err = p.processor.Step(ctx); ran {
				n++
			}
		}
		return n, err
	case "run":
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- p.processor.Run(running) }()
		p.stop = func() error { stop(); return <-ended }
		return 0, nil
	case "stop":
		return 0, p.stop()
	case "release":
		if c.Error != "" {
			err = errors.New(c.Error)
		}
		p.outcomes <- err
		return 0, nil
	case "list":
		rows, _, err := p.admin.List(ctx, p.db, outbox.Filter{}, outbox.Page{})
		return len(rows), err
	case "cancel":
		changed, err = p.admin.Cancel(ctx, p.db, c.IDs...)
		return changed.Changed, err
	case "run now":
		changed, err = p.admin.RunNow(ctx, p.db, c.IDs...)
		return changed.Changed, err
	case "begin to cancel": // in a transaction that "commit" ends
		if p.tx, err = p.db.BeginTx(ctx, nil); err == nil {
			changed, err = p.admin.Cancel(ctx, p.tx, c.IDs...)
		}
		return changed.Changed, err
	case "commit":
		return 0, p.tx.Commit()
	case "requeue":
		requeued, err := p.poisoned.RequeueWhere(ctx, p.db, poison.Filter{}, 1000)
		return requeued.Requeued, err
	}
	return 0, fmt.Errorf("command %q is unknown", c.Do)
}

// produce returns how many rows were written.
func (p *program) produce(ctx context.Context, c command) (n int, err error) {
	items := make([]outbox.Item, len(c.Jobs))
	for i, j := range c.Jobs {
		items[i].Payload = j
		if c.InsertID != "" {
			items[i].Options = append(items[i].Options, outbox.InsertID(c.InsertID))
		}
	}
	receipts, err := p.producer.ProduceMany(ctx, p.db, items...)
	for _, r := range receipts {
		n += r.Enqueued
	}
	return n, err
}
