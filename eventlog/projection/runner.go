package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/heartbeat"
	"github.com/asyncmonolith/asyncmonolith-go/internal/lifecycle"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

// RunnerConfig configures a [Runner]. The zero value works: zero fields mean the defaults.
type RunnerConfig struct {
	// Concurrency is the maximum number of shards worked on at once; each holds a connection.
	// Defaults to 4, or 1 on SQLite.
	Concurrency int
	// PollInterval is the wait between polls while idle. Appends of this process end it early.
	// Defaults to 250 ms.
	PollInterval time.Duration
	// DrainTimeout is how long Run lets an event or batch finish after ctx ends. Defaults to 10 s.
	DrainTimeout time.Duration
	// StartTimeout is how long Run waits at its start for an unavailable database. Defaults to 0:
	// Run returns the error at once.
	StartTimeout time.Duration
	// Chain is the whole consume chain, first outermost, for every event; it replaces the default
	// chain. A [Projection.Batch] passes through it once, with its first event. To add layers use
	// middleware.Default with Options.Middleware. In a chain without its layers Attempts, Poison
	// and Timeout, the fields MaxAttempts, OnError and Timeout of a [Projection] have no effect.
	// Defaults to middleware.Default with the Logger, limited to warnings and errors.
	Chain []bus.Middleware
	// Telemetry wraps every batch; the produce function passed to it applies the batch's events.
	// Defaults to none.
	Telemetry bus.ProduceMiddleware
	// Logger logs the runner's events. Defaults to slog.Default().
	Logger *slog.Logger
}

// Runner runs projections. Any number of runners, in any number of processes, may run the same
// projections. One of them at a time works on a shard. It is safe for concurrent use.
type Runner struct {
	db      *bun.DB
	log     *eventlog.Log
	store   *store.Store
	config  RunnerConfig
	readers []*reader
	byName  map[string]*reader // the newest versions
	chain   bus.Handler
	applies bus.ProduceFunc
	outage  *outage.Outage
	run     lifecycle.Run
	cut     atomic.Pointer[func()] // ends the drain; nil unless Run works
	left    atomic.Int32           // abandoned functions that still run
	moves   *moves
}

// NewRunner makes a runner. It reports all configuration errors at once and does not access the
// database. On MariaDB, which has no event log, it returns errors.ErrUnsupported. A projection may
// be given in several versions.
func NewRunner(db *bun.DB, log *eventlog.Log, config RunnerConfig, projections ...Projection) (*Runner, error) {
	if db == nil || log == nil {
		return nil, errors.New("projection: NewRunner: the database handle or the log is nil")
	}
	if logaccess.Registry(log) == nil {
		return nil, errors.New("projection: NewRunner: the log was not made by eventlog.NewLog")
	}
	s, err := store.For(db.Dialect().Name(), logaccess.Registry(log).Tables())
	if err == nil {
		err = s.Events()
	}
	if err != nil {
		return nil, fmt.Errorf("projection: NewRunner: %w", err)
	}
	r := &Runner{db: db, log: log, store: s, byName: map[string]*reader{}, moves: newMoves()}
	var errs []error
	r.config, err = config.complete(s.RowLocks())
	errs = append(errs, err)
	for _, p := range projections {
		added, err := newReader(p, logaccess.Types(log))
		if err != nil {
			errs = append(errs, fmt.Errorf("projection: NewRunner: %w", err))
			continue
		}
		if slices.ContainsFunc(r.readers, func(r *reader) bool { return r.Name == added.Name && r.Version == added.Version }) {
			errs = append(errs, fmt.Errorf("projection: NewRunner: projection %q version %d is given twice", added.Name, added.Version))
		}
		for _, shard := range added.shards {
			shard.runner = r
		}
		r.readers = append(r.readers, added)
		if newest := r.byName[added.Name]; newest == nil || newest.Version < added.Version {
			r.byName[added.Name] = added
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	r.chain, r.applies = bus.Compose(nil, r.config.Chain...), access.ComposeProduce(nil)
	if r.config.Telemetry != nil {
		r.applies = r.config.Telemetry(r.applies)
	}
	r.outage = outage.New(r.config.Logger, 0, r.store.Look(r.db))
	return r, nil
}

// newest returns the newest version of a projection that the runner has, and whether it has any.
func (r *Runner) newest(name string) (version int, ok bool) {
	if reader := r.byName[name]; reader != nil {
		return reader.Version, true
	}
	return 0, false
}

func (c RunnerConfig) complete(rowLocks bool) (RunnerConfig, error) {
	concurrency := 4
	if !rowLocks {
		concurrency = 1
	}
	c.Concurrency = cmp.Or(c.Concurrency, concurrency)
	c.PollInterval = cmp.Or(c.PollInterval, 250*time.Millisecond)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 10*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Chain == nil {
		c.Chain = middleware.Default(middleware.Options{Logger: slog.New(warnings{c.Logger.Handler()})})
	}
	var errs []error
	if c.Concurrency < 1 || c.Concurrency > 1 && !rowLocks {
		errs = append(errs, fmt.Errorf(
			"projection: RunnerConfig.Concurrency %d: 1 or more is allowed, and 1 on SQLite, which has one writer at a time", c.Concurrency))
	}
	if c.PollInterval < 0 || c.DrainTimeout < 0 || c.StartTimeout < 0 {
		errs = append(errs, fmt.Errorf("projection: RunnerConfig.PollInterval %s, DrainTimeout %s and StartTimeout %s: 0 or more is allowed",
			c.PollInterval, c.DrainTimeout, c.StartTimeout))
	}
	for i, layer := range c.Chain {
		if layer == nil {
			errs = append(errs, fmt.Errorf("projection: RunnerConfig.Chain[%d] is nil", i))
		}
	}
	return c, errors.Join(errs...)
}

// warnings is a slog handler for warnings and errors only: there are very many events.
type warnings struct{ slog.Handler }

// Enabled implements slog.Handler.
func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

// Run assigns positions to events and applies them until ctx is cancelled. Then it finishes the
// current events and returns nil. DrainTimeout bounds this wait, and [Runner.Close] shortens it.
// Functions that still run are cancelled, and abandoned 5 s later.
//
// Run returns an error at its start in these cases:
//
//   - the database cannot be reached and StartTimeout has passed
//   - the server has no event log (outbox.ErrUnsupportedServer)
//   - the tables are missing or too old (outbox.ErrSchemaOutdated)
//   - a projection changed without a new version
//
// Run logs later outages and waits for them to end. A failing projection does not delay others. A
// second concurrent Run returns bus.ErrRunning.
func (r *Runner) Run(ctx context.Context) error {
	c := lifecycle.Config{Package: "projection", Check: r.start, StartTimeout: r.config.StartTimeout, Heartbeat: heartbeat.Config{
		Store: r.store, DB: r.db, Registry: logaccess.Registry(r.log), Kind: "projections", Logger: r.config.Logger, Doing: r.state,
		Takes: heartbeat.Manifest{Projections: r.names()},
	}}
	return r.run.Do(ctx, c, func(ctx context.Context) { dispatch(ctx, r) })
}

// Close ends the drain of a stopping runner: running functions are cancelled with bus.ErrStopping at
// once, and their events are applied again later. It has no effect on a runner that is not stopping.
func (r *Runner) Close() {
	if r == nil {
		return
	}
	if cut := r.cut.Load(); cut != nil {
		(*cut)()
	}
}

// names are the projections' names with their versions.
func (r *Runner) names() []string {
	return store.Each(r.readers, func(r *reader) string { return fmt.Sprintf("%s/%d", r.Name, r.Version) })
}

func (r *Runner) state() heartbeat.State { return heartbeat.State{Limit: r.config.Concurrency} }

const statementTimeout = 5 * time.Second

// Check checks the database as [Runner.Run] does before it starts, and returns the same errors. It
// takes at most 10 s, and creates the checkpoints of new projections.
func (r *Runner) Check(ctx context.Context) error {
	return dberr.Wrap(r.start(ctx), "projection: check")
}

// start creates the checkpoints and checks that no projection changed within its version.
func (r *Runner) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*statementTimeout)
	defer cancel()
	if _, err := r.store.Ready(ctx, r.db, 2*statementTimeout, false); err != nil {
		return err
	}
	var errs []error
	for _, reader := range r.readers {
		errs = append(errs, r.enter(ctx, reader))
	}
	return errors.Join(errs...)
}

