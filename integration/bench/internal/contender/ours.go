package contender

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/notify"
	"github.com/asyncmonolith/asyncmonolith-go/notify/pgxnotify"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Variant is what may differ from what a new user of AsyncMonolith gets. The
// zero value is just that: the default chain and the default configuration,
// with a logger that prints only what goes wrong.
type Variant struct {
	// Processor is the processor's configuration.
	Processor outbox.ProcessorConfig
	// Options are given to the plain consumers.
	Options []bus.ConsumerOption
	// Batch is how many messages a plain consumer gets at once. Defaults to single ones.
	Batch int
	// Keys is how many keys the messages have, in turn, in whose order a plain consumer runs
	// them. Defaults to none.
	Keys int
	// Keyed is by what the consumer goes by keys. Nil is order.
	Keyed bus.ConsumerOption
	// Spin is for how long each call of a plain consumer keeps a processor busy.
	Spin time.Duration
	// TxOptions are given to the transactional consumer.
	TxOptions []bus.ConsumerOption
	// Consumers is how many consumers each message has. Defaults to 1.
	Consumers int
	// Consumer is how their names begin. Defaults to "count".
	Consumer string
	// Schedules is how many schedules there are, none of which is ever due, with
	// a schedule processor beside the other. Defaults to none.
	Schedules int
	// Notify has processes wake each other.
	Notify bool
	// Pool is the number of connections. Defaults to [Pool].
	Pool int
	// Relay has messages published to the place instead of counted.
	Relay bool
	// Receive has messages received from the place.
	Receive bool
	// Inbox has nothing run but what receives.
	Inbox bool
	// Reports is how often it tells operators what it does. Defaults to that of the library.
	Reports time.Duration
	// Viewers is how many people look at the console meanwhile. Defaults to none.
	Viewers int
	// Failing is how many of a hundred messages fail at their first attempt. They are
	// tried again at once, behind the backlog. Defaults to none.
	Failing int64
	// Tracer sees every statement that the driver sends. Defaults to none.
	Tracer pgx.QueryTracer
}

// Ours is AsyncMonolith on PostgreSQL.
func Ours(name string, v Variant) Contender {
	return Contender{Name: name, Open: func(ctx context.Context, dsn string, work Work) (System, error) {
		if v.Pool == 0 {
			v.Pool = Pool
		}
		db, err := openBun(dsn, v, work.Wire)
		if err != nil {
			return nil, err
		}
		return openOurs(ctx, db, v, work)
	}}
}

// openBun opens the database as the README says.
func openBun(dsn string, v Variant, wire *Wire) (*bun.DB, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("data source name: %w", err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.Tracer = v.Tracer
	wire.count(config)
	conns := stdlib.OpenDB(*config)
	conns.SetMaxOpenConns(v.Pool)
	conns.SetMaxIdleConns(v.Pool)
	return bun.NewDB(conns, pgdialect.New()), nil
}

// errFailing is what messages fail with that are to fail.
var errFailing = errors.New("the first attempt fails")

// ours is AsyncMonolith in one database.
type ours struct {
	db       *bun.DB
	variant  Variant
	work     Work
	registry *bus.Registry
	producer *outbox.Producer
	tail     int64
	unjoin   func() error // ends what joins it with other processes
	link     link         // to the broker
}

func openOurs(ctx context.Context, db *bun.DB, v Variant, work Work) (_ *ours, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	if v.Consumers == 0 {
		v.Consumers = 1
	}
	if v.Consumer == "" {
		v.Consumer = "count"
	}
	v.Processor.Logger = logger()
	if v.Failing > 0 { // as is meant
		v.Processor.Logger = loggerOf(slog.LevelError)
	}
	s := &ours{db: db, variant: v, work: work}
	if v.Relay || v.Receive {
		if s.link, err = dial(work.Place, v); err != nil {
			return nil, err
		}
	}
	config := bus.RegistryConfig{HeartbeatInterval: v.Reports}
	if s.registry, err = config.NewRegistry(s.consumers()...); err != nil {
		return nil, err
	}
	if s.producer, err = outbox.NewProducer(s.registry, outbox.ProducerConfig{Logger: logger()}); err != nil {
		return nil, err
	}
	if err = outbox.Migrate(ctx, db, s.registry.Tables()); err != nil {
		return nil, err
	}
	if work.Transactional {
		if _, err = db.ExecContext(ctx, createEffects); err != nil {
			return nil, err
		}
	}
	if err = s.schedule(ctx); err != nil {
		return nil, err
	}
	return s, s.join(ctx)
}

// join has this process wake others and be woken by them, once it can be.
func (s *ours) join(ctx context.Context) error {
	s.unjoin = func() error { return nil }
	if !s.variant.Notify {
		return nil
	}
	n, err := notify.NewNotifier(s.db, s.registry, notify.NotifierConfig{Listener: pgxnotify.FromDB(s.db.DB), Logger: logger()})
	if err != nil {
		return err
	}
	s.unjoin = background(context.WithoutCancel(ctx), s.work.Fail, n.Run)
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for !n.Health().Ready {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), s.unjoin())
		}
	}
	return nil
}

