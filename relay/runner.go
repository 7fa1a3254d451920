package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/presence"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// RunnerConfig configures a [Runner]. The zero value works.
type RunnerConfig struct {
	// StartTimeout is how long Run waits at its start for an unavailable database. Defaults to 0:
	// Run returns the error at once.
	StartTimeout time.Duration
	// Telemetry wraps every received batch; the produce function passed to it accepts the batch.
	// Defaults to none.
	Telemetry bus.ProduceMiddleware
	// PublishTelemetry wraps every batch of events that a [NewLogForwarder] publishes. Defaults to
	// none.
	PublishTelemetry bus.ProduceMiddleware
	// Log is the application's event log, made with the same registry. [NewLogForwarder] and
	// [AppendToLog] need it. Defaults to none.
	Log *eventlog.Log
	// Logger logs the runner's events. Defaults to slog.Default().
	Logger *slog.Logger
}

// ErrRunning is returned by [Runner.Run] while another Run of the same Runner has not returned.
var ErrRunning = errors.New("relay: the runner is running already")

const statementTimeout = 5 * time.Second

// Relay is what a [Runner] runs: a [Receiver] or a [LogForwarder].
type Relay interface {
	// Name returns the name of the relay.
	Name() string
	// in adds the relay to those of a runner.
	in(r *Runner) error
}

// Runner runs receivers and log relays. Any number of runners in any number of processes may run
// relays of the same name, as far as a receiver's subscription allows it. One process at a time
// works on each shard of a log relay. A Runner is safe for concurrent use.
type Runner struct {
	db        *bun.DB
	registry  *bus.Registry
	producer  *outbox.Producer
	store     *store.Store
	config    RunnerConfig
	receivers []*receiving
	logs      []*logging
	owner     string          // of leases
	chain     bus.ProduceFunc // around received batches
	leaving   bus.ProduceFunc // around batches of log relays
	outage    *outage.Outage
	running   atomic.Bool
	serving   atomic.Bool // Run has started
}

