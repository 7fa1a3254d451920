package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/contract"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/heartbeat"
	"github.com/asyncmonolith/asyncmonolith-go/internal/lifecycle"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// RunnerConfig configures a [Runner]. Log is required.
type RunnerConfig struct {
	// Log is the application's event log.
	Log *eventlog.Log
	// StartTimeout is how long Run waits at its start for an unavailable database. Defaults to 0:
	// Run returns the error at once.
	StartTimeout time.Duration
	// Telemetry wraps every batch of events that is published. Defaults to none.
	Telemetry bus.ProduceMiddleware
	// Logger logs the runner's events. Defaults to slog.Default().
	Logger *slog.Logger
}

const statementTimeout = 5 * time.Second

// services are what all shards of a runner use.
type services struct {
	db       *bun.DB
	registry *bus.Registry
	store    *store.Store
	log      *eventlog.Log
	logger   *slog.Logger
	outage   *outage.Outage
	produce  bus.ProduceFunc // around published batches
	owner    string          // of leases
}

// Runner runs log forwarders. Any number of runners in any number of processes may run forwarders
// of the same name. One process at a time works on each shard. A Runner is safe for concurrent
// use.
type Runner struct {
	services
	startTimeout time.Duration
	forwarders   []*logForwarder
	run          lifecycle.Run
}

// NewRunner makes a runner. It reports all configuration errors at once and does not access the
// database. A forwarder belongs to one runner. On MariaDB, which has no event log, NewRunner
// returns errors.ErrUnsupported.
func NewRunner(db *bun.DB, registry *bus.Registry, config RunnerConfig, forwarders ...LogForwarder) (*Runner, error) {
	if db == nil || registry == nil {
		return nil, errors.New("relay: NewRunner: the database handle or the registry is nil")
	}
	s, err := store.For(db.Dialect().Name(), registry.Tables())
	if err != nil {
		return nil, fmt.Errorf("relay: NewRunner: %w", err)
	}
	r := &Runner{startTimeout: config.StartTimeout, services: services{
		db: db, registry: registry, store: s, log: config.Log, logger: cmp.Or(config.Logger, slog.Default()),
		produce: access.ComposeProduce(nil), owner: uuid.Must(uuid.NewV7()).String(), // cannot fail
	}}
	if config.Telemetry != nil {
		r.produce = config.Telemetry(r.produce)
	}
	r.outage = outage.New(r.logger, 0, s.Look(db))
	var errs []error
	if config.StartTimeout < 0 {
		errs = append(errs, fmt.Errorf("relay: RunnerConfig.StartTimeout %s: 0 or more is allowed", config.StartTimeout))
	}
	if config.Log != nil && logaccess.Registry(config.Log) != registry {
		errs = append(errs, errors.New("relay: RunnerConfig.Log: a log made by eventlog.NewLog with the runner's registry is needed"))
	}
	forwarders = slices.SortedStableFunc(slices.Values(forwarders), func(a, b LogForwarder) int { // package fxmodule has them in any order
		return cmp.Compare(a.name(), b.name())
	})
	for i, l := range forwarders {
		if l.forwarder == nil {
			errs = append(errs, errors.New("relay: a LogForwarder must be made by relay.NewLogForwarder, not as a zero value"))
			continue
		}
		if slices.ContainsFunc(forwarders[:i], func(other LogForwarder) bool { return other.name() == l.name() }) {
			errs = append(errs, fmt.Errorf("relay: log forwarder %q is given twice", l.name()))
		}
		errs = append(errs, l.forwarder.check(s, config.Log))
		r.forwarders = append(r.forwarders, l.forwarder)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r, r.own()
}

// own makes all forwarders belong to this runner, or none.
func (r *Runner) own() error {
	for i, l := range r.forwarders {
		if l.attached.CompareAndSwap(nil, r) {
			continue
		}
		for _, owned := range r.forwarders[:i] {
			owned.attached.Store(nil)
		}
		return fmt.Errorf("relay: log forwarder %q belongs to another runner: make a new LogForwarder", l.name)
	}
	for _, l := range r.forwarders {
		l.complete(&r.services)
	}
	return nil
}

// Run publishes the log until ctx is cancelled. Then it finishes each shard's current batch and
// returns nil.
//
// Run returns an error at its start in these cases:
//
//   - the database cannot be reached and StartTimeout has passed
//   - the server is not supported, or is untested (outbox.ErrUnsupportedServer)
//   - the tables are missing or too old (outbox.ErrSchemaOutdated)
//   - a forwarder has another number of shards than before
//   - a broker answers but does not support what the forwarder needs
//
// Run logs later outages and waits for them to end. A second concurrent Run returns bus.ErrRunning.
func (r *Runner) Run(ctx context.Context) error {
	return r.run.Do(ctx, lifecycle.Config{Package: "relay", Check: r.ready, StartTimeout: r.startTimeout, Heartbeat: heartbeat.Config{
		Store: r.store, DB: r.db, Registry: r.registry, ID: r.owner, Kind: "relays", Logger: r.logger, Doing: r.reported,
		Takes:  heartbeat.Manifest{Relays: store.Each(r.forwarders, func(l *logForwarder) string { return l.name })},
		Relays: r.contracts(),
	}}, func(ctx context.Context) { newDispatcher(ctx, r).run() })
}

// contracts describes what is published.
func (r *Runner) contracts() map[string]contract.Relay {
	all := make(map[string]contract.Relay)
	for _, l := range r.forwarders {
		all[l.name] = l.contract()
	}
	return all
}

// Check checks the database and the brokers as [Runner.Run] does before it starts, and returns the
// same errors. It creates the checkpoints of new forwarders. It takes at most 20 s.
func (r *Runner) Check(ctx context.Context) error {
	return dberr.Wrap(r.ready(ctx), "relay: check")
}

func (r *Runner) ready(ctx context.Context) error {
	if _, err := r.store.Ready(ctx, r.db, 2*statementTimeout, access.Events(r.registry) == nil); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*statementTimeout)
	defer cancel()
	var errs []error
	for _, l := range r.forwarders {
		errs = append(errs, l.enter(ctx, &r.services), l.try(ctx))
	}
	return errors.Join(errs...)
}

// Health returns the runner's health without querying the database. The runner is ready while Run
// runs and the last query succeeded. OpenCircuits has "relay:" and the name of each forwarder whose
// circuit is open.
func (r *Runner) Health() bus.Health {
	h := bus.Health{Err: r.outage.Err()}
	for _, l := range r.forwarders {
		if since, reason, open := l.config.Circuit.Tripped(); open {
			h.OpenCircuits = append(h.OpenCircuits, bus.OpenCircuit{Consumer: l.checkpoint(), Since: since, Reason: errorlog.Text(reason)})
		}
	}
	h.Ready = h.Err == nil && r.run.Serving()
	return h
}

// reported is the state in the heartbeat: which forwarders wait for their broker.
func (r *Runner) reported() heartbeat.State {
	return heartbeat.State{Circuits: r.Health().OpenCircuits}
}
