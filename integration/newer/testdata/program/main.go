// The program is an application in two releases: as it is, and with the build tag newer, which adds something of each
// kind. It reads commands, one a line, and answers each with a line. It ends with its input.
package main

import (
	"bufio"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

type later struct {
	ID string `json:"id"`
}

func (order) PayloadType() string  { return "order.placed" }
func (opened) PayloadType() string { return "account.opened" }
func (later) PayloadType() string  { return "later" }

// added is what a release adds.
type added struct {
	consumers []bus.Consumer
	audited   []string // payload types of a consumer that both have
	types     []eventlog.Type
	routes    []relay.Route
	accepts   []inbox.Option
}

type program struct {
	db        *bun.DB
	producer  *outbox.Producer
	log       *eventlog.Log
	processor *outbox.Processor
	receiver  *inbox.Runner
	forwarder *relay.Runner
	session   *ops.Session
	operator  *ops.Runner
	running   sync.WaitGroup
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	p, err := open(os.Args[1])
	if err != nil {
		panic(err)
	}
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		if err := p.do(ctx, input.Text()); err != nil {
			fmt.Println("error:", err)
			continue
		}
		fmt.Println("done")
	}
	stop()
	p.running.Wait()
}

func open(dsn string) (p *program, err error) {
	conns, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, err
	}
	p = &program{db: bun.NewDB(conns, pgdialect.New())}
	adds, wait := additions(p), func(context.Context, later) error { return nil }
	broker := table{p.db}
	receiver := inbox.NewReceiver("inbox", broker, append(adds.accepts, inbox.Accept[order]())...)
	types, err := eventlog.NewTypes(append(adds.types, eventlog.Event[opened]())...)
	if err != nil {
		return nil, err
	}
	registry, err := bus.RegistryConfig{Events: types}.NewRegistry(append(adds.consumers, receiver.Consumer(),
		outbox.ConsumeTx("ship", func(ctx context.Context, tx bun.Tx, o order) error { return p.done(ctx, tx, "ship", o.ID) }),
		bus.ConsumeRaw("audit", p.audit, append(adds.audited, order{}.PayloadType())),
		bus.Consume("wait", wait), bus.Consume("archived", wait))...)
	if err != nil {
		return nil, err
	}
	quiet := slog.New(slog.DiscardHandler)
	var errs [7]error
	p.producer, errs[0] = outbox.NewProducer(registry, outbox.ProducerConfig{})
	p.log, errs[1] = eventlog.NewLog(registry, p.producer, eventlog.LogConfig{})
	p.processor, errs[2] = outbox.NewProcessor(p.db, registry, outbox.ProcessorConfig{PollInterval: 50 * time.Millisecond, Logger: quiet})
	p.receiver, errs[3] = inbox.NewRunner(p.db, registry, p.producer, inbox.RunnerConfig{Logger: quiet}, receiver)
	p.forwarder, errs[6] = relay.NewRunner(p.db, registry, relay.RunnerConfig{Log: p.log, Logger: quiet},
		relay.NewLogForwarder("ledger", broker, relay.LogConfig{Source: "/bank", Routes: append(adds.routes, relay.To[opened]("accounts"))}))
	service, err := ops.New(ops.Config{DB: p.db, Registry: registry, UndoWindow: -1, Logger: quiet})
	if err == nil {
		p.session = service.As(ops.Principal{Name: release, Role: ops.Administrator})
		p.operator, errs[4] = ops.NewRunner(service, nil)
	}
	errs[5] = outbox.Migrate(context.Background(), p.db, bus.Tables{})
	return p, errors.Join(append(errs[:], err)...)
}