// NewRunner makes a runner. The registry must have each receiver's [Receiver.Consumer], and
// consumers for all accepted payloads. The producer must have the same registry; it writes
// received messages through its layers. NewRunner reports all mistakes in its arguments at once
// and does not touch the database. A relay belongs to one runner. On MariaDB, which has no event
// log, NewRunner returns errors.ErrUnsupported for a [NewLogForwarder] or [AppendToLog].
func NewRunner(db *bun.DB, registry *bus.Registry, producer *outbox.Producer, config RunnerConfig, relays ...Relay) (*Runner, error) {
	if db == nil || registry == nil || producer == nil {
		return nil, errors.New("relay: NewRunner: the database handle, the registry or the producer is nil")
	}
	s, err := store.For(db.Dialect().Name(), registry.Tables())
	if err != nil {
		return nil, fmt.Errorf("relay: NewRunner: %w", err)
	}
	config.Logger = cmp.Or(config.Logger, slog.Default())
	r := &Runner{db: db, registry: registry, producer: producer, store: s, config: config, chain: bus.ComposeProduce(nil), leaving: bus.ComposeProduce(nil)}
	r.owner = uuid.Must(uuid.NewV7()).String() // cannot fail
	if config.Telemetry != nil {
		r.chain = config.Telemetry(r.chain)
	}
	if config.PublishTelemetry != nil {
		r.leaving = config.PublishTelemetry(r.leaving)
	}
	r.outage = outage.New(config.Logger, 0, s.Look(db))
	var errs []error
	if config.StartTimeout < 0 {
		errs = append(errs, fmt.Errorf("relay: RunnerConfig.StartTimeout %s: 0 or more is allowed", config.StartTimeout))
	}
	if config.Log != nil && config.Log.Registry() != registry {
		errs = append(errs, errors.New("relay: RunnerConfig.Log: it was made of another registry, or not by eventlog.NewLog"))
	}
	for _, relay := range relays {
		if relay == nil {
			errs = append(errs, errors.New("relay: a Relay is nil"))
			continue
		}
		errs = append(errs, relay.in(r))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := r.own(); err != nil {
		return nil, err
	}
	return r, nil
}

// names are the names of its relays.
func (r *Runner) names() (names []string) {
	for _, rc := range r.receivers {
		names = append(names, rc.name)
	}
	for _, l := range r.logs {
		names = append(names, l.name)
	}
	return names
}

// own makes all relays belong to this runner, or none.
func (r *Runner) own() error {
	var owned []*atomic.Pointer[Runner]
	own := func(kind, name string, by *atomic.Pointer[Runner]) error {
		if !by.CompareAndSwap(nil, r) {
			for _, one := range owned {
				one.Store(nil)
			}
			return fmt.Errorf("relay: %s %q belongs to another runner: make it anew", kind, name)
		}
		owned = append(owned, by)
		return nil
	}
	for _, rc := range r.receivers {
		if err := own("receiver", rc.name, &rc.runs.by); err != nil {
			return err
		}
	}
	for _, l := range r.logs {
		if err := own("log relay", l.name, &l.by); err != nil {
			return err
		}
	}
	for _, l := range r.logs {
		l.complete(r.config.Log.Types())
	}
	return nil
}

// in implements Relay.
func (receiver Receiver) in(r *Runner) error {
	rc := receiver.receiving
	if rc == nil {
		return errors.New("relay: a Receiver must be made by relay.Receive, not as a zero value")
	}
	errs := append(rc.mistakes[:len(rc.mistakes):len(rc.mistakes)], rc.fits(r.registry))
	if rc.intoLog {
		errs = append(errs, rc.fitsLog(r.store, r.config.Log))
	}
	if slices.ContainsFunc(r.receivers, func(other *receiving) bool { return other.name == rc.name }) {
		errs = append(errs, fmt.Errorf("relay: receiver %q is given twice", rc.name))
	}
	r.receivers = append(r.receivers, rc)
	return errors.Join(errs...)
}

// fits returns an error for each consumer missing in the registry.
func (r *receiving) fits(registry *bus.Registry) error {
	var errs []error
	if c, ok := registry.Consumer(r.consumerName()); !ok || !c.Raw() {
		errs = append(errs, fmt.Errorf("relay: receiver %q: the registry does not have its Consumer: register that, too", r.name))
	}
	for _, payloadType := range r.payloadTypes {
		if !r.intoLog && len(registry.ConsumersOf(payloadType)) == 0 {
			errs = append(errs, fmt.Errorf("relay: receiver %q accepts payload %q: %w", r.name, payloadType, bus.ErrNoConsumer))
		}
	}
	return errors.Join(errs...)
}

// Run receives records and publishes the log until ctx is cancelled. Then it finishes each relay's
// current batch and returns nil. A subscriber that does not return within 10 s is abandoned. So
// are calls of [MapRecord] that take longer than 5 s; at most four of them may still run.
//
// Run returns an error at its start in these cases:
//
//   - the database cannot be reached and StartTimeout has passed
//   - the server is rejected (outbox.ErrUnsupportedServer); an untested version is accepted unless
//     its isolation level is wrong (see outbox.ProcessorConfig)
//   - the tables are missing or too old (outbox.ErrSchemaOutdated)
//   - a log relay has another number of shards than before
//   - a broker answers but does not support what the relay needs
//
// During later outages, which are logged, Run waits. It acknowledges nothing, and returns current
// batches to the broker. A subscription that ends is logged and retried after 1 s, then after
// twice as long each time, up to 30 s, until records arrive. A second concurrent Run returns
// [ErrRunning].
func (r *Runner) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer r.running.Store(false)
	if ctx.Err() != nil {
		return nil
	}
	if err := outage.Await(ctx, r.config.StartTimeout, r.config.Logger, r.start); err != nil && ctx.Err() == nil {
		return fmt.Errorf("relay: run: %w", err)
	}
	defer presence.New(presence.Config{
		Store: r.store, DB: r.db, Registry: r.registry, ID: r.owner, Kind: "relays", Logger: r.config.Logger,
		Takes: presence.Manifest{Relays: r.names()}, Doing: r.doing,
	}).Start(ctx)()
	r.serving.Store(true)
	defer r.serving.Store(false)
	var wg sync.WaitGroup
	for _, rc := range r.receivers {
		wg.Go(func() { r.run(ctx, rc) })
		wg.Go(func() { r.forget(ctx, rc) })
	}
	if len(r.logs) > 0 {
		wg.Go(func() { r.runLogs(ctx) })
	}
	wg.Wait()
	return nil
}