func (s *ours) consumers() []bus.Consumer {
	consumers := make([]bus.Consumer, s.variant.Consumers)
	for i := range consumers {
		name := fmt.Sprintf("%s-%d", s.variant.Consumer, i)
		switch {
		case s.variant.Relay:
			consumers[i] = relay.NewForwarder(
				name, s.link.publisher, relay.Config{Source: "/bench", Routes: []relay.Route{relay.To[Signup](s.work.Place.Destination)}},
			)
		case s.work.Transactional:
			consumers[i] = outbox.ConsumeTx(name, s.insertEffect, s.variant.TxOptions...)
		case s.variant.Batch > 0:
			consumers[i] = bus.ConsumeBatch(name, s.countBatch, append(s.options(), bus.BatchSize(s.variant.Batch))...)
		default:
			consumers[i] = bus.Consume(name, s.count, s.options()...)
		}
	}
	if s.variant.Receive {
		consumers = append(consumers, s.link.receiver.Consumer())
	}
	return consumers
}

func (s *ours) options() []bus.ConsumerOption {
	options := slices.Clone(s.variant.Options)
	if s.variant.Keys > 0 {
		keyed := s.variant.Keyed
		if keyed == nil {
			keyed = bus.Ordered(bus.BlockKey)
		}
		options = append(options, keyed)
	}
	if s.variant.Failing > 0 {
		options = append(options, bus.AttemptDelay(time.Millisecond))
	}
	return options
}

func (s *ours) countBatch(_ context.Context, payloads []Signup) error {
	s.spin()
	for _, payload := range payloads {
		s.work.Handle(payload)
	}
	return nil
}

// spin keeps a processor busy, as a call of the work itself would.
func (s *ours) spin() {
	for began := time.Now(); s.variant.Spin > 0 && time.Since(began) < s.variant.Spin; {
	}
}

func (s *ours) count(ctx context.Context, payload Signup) error {
	if payload.UserID%100 < s.variant.Failing {
		if m, _ := bus.MessageFromContext(ctx); m.Attempt == 1 {
			return errFailing
		}
	}
	s.spin()
	s.work.Handle(payload)
	return nil
}

func (s *ours) insertEffect(ctx context.Context, tx bun.Tx, payload Signup) error {
	s.work.Handle(payload)
	_, err := tx.ExecContext(ctx, "INSERT INTO "+Effects+" (user_id, email, at) VALUES (?, ?, ?)", payload.UserID, payload.Email, payload.At)
	if err != nil {
		s.work.Fail(fmt.Errorf("insert effect: %w", err))
	}
	return err
}

// Produce implements System.
func (s *ours) Produce(ctx context.Context, batch []Signup) error {
	items := make([]outbox.Item, len(batch))
	for i := range batch {
		items[i].Payload = batch[i]
		if s.variant.Keys > 0 {
			items[i].Options = []outbox.Option{outbox.OrderingKey(strconv.FormatInt(batch[i].UserID%int64(s.variant.Keys), 10))}
		}
	}
	_, err := s.producer.ProduceMany(ctx, s.db, items...)
	return err
}