// do does what a command says.
func (p *program) do(ctx context.Context, command string) error {
	switch command {
	case "run":
		p.running.Go(func() { _ = p.processor.Run(ctx) })
		p.running.Go(func() { _ = p.receiver.Run(ctx) })
		p.running.Go(func() { _ = p.forwarder.Run(ctx) })
		for !p.processor.Health().Ready || !p.receiver.Health().Ready || !p.forwarder.Health().Ready {
			<-time.After(time.Millisecond)
		}
		return nil
	case "plan":
		for action, target := range targets() {
			o, planned := p.session.Operations().Plan(ctx, action, target)
			_, started := p.session.Operations().Start(ctx, o.ID, ops.StartOptions{Reason: "a test"})
			if err := cmp.Or(planned, started); err != nil {
				return err
			}
		}
		return nil
	case "operate":
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return p.operator.Run(ctx)
	default:
		return p.make(ctx, command)
	}
}

// make produces messages and appends events, with an id.
func (p *program) make(ctx context.Context, id string) error {
	messages, events := made(id)
	items := []outbox.Item{{Payload: later{id}, Options: []outbox.Option{outbox.Delay(time.Hour), outbox.InsertID(id)}}}
	for _, m := range messages {
		items = append(items, outbox.Item{Payload: m})
	}
	if _, err := p.producer.ProduceMany(ctx, p.db, items...); err != nil {
		return err
	}
	return p.log.RunInTx(ctx, p.db, func(ctx context.Context, tx bun.Tx) error {
		_, err := p.log.Append(ctx, tx, "account-"+id, eventlog.AnyVersion, events...)
		return err
	})
}

// done notes what a consumer has done.
func (p *program) done(ctx context.Context, db bun.IDB, what, id string) error {
	_, err := db.NewRaw("INSERT INTO done (what, id, by) VALUES (?, ?, ?)", what, id, release).Exec(ctx)
	return err
}

func (p *program) audit(ctx context.Context, batch []*bus.Message) error {
	for _, m := range batch {
		var payload struct{ ID, Note string }
		if err := json.Unmarshal(m.Payload, &payload); err != nil {
			return err
		}
		if err := p.done(ctx, p.db, "audit "+m.PayloadType+" "+payload.Note, payload.ID); err != nil {
			return err
		}
	}
	return nil
}

// table is a broker of two tables.
type table struct{ db *bun.DB }

// Publish implements broker.Publisher.
func (t table) Publish(ctx context.Context, records []broker.Record) (errs []error) {
	for _, r := range records {
		_, err := t.db.NewRaw("INSERT INTO outgoing (id, body) VALUES (?, ?)", r.ID, string(r.Body)).Exec(ctx)
		errs = append(errs, err)
	}
	return errs
}

// Subscribe implements broker.Subscriber.
func (t table) Subscribe(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
	for ctx.Err() == nil {
		if err := t.next(ctx, fn); err != nil {
			<-time.After(10 * time.Millisecond) // there is none, or it was given back
		}
	}
	return nil
}

func (t table) next(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
	return t.db.RunInTx(context.WithoutCancel(ctx), nil, func(within context.Context, tx bun.Tx) error {
		var rows []struct {
			N          int
			Type, Body string
		}
		err := tx.NewRaw("SELECT n, type, body FROM incoming WHERE by IS NULL ORDER BY n LIMIT 5 FOR UPDATE SKIP LOCKED").Scan(within, &rows)
		if err != nil || len(rows) == 0 {
			return cmp.Or(err, sql.ErrNoRows)
		}
		var records []broker.Record
		var taken []int
		for _, row := range rows {
			attributes := map[string]string{"specversion": "1.0", "id": fmt.Sprint(row.N), "source": "/shop", "type": row.Type}
			records = append(records, broker.Record{Attributes: attributes, ContentType: "application/json", Body: []byte(row.Body)})
			taken = append(taken, row.N)
		}
		if err := fn(ctx, records); err != nil {
			return err
		}
		_, err = tx.NewRaw("UPDATE incoming SET by = ? WHERE n IN (?)", release, bun.List(taken)).Exec(within)
		return err
	})
}