// Check checks the database as [Runner.Run] does before it starts, and returns the same errors. It
// takes at most 10 s.
func (r *Runner) Check(ctx context.Context) error {
	return dberr.Wrap(r.ready(ctx), "relay: check")
}

// start checks that Run can begin. From then on, older instances do not drop what this one
// accepts.
func (r *Runner) start(ctx context.Context) error {
	err := r.ready(ctx)
	for _, rc := range r.receivers {
		if err == nil {
			err = r.keepTypes(ctx, rc)
		}
	}
	return err
}

func (r *Runner) ready(ctx context.Context) error {
	if _, err := r.store.Ready(ctx, r.db, 2*statementTimeout, r.registry.Events() == nil); err != nil {
		return err
	}
	return errors.Join(r.enterReceivers(ctx), r.enterLogs(ctx))
}

const (
	firstRetry   = time.Second
	longestRetry = 30 * time.Second
)

// pausedError ends a subscription that continues later.
type pausedError struct{ reason error }

func (e *pausedError) Error() string { return "relay: paused: " + e.reason.Error() }
func (e *pausedError) Unwrap() error { return e.reason }

// run keeps one subscription running.
func (r *Runner) run(ctx context.Context, rc *receiving) {
	defer rc.runs.broker(nil) // the broker's state is not watched any more
	retry := firstRetry
	for r.awaitRoom(ctx, rc) && r.awaitReturn(ctx, rc) && r.awaitTurn(ctx, rc) {
		began := time.Now()
		worked, err := r.subscribe(ctx, rc)
		if worked || time.Since(began) > longestRetry {
			retry = firstRetry
		}
		_, paused := errors.AsType[*pausedError](err)
		newer, lacks := errors.AsType[*newerError](err)
		switch {
		case ctx.Err() != nil:
			return
		case lacks:
			r.standBack(ctx, rc, newer)
			fallthrough
		case paused, err == errSubscriberHangs:
			retry = firstRetry
			continue
		}
		rc.runs.broker(nil) // the subscription's error is more precise
		rc.runs.pause("the subscription has ended")
		r.config.Logger.Error("subscription ended", "receiver", rc.name, "error", err, "next_try_within", retry)
		if !outage.Pause(ctx, retry) {
			return
		}
		retry = min(2*retry, longestRetry)
	}
}

const (
	forgetEvery = time.Minute
	forgetRows  = 1000
)

// forget deletes inbox rows after the deduplication window, and stores the accepted types again.
func (r *Runner) forget(ctx context.Context, rc *receiving) {
	every := min(forgetEvery, rc.retention/10)
	for wait := every; outage.Pause(ctx, wait); {
		wait = every
		err := r.keepTypes(ctx, rc)
		for n := forgetRows; err == nil && n == forgetRows && ctx.Err() == nil; {
			n, err = r.forgetSome(ctx, rc)
		}
		switch {
		case err == nil:
			r.outage.Recovered()
		case ctx.Err() == nil:
			wait = min(every, mostRetry) // nothing else may notice that the database is back
			r.outage.Failed("forget what was received", err, wait)
		}
	}
}

func (r *Runner) forgetSome(ctx context.Context, rc *receiving) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return r.store.Forget(ctx, r.db, rc.name, rc.retention, forgetRows)
}
