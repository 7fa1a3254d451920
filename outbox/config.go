package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

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
	// Options.Layers. Defaults to middleware.Default with the Logger.
	Middleware []bus.Middleware
	// Logger receives what the processor itself has to say. The default chain logs to
	// it, too: a line for each run, see middleware.Log. Defaults to slog.Default().
	Logger *slog.Logger
}

const (
	// abandonGrace is how long a handler may ignore its timeout before it is
	// abandoned.
	abandonGrace = 5 * time.Second
	// A message is poisoned when its process was lost three times in a row, the last time while the
	// message ran as the only suspect of its process.
	maxCrashes = 3
	// maxClaimBytes bounds the payloads, events, headers and errors of one claim,
	// maxHeldBytes those of all messages that wait or run in a process.
	maxClaimBytes = 16 << 20
	maxHeldBytes  = 64 << 20

	minLease = time.Second
)

// withDefaults fills in what is not set.
func (c ProcessorConfig) withDefaults(rowLocks bool) ProcessorConfig {
	loops, transactions := 2, 8
	if !rowLocks {
		loops, transactions = 1, 1
	}
	c.Fetchers = cmp.Or(c.Fetchers, loops)
	c.TxConcurrency = cmp.Or(c.TxConcurrency, transactions)
	c.BatchSize = cmp.Or(c.BatchSize, 2000)
	c.PollInterval = cmp.Or(c.PollInterval, time.Second)
	c.Concurrency = cmp.Or(c.Concurrency, 64)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 5)
	c.AttemptDelay = cmp.Or(c.AttemptDelay, 10*time.Second)
	c.DefaultTimeout = cmp.Or(c.DefaultTimeout, 10*time.Second)
	c.LeaseDuration = cmp.Or(c.LeaseDuration, 30*time.Second)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 10*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Middleware == nil {
		c.Middleware = middleware.Default(middleware.Options{Logger: c.Logger})
	}
	return c
}

// validate reports every field that is out of range; defaults are filled in.
func (c ProcessorConfig) validate(rowLocks bool) error {
	var errs []error
	check := func(ok bool, field string, value any, allowed string) {
		if !ok {
			errs = append(errs, fmt.Errorf("outbox: ProcessorConfig.%s %v: %s", field, value, allowed))
		}
	}
	check(c.Fetchers >= 1, "Fetchers", c.Fetchers, "1 or more is allowed")
	check(rowLocks || c.Fetchers <= 1, "Fetchers", c.Fetchers, "1 is allowed on SQLite, which has one writer at a time")
	check(rowLocks || c.TxConcurrency <= 1, "TxConcurrency", c.TxConcurrency, "1 is allowed on SQLite, which has one writer at a time")
	check(c.BatchSize >= 1, "BatchSize", c.BatchSize, "1 or more is allowed")
	check(c.PollInterval >= 0, "PollInterval", c.PollInterval, "0 or more is allowed")
	check(c.Concurrency >= 1, "Concurrency", c.Concurrency, "1 or more is allowed")
	check(c.TxConcurrency >= 1, "TxConcurrency", c.TxConcurrency, "1 or more is allowed")
	check(c.MaxAttempts >= 1, "MaxAttempts", c.MaxAttempts, "1 or more is allowed")
	check(c.AttemptDelay >= 0, "AttemptDelay", c.AttemptDelay, "0 or more is allowed")
	check(c.LeaseDuration >= minLease, "LeaseDuration", c.LeaseDuration, "1s or more is allowed")
	check(c.StartTimeout >= 0, "StartTimeout", c.StartTimeout, "0 or more is allowed")
	check(c.DrainTimeout >= 0, "DrainTimeout", c.DrainTimeout, "0 or more is allowed")
	if err := checkTimeout("outbox: ProcessorConfig.DefaultTimeout", c.DefaultTimeout); err != nil {
		errs = append(errs, err)
	}
	for i, layer := range c.Middleware {
		if layer == nil {
			errs = append(errs, fmt.Errorf("outbox: ProcessorConfig.Middleware[%d] is nil", i))
		}
	}
	return errors.Join(errs...)
}

func checkTimeout(what string, d time.Duration) error {
	if d <= 0 || d > limits.Timeout {
		return fmt.Errorf("%s %s: more than 0, up to %s is allowed", what, d, limits.Timeout)
	}
	return nil
}

// settings resolves a consumer's configuration: its own, else the processor's.
func (c ProcessorConfig) settings(consumer bus.Consumer) (bus.ConsumerConfig, error) {
	settings := consumer.Config()
	var err error
	if settings.Timeout != 0 {
		err = checkTimeout(fmt.Sprintf("outbox: consumer %q: Timeout", consumer.Name()), settings.Timeout)
	}
	settings.Timeout = cmp.Or(settings.Timeout, c.DefaultTimeout)
	settings.MaxAttempts = cmp.Or(settings.MaxAttempts, c.MaxAttempts)
	settings.AttemptDelay = cmp.Or(settings.AttemptDelay, c.AttemptDelay)
	return settings, err
}

// checkPool refuses a pool in which the processor would starve itself.
func (c ProcessorConfig) checkPool(db *bun.DB, s *store.Store, transactional bool) error {
	need, explained := c.connections(s, transactional)
	if limit := db.Stats().MaxOpenConnections; limit > 0 && limit < need {
		return fmt.Errorf("outbox: pool of %d: %d connections or more are needed (%s", limit, need, explained)
	}
	return nil
}

// connections is how many the processor may hold at once, and for what.
func (c ProcessorConfig) connections(s *store.Store, transactional bool) (need int, explained string) {
	transactions := 0
	if transactional {
		transactions = c.TxConcurrency
	}
	if !s.RowLocks() { // claims and settles wait for each other anyway
		return transactions + 1, fmt.Sprintf("%d transactional consumers, and 1 for all else): raise SetMaxOpenConns", transactions)
	}
	return c.Fetchers + transactions + 1, fmt.Sprintf("%d claim loops, %d transactional consumers, and 1 that renews leases): raise SetMaxOpenConns, or lower Fetchers or TxConcurrency", c.Fetchers, transactions)
}
