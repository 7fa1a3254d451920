package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Processor implements outbox.Processor. It is safe for concurrent use.
type Processor struct {
	db        *bun.DB
	registry  *bus.Registry
	store     *store.Store
	config    ProcessorConfig
	consumers []consumer // each run works on copies
	counters  counters
	uncounted uncountedRuns

	mu      sync.Mutex
	current *run  // nil while it does not run
	crashed *run  // the ProcessNext that may run crashed messages, if any
	lastErr error // of the last Run, or of the last check before this one
}

// NewProcessor returns a processor for every consumer of the registry. It reports all errors at
// once.
func NewProcessor(db *bun.DB, registry *bus.Registry, config ProcessorConfig) (*Processor, error) {
	var errs []error
	if db == nil {
		errs = append(errs, errors.New("outbox: NewProcessor: the database handle is nil"))
	}
	if registry == nil {
		errs = append(errs, errors.New("outbox: NewProcessor: the registry is nil"))
	}
	if len(errs) > 0 { // report the other errors, too
		return nil, errors.Join(append(errs, config.withDefaults(true, 0).validate(true))...)
	}
	s, err := store.For(db.Dialect().Name(), registry.Tables())
	if err != nil {
		return nil, fmt.Errorf("outbox: NewProcessor: %w", err)
	}
	if d := access.Dialect(registry); d != nil && d.Name() != db.Dialect().Name() {
		errs = append(errs, fmt.Errorf("outbox: NewProcessor: bus.RegistryConfig.Dialect is %s, the database's is %s",
			d.Name(), db.Dialect().Name()))
	}
	config = config.withDefaults(s.RowLocks(), db.Stats().MaxOpenConnections)
	p := &Processor{db: db, registry: registry, store: s, config: config}
	errs = append(errs, config.validate(s.RowLocks()))
	if access.Events(registry) != nil {
		if err := s.Events(); err != nil {
			errs = append(errs, fmt.Errorf("outbox: NewProcessor: the registry has events: %w", err))
		}
	}
	transactional := false
	for _, registered := range registry.Consumers() {
		settings, err := config.settings(registered)
		group, groupErr := groupOf(registered, settings)
		circuit, circuitErr := flow.CircuitOf(registered.Name(), settings)
		breaker, breakerErr := breakerOf(registered.Name(), settings, circuit)
		errs = append(errs, err, groupErr, circuitErr, breakerErr, unsupported(registered, s))
		if breaker != nil {
			circuit = breaker.Circuit
		}
		c := consumer{
			Consumer: registered, settings: settings, transactional: isTransactional(settings), group: group,
			circuit: circuit, breaker: breaker, rate: flow.RateOf(registered),
		}
		if c.rate != nil {
			c.rateWaits = new(rateWaits)
		}
		transactional = transactional || c.transactional
		p.consumers = append(p.consumers, c)
	}
	errs = append(errs, checkLimits(p.consumers)...)
	errs = append(errs, config.checkPool(db, s, transactional))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

// ErrUnmade is returned by the zero outbox.Processor, which under fx is what a constructor gets.
var ErrUnmade = errors.New("the processor was not made by NewProcessor; under fx use it from OnStart on")

// Run processes messages until ctx is cancelled: see outbox.Processor.Run.
func (p *Processor) Run(ctx context.Context) (err error) {
	switch {
	case p == nil:
		return fmt.Errorf("outbox: run: %w", ErrUnmade)
	case ctx.Err() != nil:
		return nil
	}
	r := p.newRun(ctx)
	p.mu.Lock()
	if p.current != nil {
		p.mu.Unlock()
		return fmt.Errorf("outbox: run: %w", bus.ErrRunning)
	}
	p.current = r
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.current, p.lastErr = nil, err
	}()
	check := func(ctx context.Context) error {
		err := p.check(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lastErr = err
		return err
	}
	if err := outage.Await(ctx, p.config.StartTimeout, p.config.Logger, check); err != nil && ctx.Err() == nil {
		return fmt.Errorf("outbox: run: %w", err)
	}
	return r.serve(ctx) // returns at once if it was cancelled during the check
}

// Close cuts the drain of a stopping processor short.
func (p *Processor) Close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil && p.current.stopping.Load() {
		p.current.stopNowOnce.Do(func() { close(p.current.stopNow) })
	}
}

// Check checks the database as Run does before it starts.
func (p *Processor) Check(ctx context.Context) error {
	if p == nil {
		return fmt.Errorf("outbox: check: %w", ErrUnmade)
	}
	if err := p.check(ctx); err != nil {
		return fmt.Errorf("outbox: check: %w", err)
	}
	return nil
}

func (p *Processor) check(ctx context.Context) error {
	settings, err := p.store.Ready(ctx, p.db, statementTimeout, p.config.AllowUntestedServer && access.Events(p.registry) == nil)
	errs := []error{err}
	for _, c := range p.consumers {
		if wait := settings.LockWait; c.transactional && wait > 0 && c.settings.Timeout >= wait {
			errs = append(errs, fmt.Errorf("transactional consumer %q: Timeout %s: it holds the database's only write lock, "+
				"so less than busy_timeout, %s, is allowed: set bus.Timeout or raise busy_timeout",
				c.Name(), c.settings.Timeout, wait))
		}
	}
	if err == nil {
		errs = append(errs, p.checkDatabase(ctx))
	}
	return errors.Join(errs...)
}

// checkDatabase returns an error if a consumer cannot run on the database.
func (p *Processor) checkDatabase(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	for _, c := range p.consumers {
		if check := access.DatabaseCheck(&c.settings); check != nil {
			if err := check(ctx, p.db.DB); err != nil {
				return fmt.Errorf("consumer %q: %w", c.Name(), err)
			}
			return nil
		}
	}
	return nil
}

// Health returns the health of the processor.
func (p *Processor) Health() bus.Health {
	if p == nil {
		return bus.Health{Err: ErrUnmade}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return bus.Health{Err: p.lastErr}
	}
	health := p.current.health()
	health.Err = cmp.Or(health.Err, p.lastErr)
	return health
}
