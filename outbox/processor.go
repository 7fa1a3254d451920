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

// ErrRunning is returned by [Processor.Run] while another Run of the same
// Processor has not returned.
var ErrRunning = engine.ErrRunning

// ProcessorConfig sets up a [Processor]. The zero value works: every zero field
// stands for its default.
type ProcessorConfig struct {
	// Fetchers is the number of goroutines that claim messages. Defaults to 2, and to 1 on a
	// database without row locks, where more is an error.
	Fetchers int
	// BatchSize is the most messages one claim takes: up to 500, and more where consumers
	// finish more than 16,000 in a second. It bounds what a crash can repeat: Fetchers x
	// BatchSize + Concurrency messages wait or run at most, and claiming waits while the
	// outcomes of more than 5 x BatchSize, or 1,000, are not written yet. Defaults to 2000.
	BatchSize int
	// PollInterval is the wait between polls while there is nothing to do,
	// ±20 %. Wake-ups cut it short. Defaults to 1 s.
	PollInterval time.Duration
	// Concurrency is the most consumers that run at once. Where several are
	// registered, each leaves as many free as it uses, up to an eighth of them and at
	// least one, so that a slow one does not keep the others from running. Defaults to 64.
	Concurrency int
	// TxConcurrency is the most transactional consumers that run at once; each
	// holds a connection. Defaults to 8, and to 1 without row locks.
	TxConcurrency int
	// MaxAttempts is the number of failed runs after which a message is
	// poisoned, for consumers that do not set their own. Defaults to 5.
	MaxAttempts int
	// AttemptDelay is the wait after the first failed run. Defaults to 10 s.
	AttemptDelay time.Duration
	// DefaultTimeout bounds a run of consumers that do not set their
	// own timeout: up to 1 h. A consumer that is still running 5 s after its
	// timeout is abandoned. Defaults to 10 s.
	DefaultTimeout time.Duration
	// LeaseDuration is how long a claim lasts without being renewed, and so how long messages of a
	// lost process wait. At least 1 s. Defaults to 30 s.
	LeaseDuration time.Duration
	// AllowUntestedServer allows a server that speaks the protocol of PostgreSQL or MariaDB and is
	// not tested with this library: YugabyteDB, MySQL, or an unknown one. READ COMMITTED must be
	// effective there, which Run tries, and the registry must have no events. Servers on which
	// nothing can run are refused all the same: see docs/deploying.md. Defaults to false.
	AllowUntestedServer bool
	// StartTimeout is how long Run waits at its start for a database that does not
	// answer. Defaults to 0, which means that it returns the error at once.
	StartTimeout time.Duration
	// DrainTimeout is how long Run lets consumers finish after it was told to
	// stop; it returns within two seconds after that. On SQLite a statement that waits
	// for the write lock cannot be cut short, and takes up to busy_timeout longer, more than
	// once if another process keeps the lock. Defaults to 10 s.
	DrainTimeout time.Duration
	// Middleware is the whole consume chain, first outermost: what is not in it is
	// not done. To add layers of your own use middleware.Default with
	// Options.Middleware. Defaults to middleware.Default with the Logger.
	Middleware []bus.Middleware
	// Logger receives what the processor itself has to say. The default chain logs to
	// it, too: a line for each run, see middleware.Log. Defaults to slog.Default().
	Logger *slog.Logger
}

// Processor claims messages and runs their consumers. Any number of processors,
// in any number of processes, may work on the same tables.
//
// Its methods are safe for concurrent use.
type Processor struct {
	engine   *engine.Processor
	db       *bun.DB
	registry *bus.Registry
	admin    *admin.Client
}

// NewProcessor makes a processor for every consumer of the registry. It reports
// everything that is wrong with the configuration at once, and does not touch
// the database. A registry with events on a database without the event log is an
// errors.ErrUnsupported.
func NewProcessor(db *bun.DB, registry *bus.Registry, config ProcessorConfig) (*Processor, error) {
	e, err := engine.NewProcessor(db, registry, engine.ProcessorConfig(config))
	if err != nil {
		return nil, err
	}
	client, err := admin.NewClient(registry)
	return &Processor{engine: e, db: db, registry: registry, admin: client}, err
}

// Run processes messages until ctx is cancelled. Then it claims no more, lets
// running consumers finish for DrainTimeout, cancels the others with
// bus.ErrStopping, gives back what is left, and returns: nil after a clean
// drain, a *bus.DrainError when consumers were still running, or the error that
// kept their results from being written.
//
// It returns an error at once when the database cannot be reached, unless
// StartTimeout has it wait, when it is a server that the library does not work with
// ([ErrUnsupportedServer]), when its tables are missing or too old ([ErrSchemaOutdated]), or
// when its settings would break the library's promises. Later outages are logged and
// waited out.
//
// To shut down, as net/http has Shutdown for it, end ctx and wait for Run; DrainTimeout
// says how long that takes at most, and [Processor.Close] cuts it short.
func (p *Processor) Run(ctx context.Context) error { return p.engine.Run(ctx) }

// Close cuts the drain of a processor that is stopping short: consumers that
// still run are cancelled with bus.ErrStopping at once. It is what a second
// signal usually means. It has no effect on a processor that is not stopping.
func (p *Processor) Close() { p.engine.Close() }

// Check looks at the live database as [Processor.Run] does before it starts, and
// returns the same errors: [ErrUnsupportedServer], [ErrSchemaOutdated], settings of the database under which the
// library cannot keep its promises, all of them at once, or why the database
// cannot be reached. It takes at most 5 s, and may be called at any time.
func (p *Processor) Check(ctx context.Context) error { return p.engine.Check(ctx) }

// ProcessNext claims one message that is due, runs its consumer, writes the outcome exactly as
// [Processor.Run] does, and returns. It is for tests and for commands that work off what there is
// and exit.
//
// It takes the oldest message. Messages that have crashed come before all others, one at a time and
// none while Run runs; those with keys of ordered consumers come after all others. With names, it
// takes only messages of these consumers. Of a consumer of batches it takes what is due, up to a
// batch: one call.
//
// False means that no message was due, that another process took it, or that a circuit, a limit or
// a rate keeps it. The error is the database's, or names a consumer that is not registered. What
// the consumer returned is written to its message, as in Run.
//
// The chain runs on the caller's goroutine, those of a batch on one for each message. The
// consumer's function runs on one that ends before ProcessNext returns, unless it is abandoned.
// When ctx ends, the consumer is cancelled with bus.ErrStopping, and its message is given back.
// ProcessNext makes no [Processor.Check], retries no claim, and may be called while Run runs.
func (p *Processor) ProcessNext(ctx context.Context, consumers ...string) (ran bool, err error) {
	return p.engine.ProcessNext(ctx, consumers...)
}

// Health returns how the processor is doing.
func (p *Processor) Health() bus.Health { return p.engine.Health() }
