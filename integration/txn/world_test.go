package txn_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

const (
	worldLease   = 2 * time.Second
	worldPoll    = 250 * time.Millisecond
	worldTimeout = time.Second // of each function
	worldConns   = 15
	callTimeout  = 30 * time.Second
	// applicationsOwn begins a transaction of the application, which nobody bounds but itself.
	applicationsOwn = "SELECT 'of the application', set_config('idle_in_transaction_session_timeout', '2s', true)"
)

// refund is for consumers that are done nothing with but by people, unique for one with insert ids, tick for a schedule, and
// happened is an event.
type (
	refund   struct{ N int }
	unique   struct{ N int }
	tick     struct{ N int }
	happened struct{ N int }
)

func (refund) PayloadType() string   { return "refund" }
func (unique) PayloadType() string   { return "unique" }
func (tick) PayloadType() string     { return "tick" }
func (happened) PayloadType() string { return "happened" }

// world is a program that uses all of the library that has transactions of its own: the one that is stopped in the middle of one,
// and the one beside it.
type world struct {
	db         *bun.DB
	registry   *bus.Registry
	producer   *outbox.Producer
	log        *eventlog.Log
	scheduler  *schedule.Scheduler
	session    *operator.Session
	service    *ops.Service
	layered    *outbox.Producer // with a layer of the application
	forwarding *relay.Runner    // of the log
	runs       []func(context.Context) error
	services   []func(context.Context) error // which hold leases
	serve      chan struct{}                 // closed once they are to run
	load       context.Context               // while it lasts, there is more to do
	progress   func(what string)
	failed     func(error) // of a call of its own
}

