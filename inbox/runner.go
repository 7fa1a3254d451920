package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/heartbeat"
	"github.com/asyncmonolith/asyncmonolith-go/internal/lifecycle"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
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
	// Log is the application's event log, made with the same registry. [AppendToLog] needs it.
	// Defaults to none.
	Log *eventlog.Log
	// Logger logs the runner's events. Defaults to slog.Default().
	Logger *slog.Logger
}

const statementTimeout = 5 * time.Second

// services are what all workers of a runner use.
type services struct {
	db       *bun.DB
	registry *bus.Registry
	producer *outbox.Producer
	store    *store.Store
	log      *eventlog.Log
	logger   *slog.Logger
	outage   *outage.Outage
	produce  bus.ProduceFunc // around received batches
	owner    string          // of leases
}

// Runner runs receivers. Any number of runners in any number of processes may run receivers of the
// same name, as far as the subscription allows it. A Runner is safe for concurrent use.
type Runner struct {
	services
	startTimeout time.Duration
	workers      []*worker
	run          lifecycle.Run
}

// NewRunner makes a runner. The registry must have each receiver's [Receiver.Consumer], and
// consumers for all accepted payloads. The producer must have the same registry; it writes received
// messages through its layers. NewRunner reports all configuration errors at once and does not
// access the database. A receiver belongs to one runner. On MariaDB, which has no event log,
// NewRunner returns errors.ErrUnsupported for [AppendToLog].
func NewRunner(db *bun.DB, registry *bus.Registry, producer *outbox.Producer, config RunnerConfig, receivers ...Receiver) (*Runner, error) {
	if db == nil || registry == nil || producer == nil {
		return nil, errors.New("inbox: NewRunner: the database handle, the registry or the producer is nil")
	}
	s, err := store.For(db.Dialect().Name(), registry.Tables())
	if err != nil {
		return nil, fmt.Errorf("inbox: NewRunner: %w", err)
	}
	r := &Runner{startTimeout: config.StartTimeout, services: services{
		db: db, registry: registry, producer: producer, store: s, log: config.Log, logger: cmp.Or(config.Logger, slog.Default()),
		produce: access.ComposeProduce(nil), owner: uuid.Must(uuid.NewV7()).String(), // cannot fail
	}}
	if config.Telemetry != nil {
		r.produce = config.Telemetry(r.produce)
	}
	r.outage = outage.New(r.logger, 0, s.Look(db))
	var errs []error
	if config.StartTimeout < 0 {
		errs = append(errs, fmt.Errorf("inbox: RunnerConfig.StartTimeout %s: 0 or more is allowed", config.StartTimeout))
	}
	if config.Log != nil && logaccess.Registry(config.Log) != registry {
		errs = append(errs, errors.New("inbox: RunnerConfig.Log: a log made by eventlog.NewLog with the runner's registry is needed"))
	}
	receivers = slices.SortedStableFunc(slices.Values(receivers), func(a, b Receiver) int { // package fxmodule has them in any order
		return cmp.Compare(a.name(), b.name())
	})
	for i, receiver := range receivers {
		if receiver.receiver == nil {
			errs = append(errs, errors.New("inbox: a Receiver must be made by inbox.NewReceiver, not as a zero value"))
			continue
		}
		if slices.ContainsFunc(receivers[:i], func(other Receiver) bool { return other.name() == receiver.name() }) {
			errs = append(errs, fmt.Errorf("inbox: receiver %q is given twice", receiver.name()))
		}
		errs = append(errs, receiver.receiver.check(registry, s, config.Log))
		r.workers = append(r.workers, newWorker(&r.services, receiver.receiver))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r, r.own()
}

// own makes all receivers belong to this runner, or none.
func (r *Runner) own() error {
	for i, w := range r.workers {
		if w.attached.CompareAndSwap(nil, w) {
			continue
		}
		for _, owned := range r.workers[:i] {
			owned.attached.Store(nil)
		}
		return fmt.Errorf("inbox: receiver %q belongs to another runner: make a new Receiver", w.name)
	}
	return nil
}

// Run receives records until ctx is cancelled. Then it finishes each receiver's current batch and
// returns nil. A subscriber that does not return within 10 s is abandoned. So are [MapRecord]'s
// function and upcasters that take longer than 5 s, layers, keys and codecs that take longer than
// 15 s, and a Telemetry that takes longer than 10 s. While four abandoned calls still run, nothing is
// accepted.
//
// Run returns an error at its start in these cases:
//
//   - the database cannot be reached and StartTimeout has passed
//   - the server is not supported (outbox.ErrUnsupportedServer). An untested server is accepted if
//     the registry has no events and READ COMMITTED is effective there.
//   - the tables are missing or too old (outbox.ErrSchemaOutdated)
//
// Run logs later outages and waits for them to end. Meanwhile it acknowledges nothing, and returns
// current batches to the broker. A subscription that ends is logged and retried after 1 s, then
// after twice as long each time, up to 30 s, until records arrive. A second concurrent Run returns
// bus.ErrRunning.
func (r *Runner) Run(ctx context.Context) error {
	return r.run.Do(ctx, lifecycle.Config{Package: "inbox", Check: r.start, StartTimeout: r.startTimeout, Heartbeat: heartbeat.Config{
		Store: r.store, DB: r.db, Registry: r.registry, ID: r.owner, Kind: "receivers", Logger: r.logger, Doing: r.reported,
		Takes: heartbeat.Manifest{Relays: store.Each(r.workers, func(w *worker) string { return w.name })},
	}}, r.receive)
}

// receive runs the receivers until ctx ends.
func (r *Runner) receive(ctx context.Context) {
	var wg sync.WaitGroup
	for _, w := range r.workers {
		wg.Go(func() { w.run(ctx) })
		wg.Go(func() { w.forget(ctx) })
	}
	wg.Wait()
}

// Check checks the database as [Runner.Run] does before it starts, and returns the same errors. The
// checks take at most 10 s. It then creates the leases of new receivers with [AppendToLog], limited
// only by ctx.
func (r *Runner) Check(ctx context.Context) error {
	return dberr.Wrap(r.ready(ctx), "inbox: check")
}

// start checks that Run can begin. From then on, older instances do not drop what this one
// accepts.
func (r *Runner) start(ctx context.Context) error {
	err := r.ready(ctx)
	for _, w := range r.workers {
		if err == nil {
			err = w.types.announce(ctx)
		}
	}
	return err
}

func (r *Runner) ready(ctx context.Context) error {
	if _, err := r.store.Ready(ctx, r.db, 2*statementTimeout, access.Events(r.registry) == nil); err != nil {
		return err
	}
	for _, w := range r.workers {
		if err := w.lease.create(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Health returns the runner's health without querying the database. The runner is ready while Run
// runs and the last query succeeded. OpenCircuits has "receive:" and the name of each receiver that
// receives nothing: its broker is unavailable, as reported by a [broker.OutageNotifier], or it
// leaves its records to a newer instance.
func (r *Runner) Health() bus.Health {
	h := bus.Health{Err: r.outage.Err()}
	for _, w := range r.workers {
		if away := w.state.absent(); !away.since.IsZero() {
			h.OpenCircuits = append(
				h.OpenCircuits, bus.OpenCircuit{Consumer: w.consumerName(), Since: away.since, Reason: errorlog.Text(away.reason)},
			)
		}
	}
	h.Ready = h.Err == nil && r.run.Serving()
	return h
}

// reported is the state in the heartbeat: which receivers receive nothing.
func (r *Runner) reported() heartbeat.State {
	return heartbeat.State{Circuits: r.Health().OpenCircuits}
}

// Stats returns the receivers' states, in the order in which they were given. It queries the
// database for each.
func (r *Runner) Stats(ctx context.Context) ([]Stats, error) {
	all := make([]Stats, 0, len(r.workers))
	for _, w := range r.workers {
		inbox, err := r.store.Inbox.Size(ctx, r.db, w.name, maxCounted)
		if err != nil {
			return nil, dberr.Wrap(err, "inbox: stats")
		}
		s := w.state.stats()
		s.Receiver, s.InboxSize = w.name, inbox.Hashes
		if !inbox.Oldest.IsZero() {
			s.Oldest = inbox.Now.Sub(inbox.Oldest.Time)
		}
		all = append(all, s)
	}
	return all, nil
}
