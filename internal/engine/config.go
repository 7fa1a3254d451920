package engine

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

// ProcessorConfig has the fields of outbox.ProcessorConfig, which documents them.
type ProcessorConfig struct {
	Fetchers            int
	BatchSize           int
	PollInterval        time.Duration
	Concurrency         int
	TxConcurrency       int
	MaxAttempts         int
	AttemptDelay        time.Duration
	DefaultTimeout      time.Duration
	LeaseDuration       time.Duration
	AllowUntestedServer bool
	StartTimeout        time.Duration
	DrainTimeout        time.Duration
	Middleware          []bus.Middleware
	Logger              *slog.Logger
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

// withDefaults fills in what is not set. pool is how many connections there may be; 0 is no limit.
func (c ProcessorConfig) withDefaults(rowLocks bool, pool int) ProcessorConfig {
	if !rowLocks {
		c.Fetchers, c.TxConcurrency = cmp.Or(c.Fetchers, 1), cmp.Or(c.TxConcurrency, 1)
	}
	c.Fetchers = cmp.Or(c.Fetchers, 2)
	c.TxConcurrency = cmp.Or(c.TxConcurrency, defaultTransactions(pool, pool-c.Fetchers-1))
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

// defaultTransactions returns how many transactional consumers may run on a pool, of which so many
// connections are free for them: a quarter of the pool is left to the application, unless they then
// were fewer than 8.
func defaultTransactions(pool, free int) int {
	if pool == 0 {
		return 16
	}
	return max(free-pool/4, min(free, 8), 1)
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

// checkPool returns an error for a pool in which the processor would starve itself.
func (c ProcessorConfig) checkPool(db *bun.DB, s *store.Store, transactional bool) error {
	need, explained := c.connections(s, transactional)
	if limit := db.Stats().MaxOpenConnections; limit > 0 && limit < need {
		return fmt.Errorf("outbox: SetMaxOpenConns %d: %d connections or more are needed (%s", limit, need, explained)
	}
	return nil
}

// connections returns how many connections the processor may hold at once, and what for.
func (c ProcessorConfig) connections(s *store.Store, transactional bool) (need int, explained string) {
	transactions := 0
	if transactional {
		transactions = c.TxConcurrency
	}
	if !s.RowLocks() { // claims and settles wait for each other anyway
		return transactions + 1, fmt.Sprintf("%d for transactional consumers, 1 for the rest)", transactions)
	}
	return c.Fetchers + transactions + 1, fmt.Sprintf("%d for fetchers, %d for transactional consumers, 1 to renew leases): "+
		"raise it, or MaxConns of a pool of pgx, or lower Fetchers or TxConcurrency", c.Fetchers, transactions)
}