// newWorld makes one that tells which consumer has done something, and which of its own calls have failed.
func newWorld(db *bun.DB, progress func(what string), failed func(error)) (*world, error) {
	w := &world{db: db, serve: make(chan struct{}), progress: progress, failed: failed}
	types, err := eventlog.NewTypes(eventlog.Event[happened]())
	if err != nil {
		return nil, err
	}
	receivers, consumers := w.receivers(), append(w.consumers(), w.serviceConsumers()...)
	for _, r := range receivers {
		consumers = append(consumers, r.Consumer())
	}
	if w.registry, err = (bus.RegistryConfig{Events: types, HeartbeatInterval: time.Second}).NewRegistry(consumers...); err != nil {
		return nil, err
	}
	if w.producer, err = outbox.NewProducer(w.registry, outbox.ProducerConfig{}); err != nil {
		return nil, err
	}
	if w.log, err = eventlog.NewLog(w.registry, w.producer, eventlog.LogConfig{}); err != nil {
		return nil, err
	}
	if w.scheduler, err = schedule.NewScheduler(w.registry, schedule.SchedulerConfig{}); err != nil {
		return nil, err
	}
	if w.service, err = ops.New(ops.Config{DB: db, Registry: w.registry, UndoWindow: -1, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	w.session = operator.As(w.service, ops.Principal{Name: "ada", Role: ops.Administrator})
	return w, errors.Join(w.addRuns(), w.addServices(receivers))
}

// addRuns makes what runs in the program.
func (w *world) addRuns() error {
	quiet := slog.New(slog.DiscardHandler)
	processor, err := outbox.NewProcessor(w.db, w.registry,
		outbox.ProcessorConfig{LeaseDuration: worldLease, PollInterval: worldPoll, Fetchers: 1,
			TxConcurrency: 3, DefaultTimeout: worldTimeout, AttemptDelay: 200 * time.Millisecond, DrainTimeout: time.Second, Logger: quiet})
	schedules, err2 := schedule.NewProcessor(w.db, w.registry, w.producer, schedule.ProcessorConfig{PollInterval: worldPoll, Logger: quiet})
	projections, err3 := projection.NewRunner(w.db, w.log, projection.RunnerConfig{PollInterval: worldPoll, Concurrency: 2, Logger: quiet},
		projection.Projection{Name: "p", Shards: 2, Timeout: worldTimeout,
			On: []projection.Handler{projection.On(func(ctx context.Context, tx bun.Tx, e happened) error {
				defer w.progress("projection")
				return w.write(ctx, tx)
			})}})
	runner, err4 := ops.NewRunner(w.service, nil)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return err
	}
	w.runs = []func(context.Context) error{processor.Run, schedules.Run, projections.Run, runner.Run}
	return nil
}

// write is what functions do in their transactions.
func (w *world) write(ctx context.Context, tx bun.Tx) error {
	_, err := tx.NewRaw("INSERT INTO effects DEFAULT VALUES").Exec(ctx)
	return err
}

// consumers are of each kind that there is.
func (w *world) consumers() []bus.Consumer {
	plain := func(name string, options ...bus.ConsumerOption) bus.Consumer {
		return bus.Consume(name, func(context.Context, order) error { w.progress(name); return nil }, options...)
	}
	tx := func(name string, options ...bus.ConsumerOption) bus.Consumer {
		return outbox.ConsumeTx(name, func(ctx context.Context, tx bun.Tx, _ order) error {
			w.progress(name)
			return w.write(ctx, tx)
		}, options...)
	}
	return []bus.Consumer{
		plain("plain"), plain("priorities", bus.Prioritized(time.Minute)), plain("limit", bus.GlobalConcurrency(1)), plain("shared",
			bus.SharedConcurrency("s", 1)),
		plain("rate", bus.RateLimit(100, time.Second, 20)), plain("ordered", bus.Ordered(bus.BlockKey)), plain("per key", bus.KeyConcurrency(1)),
		plain("fair", bus.Fair()), plain("rate per key", bus.KeyRateLimit(100, time.Second, 20)),
		tx("tx"), tx("group", outbox.GroupCommit(5)), tx("ordered tx", bus.Ordered(bus.SkipPoisoned)),
		bus.ConsumeBatch("batch", func(context.Context, []order) error { w.progress("batch"); return nil }),
		outbox.ConsumeBatchTx("batch tx", func(ctx context.Context, tx bun.Tx, _ []order) error {
			w.progress("batch tx")
			return w.write(ctx, tx)
		}),
		bus.Consume("breaker", func(ctx context.Context, o order) error {
			w.progress("breaker")
			if m, _ := bus.MessageFromContext(ctx); o.N%3 == 0 && m.Attempt == 1 {
				return errors.New("no luck")
			}
			return nil
		}, bus.CircuitBreaker(bus.CircuitBreakerConfig{FailureRatio: 0.9, Window: time.Second})),
		bus.Consume("unique", func(context.Context, unique) error { w.progress("unique"); return nil }),
		bus.Consume("schedule", func(context.Context, tick) error { w.progress("schedule"); return nil }),
		bus.Consume("later", func(context.Context, refund) error { return nil }),
		bus.Consume("poisoned", func(context.Context, refund) error { return bus.Permanent(errors.New("never")) }),
		bus.Consume("reacts", func(context.Context, happened) error { w.progress("reacts"); return nil }),
	}
}

// prepare makes the tables, and the schedules.
func (w *world) prepare(ctx context.Context) error {
	if err := outbox.Migrate(ctx, w.db, w.registry.Tables()); err != nil {
		return err
	}
	if _, err := w.db.ExecContext(ctx, "CREATE TABLE effects (at timestamptz NOT NULL DEFAULT statement_timestamp())"); err != nil {
		return err
	}
	for i, expression := range []string{"* * * * * *", "* * * * * *", "@yearly"} {
		if _, err := w.scheduler.Create(ctx, w.db, tick{i}, expression, "UTC"); err != nil {
			return err
		}
	}
	return nil
}

// run runs everything until ctx ends, and produces until load does.
func (w *world) run(ctx, load context.Context) error {
	w.load = load
	errs := make([]error, len(w.runs))
	var all sync.WaitGroup
	for i, run := range w.runs {
		all.Go(func() { errs[i] = run(ctx) })
	}
	services := make([]error, len(w.services))
	all.Go(func() {
		select {
		case <-w.serve:
		case <-ctx.Done():
			return
		}
		for i, run := range w.services {
			all.Go(func() { services[i] = run(ctx) })
		}
	})
	calls := []func(context.Context, int) error{w.produce, w.produceOnce, w.produceForPeople, w.append, w.operate, w.produceGroups, w.handOff,
		w.produceThroughLayers}
	for _, call := range calls {
		all.Go(func() { w.repeat(load, call) })
	}
	all.Wait()
	return errors.Join(append(errs, services...)...)
}

// repeat calls something five times in a second. What has begun when ctx ends is finished.
func (w *world) repeat(ctx context.Context, call func(context.Context, int) error) {
	beat := time.NewTicker(200 * time.Millisecond)
	defer beat.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		inTime, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		if err := call(inTime, i); err != nil {
			w.failed(err)
		}
		cancel()
		select {
		case <-beat.C:
		case <-ctx.Done():
		}
	}
}