func (r *Runner) enter(ctx context.Context, reader *reader) error {
	sub := store.Subscription{Name: reader.Name, Version: reader.Version, Shards: reader.Shards, Filter: reader.filter}
	rows, err := r.subscriptions(ctx, r.db, reader)
	if err == nil && len(rows) == 0 {
		if reader.StartAtHead {
			if sub.Position, err = r.store.EventLog.Head(ctx, r.db); err != nil {
				return err
			}
		}
		err = txn.InTx(ctx, r.db, func(tx bun.Tx) error { return r.store.Readers.Subscribe(ctx, tx, sub) })
		if err == nil {
			rows, err = r.subscriptions(ctx, r.db, reader)
		}
	}
	if err != nil {
		return fmt.Errorf("projection %q: %w", reader.Name, err)
	}
	for _, row := range rows {
		switch {
		case row.Shards != reader.Shards:
			return fmt.Errorf(
				"projection %q version %d: Shards %d: this version already has %d shards: raise the Version",
				reader.Name, reader.Version, reader.Shards, row.Shards,
			)
		case !reader.same(row.Filter, logaccess.Types(r.log)):
			return fmt.Errorf(
				"projection %q version %d reads %s, but this version has read %s so far: raise the Version", reader.Name, reader.Version,
				reader.filter, row.Filter,
			)
		}
	}
	return nil
}

// subscriptions returns the shards of one version.
func (r *Runner) subscriptions(ctx context.Context, db bun.IDB, reader *reader) ([]store.Subscription, error) {
	all, err := r.store.Readers.List(ctx, db, reader.Name)
	return slices.DeleteFunc(all, func(row store.Subscription) bool { return row.Version != reader.Version }), dberr.Explained(err)
}

// Health returns the runner's health. The runner is ready while Run runs, the database answers, and
// fewer than 16 abandoned functions still run.
func (r *Runner) Health() bus.Health {
	h := bus.Health{Err: r.outage.Err()}
	if n := r.left.Load(); n >= maxLeft {
		h.Err = fmt.Errorf("projection: %d functions that ignored their timeout are still running: nothing is started", n)
	}
	h.Ready = h.Err == nil && r.run.Serving()
	return h
}