// ProduceOne implements System.
func (s *ours) ProduceOne(ctx context.Context, payload Signup) error {
	return s.producer.RunInTx(ctx, s.db, func(ctx context.Context, tx bun.Tx) error {
		_, err := s.producer.Produce(ctx, tx, payload)
		return err
	})
}

// Start implements System.
func (s *ours) Start(ctx context.Context) (stop func() error, err error) {
	processor, err := outbox.NewProcessor(s.db, s.registry, s.variant.Processor)
	if err != nil {
		return nil, err
	}
	if err := s.markTail(ctx); err != nil {
		return nil, err
	}
	runs := []func(context.Context) error{processor.Run}
	if s.variant.Receive {
		runner, err := inbox.NewRunner(s.db, s.registry, s.producer, inbox.RunnerConfig{Logger: logger()}, s.link.receiver)
		if err != nil {
			return nil, err
		}
		if runs = append(runs, runner.Run); s.variant.Inbox {
			runs = runs[1:]
		}
	}
	if s.variant.Schedules > 0 {
		schedules, err := schedule.NewProcessor(s.db, s.registry, s.producer, schedule.ProcessorConfig{Logger: logger()})
		if err != nil {
			return nil, err
		}
		runs = append(runs, schedules.Run)
	}
	viewers, err := s.viewers()
	if err != nil {
		return nil, err
	}
	return background(ctx, s.work.Fail, append(runs, viewers...)...), nil
}

// background runs the functions until stop is called, which waits for them.
func background(ctx context.Context, fail func(error), runs ...func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan error, len(runs))
	for _, run := range runs {
		go func() {
			err := run(ctx)
			if err != nil {
				fail(err)
			}
			results <- err
		}()
	}
	return func() error {
		cancel()
		var errs []error
		for range runs {
			errs = append(errs, <-results)
		}
		return errors.Join(errs...)
	}
}

// schedule writes the schedules.
func (s *ours) schedule(ctx context.Context) error {
	scheduler, err := schedule.NewScheduler(s.registry, schedule.SchedulerConfig{})
	if err != nil {
		return err
	}
	for i := range s.variant.Schedules {
		_, err := scheduler.Upsert(ctx, s.db, Signup{}, "0 0 4 29 2 *", "UTC", schedule.Name(fmt.Sprintf("leap-day-%d", i)))
		if err != nil {
			return err
		}
	}
	return nil
}

// markTail remembers where the ids begin that Pending looks at.
func (s *ours) markTail(ctx context.Context) error {
	var last sql.NullInt64
	if err := s.db.QueryRowContext(ctx, "SELECT max(id) FROM consumer_messages").Scan(&last); err != nil {
		return fmt.Errorf("last id: %w", err)
	}
	if s.tail = last.Int64 - tail; s.variant.Keys > 0 { // the last messages need not be
		s.tail = 0
	}
	return nil
}

// Pending implements System.
func (s *ours) Pending(ctx context.Context) (pending bool, err error) {
	return s.remains(ctx, s.tail)
}

func (s *ours) remains(ctx context.Context, after int64) (found bool, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM consumer_messages WHERE id > ? AND consumer_type LIKE ? AND "+
		"payload_type = ?)",
		after, s.variant.Consumer+"-%", Signup{}.PayloadType()).
		Scan(&found)
	return found, err
}

// Verify implements System.
func (s *ours) Verify(ctx context.Context) error {
	found, err := s.remains(ctx, 0)
	if err != nil {
		return err
	}
	var poisoned, claims int
	err = s.db.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM poisoned_messages), (SELECT count(*) FROM message_claims)").
		Scan(&poisoned, &claims)
	switch {
	case err != nil:
		return err
	case found || poisoned > 0 || claims > 0:
		return fmt.Errorf("messages remain: %t, %d poisoned messages, %d claims", found, poisoned, claims)
	}
	return nil
}

// Close implements System.
func (s *ours) Close() error {
	s.link.close()
	return errors.Join(s.unjoin(), s.db.Close())
}