// produce writes messages for all kinds of consumers, in a statement and in a transaction of the application.
func (w *world) produce(ctx context.Context, i int) error {
	_, err := w.producer.Produce(ctx, w.db, order{N: i}, outbox.OrderingKey(fmt.Sprint("k", i%5)), outbox.Priority(bus.Priority(i%3)))
	return errors.Join(err, w.producer.RunInTx(ctx, w.db, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.ExecContext(ctx, applicationsOwn); err != nil {
			return err
		}
		_, err := w.producer.ProduceMany(ctx, tx, outbox.Item{Payload: order{N: i}, Options: []outbox.Option{outbox.OrderingKey("many")}},
			outbox.Item{Payload: unique{i}})
		return err
	}))
}

// produceOnce writes messages with insert ids that the others have as well.
func (w *world) produceOnce(ctx context.Context, i int) error {
	second := fmt.Sprint("u", time.Now().Unix())
	_, err := w.producer.Produce(ctx, w.db, unique{i},
		outbox.InsertID(second, [][]outbox.DuplicatePolicy{nil, {outbox.Replace()}, {outbox.UniqueFor(time.Second)}}[i%3]...))
	return err
}

// produceForPeople writes messages that are poisoned, or wait.
func (w *world) produceForPeople(ctx context.Context, i int) error {
	_, err := w.producer.Produce(ctx, w.db, refund{i}, outbox.Delay(time.Duration(i%2)*time.Hour))
	return err
}

// append writes events.
func (w *world) append(ctx context.Context, i int) error {
	return w.log.RunInTx(ctx, w.db, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.ExecContext(ctx, applicationsOwn); err != nil {
			return err
		}
		_, err := w.log.Append(ctx, tx, fmt.Sprint("account-", i%5), eventlog.AnyVersion, happened{i})
		return err
	})
}

// operate changes something as people do.
func (w *world) operate(ctx context.Context, i int) error {
	err := errors.Join(w.change(ctx, i), w.again(ctx, i))
	for _, common := range []error{ops.ErrBusy, ops.ErrInProgress, ops.ErrNotFound, ops.ErrNoMatch,
		admin.ErrNotPaused} { // the others do the same
		if errors.Is(err, common) {
			return nil
		}
	}
	return err
}

func (w *world) change(ctx context.Context, i int) error {
	const why, yearly = "why", 3 // the schedule
	switch i % 10 {
	case 0:
		return w.session.Consumers().Pause(ctx, "later", why)
	case 1:
		return w.session.Consumers().Resume(ctx, "later", why)
	case 2:
		return w.carryOut(ctx, ops.Requeue, ops.Target{Poisoned: &poison.Filter{Consumer: "poisoned"}})
	case 3:
		return w.carryOut(ctx, ops.Cancel, ops.Target{Pending: &admin.Filter{Consumer: "later"}})
	case 4:
		return w.session.Schedules().Pause(ctx, why, yearly)
	case 5:
		return w.session.Schedules().Resume(ctx, why, yearly)
	case 6:
		found, _, err := w.session.Poisoned().List(ctx, poison.Filter{Consumer: "poisoned"}, admin.Page{Size: 1})
		if err == nil && len(found) > 0 {
			_, err = w.session.Poisoned().Requeue(ctx, why, found[0].ID)
		}
		return err
	case 7:
		found, _, err := w.session.Messages().List(ctx, admin.Filter{Consumer: "later"}, admin.Page{Size: 1})
		if err == nil && len(found) > 0 {
			_, err = w.session.Messages().Reschedule(ctx, why, time.Now().Add(time.Hour), found[0].ID)
		}
		return err
	case 8:
		return w.session.Schedules().Update(ctx, why, yearly, "@yearly", "UTC")
	}
	_, err := w.session.Overview(ctx)
	return err
}

// carryOut has an operation carried out by the runner of any program.
func (w *world) carryOut(ctx context.Context, action ops.Action, target ops.Target) error {
	o, err := w.session.Operations().Plan(ctx, action, target)
	if err == nil {
		_, err = w.session.Operations().Start(ctx, o.ID, ops.StartOptions{Rate: 1000, Canary: -1, Reason: "why"})
	}
	return err
}
