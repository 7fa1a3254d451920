package outbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/engine"
)

// ProcessorConfig configures a [Processor]. Zero fields mean their defaults.
type ProcessorConfig struct {
	// Fetchers is the number of goroutines that claim messages: 1 or more. Defaults to 2. On SQLite
	// the default is 1, and more is an error.
	Fetchers int
	// BatchSize is the maximum number of messages per claim: 1 or more. A claim normally takes up
	// to 500. If consumers finish more than 16,000 messages per second, it takes more, up to
	// BatchSize. It bounds what a crash can repeat: at most Fetchers x BatchSize + Concurrency
	// messages wait or run. Claiming pauses while more than 5 x BatchSize outcomes, and more than
	// 1,000, are not written yet. Defaults to 2000.
	BatchSize int
	// PollInterval is the wait between polls while no message is due, ±20 %: more than 0. Wake-ups
	// shorten it. Defaults to 1 s.
	PollInterval time.Duration
	// Concurrency is the maximum number of calls of consumers that run at once: 1 or more. A batch
	// is one call. With several consumers, each leaves some workers free for the others: as many as
	// it uses itself, but at most an eighth of Concurrency, or 1 if that is more. A slow consumer
	// therefore does not block the others. Defaults to 64.
	Concurrency int
	// TxConcurrency is the maximum number of calls of transactional consumers that run at once: 1
	// or more. Each holds a connection. They count towards Concurrency, too. The default is 16 for
	// a pool without SetMaxOpenConns. Otherwise Fetchers, 1 connection that renews leases, and a
	// quarter of the pool for the application are subtracted from the pool. If less than 8 remain,
	// the quarter is used as well, up to 8. On SQLite the default is 1, and more is an error.
	TxConcurrency int
	// MaxAttempts is the number of failed runs after which a message is poisoned, for consumers
	// without bus.MaxAttempts: 1 or more. Defaults to 5.
	MaxAttempts int
	// AttemptDelay is the wait after the first failed run, for consumers without bus.AttemptDelay:
	// more than 0. Defaults to 10 s.
	AttemptDelay time.Duration
	// DefaultTimeout bounds a run of a consumer without bus.Timeout: more than 0, up to 1 h. A
	// consumer that still runs 5 s after its timeout is abandoned. Defaults to 10 s.
	DefaultTimeout time.Duration
	// LeaseDuration is how long a claim lasts without renewal. If a process is lost, its messages wait
	// this long before another process runs them. At least 1 s. Defaults to 30 s.
	LeaseDuration time.Duration
	// AllowUntestedServer allows a server that speaks the protocol of PostgreSQL or MariaDB but is
	// not tested with this library: YugabyteDB, MySQL, or an unknown one. READ COMMITTED must be
	// effective there, which Run checks, and the registry must have no events. Servers on which
	// nothing can run are still refused: see docs/databases.md. Defaults to false.
	AllowUntestedServer bool
	// StartTimeout is how long Run waits at its start for an unreachable database: 0 or more.
	// Defaults to 0: Run returns the error at once.
	StartTimeout time.Duration
	// DrainTimeout is how long Run lets consumers finish after its context ends: more than 0. Run
	// returns within two seconds after that. On SQLite a statement that waits for the write lock
	// cannot be interrupted. Run then takes up to busy_timeout longer, or a multiple if another
	// process keeps the lock. Defaults to 10 s.
	DrainTimeout time.Duration
	// Middleware is the whole consume chain, first outermost; it replaces the default chain. To add
	// layers use middleware.Default with Options.Middleware. Defaults to middleware.Default with
	// the Logger.
	Middleware []bus.Middleware
	// Logger receives the processor's own log lines. The default chain also logs one line per run
	// to it: see middleware.Log. Defaults to slog.Default().
	Logger *slog.Logger
}

// Processor claims messages and runs their consumers. Any number of processors, in any number of
// processes, may use the same tables.
//
// Its methods are safe for concurrent use.
type Processor struct {
	engine   *engine.Processor
	db       *bun.DB
	registry *bus.Registry
	admin    *admin.Client
}

// NewProcessor makes a processor for every consumer of the registry. It reports all configuration
// errors at once and does not access the database. It returns errors.ErrUnsupported for a registry
// with events on a database without the event log.
func NewProcessor(db *bun.DB, registry *bus.Registry, config ProcessorConfig) (*Processor, error) {
	e, err := engine.NewProcessor(db, registry, engine.ProcessorConfig(config))
	if err != nil {
		return nil, err
	}
	client, err := admin.NewClient(registry)
	return &Processor{engine: e, db: db, registry: registry, admin: client}, err
}

// Run processes messages until ctx is cancelled. It then stops claiming, lets running consumers
// finish for DrainTimeout, cancels the others with bus.ErrStopping, and releases the remaining
// messages. It returns nil after a clean drain, a *bus.DrainError if consumers were still running,
// or the error that prevented writing their outcomes.
//
// Run returns an error at startup in these cases:
//   - The database cannot be reached within StartTimeout.
//   - The library does not work with the server ([ErrUnsupportedServer]).
//   - The tables are missing or too old ([ErrSchemaOutdated]).
//   - The database's settings would break the library's guarantees.
//
// Run logs later outages and waits for them to end. A second concurrent Run returns bus.ErrRunning.
//
// To shut down, as with Shutdown of net/http, end ctx and wait for Run. DrainTimeout bounds the
// wait, and [Processor.Close] shortens it.
func (p *Processor) Run(ctx context.Context) error { return p.engine.Run(ctx) }

// Close ends the drain of a stopping processor: running consumers are cancelled with
// bus.ErrStopping at once. Call it on a second signal. It has no effect on a processor that is not
// stopping.
func (p *Processor) Close() { p.engine.Close() }

// Check checks the database as [Processor.Run] does at startup, and returns the same errors:
// [ErrUnsupportedServer], [ErrSchemaOutdated], all settings that would break the library's
// guarantees, or why the database cannot be reached. It takes at most 10 s, and may be called at
// any time.
func (p *Processor) Check(ctx context.Context) error { return p.engine.Check(ctx) }

// ProcessNext claims one due message, runs its consumer, writes the outcome exactly as
// [Processor.Run] does, and returns. Use it in tests, and in commands that process pending messages
// and exit.
//
// It claims the oldest message. Messages whose process crashed come first, one at a time, but are left
// out while Run runs. Messages with keys of ordered consumers come last. With names, it claims only
// messages of these consumers. For a consumer of batches it claims all due messages, up to a batch,
// for one call.
//
// ran is false if no message is due, or if each that is due is claimed by another process, locked by a
// transaction, or blocked by a circuit, a limit or a rate. ProcessNext returns database errors, or an
// error that names a consumer that is not registered. The consumer's own error is stored with its
// message, as in Run.
//
// The chain runs on the caller's goroutine; for a batch it runs on one goroutine per message. The
// consumer's function runs on a goroutine that ends before ProcessNext returns, unless it is
// abandoned. When ctx ends, the consumer is cancelled with bus.ErrStopping, and its message is
// released. ProcessNext does not call [Processor.Check], retries no claim, and may be called while
// Run runs.
func (p *Processor) ProcessNext(ctx context.Context, consumers ...string) (ran bool, err error) {
	return p.engine.ProcessNext(ctx, consumers...)
}

// Health returns the processor's health.
func (p *Processor) Health() bus.Health { return p.engine.Health() }
