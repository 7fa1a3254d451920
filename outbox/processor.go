package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/alarm"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/presence"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// ErrRunning is returned by [Processor.Run] while another Run of the same
// Processor has not returned.
var ErrRunning = errors.New("outbox: the processor is running already")

// Processor claims messages and runs their consumers. Any number of processors,
// in any number of processes, may work on the same tables.
//
// Its methods are safe for concurrent use.
type Processor struct {
	db        *bun.DB
	registry  *bus.Registry
	store     *store.Store
	config    ProcessorConfig
	consumers []consumer // each run works on copies
	counters  counters
	streaks   streaks // of runs that did not count
	unstarted streaks // of runs that never began

	mu      sync.Mutex
	current *run // nil while it does not run
	crashed *run // the ProcessNext that may run messages that have crashed, if one does
	lastErr error
}

// NewProcessor makes a processor for every consumer of the registry. It reports
// everything that is wrong with the configuration at once, and does not touch
// the database. A registry with events on a database without the event log is an
// errors.ErrUnsupported.
func NewProcessor(db *bun.DB, registry *bus.Registry, config ProcessorConfig) (*Processor, error) {
	var errs []error
	if db == nil {
		errs = append(errs, errors.New("outbox: NewProcessor: the database handle is nil"))
	}
	if registry == nil {
		errs = append(errs, errors.New("outbox: NewProcessor: the registry is nil"))
	}
	if len(errs) > 0 { // and what can be told of the rest
		return nil, errors.Join(append(errs, config.withDefaults(true).validate(true))...)
	}
	s, err := store.For(db.Dialect().Name(), registry.Tables())
	if err != nil {
		return nil, fmt.Errorf("outbox: NewProcessor: %w", err)
	}
	config = config.withDefaults(s.RowLocks())
	p := &Processor{db: db, registry: registry, store: s, config: config}
	errs = append(errs, config.validate(s.RowLocks()))
	if registry.Events() != nil {
		if err := s.Events(); err != nil {
			errs = append(errs, fmt.Errorf("outbox: NewProcessor: the registry has events: %w", err))
		}
	}
	transactional := false
	for _, registered := range registry.Consumers() {
		settings, err := config.settings(registered)
		group, groupErr := groupOf(registered, settings)
		gate, gateErr := gateOf(registered.Name(), settings)
		breaker, breakerErr := breakerOf(registered.Name(), settings, gate)
		errs = append(errs, err, groupErr, gateErr, breakerErr, unsupported(registered, s))
		if breaker != nil {
			gate = breaker.Circuit
		}
		c := consumer{Consumer: registered, settings: settings, transactional: isTransactional(settings), group: group, gate: gate, breaker: breaker, rate: rateOf(registered)}
		if c.rate != nil {
			c.spent = new(spent)
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

// wantsOf lists what a consumer takes: each of its names with each payload type.
func wantsOf(c bus.Consumer) (wants []store.Want) {
	for _, name := range c.Names() {
		for _, payloadType := range c.PayloadTypes() {
			wants = append(wants, store.Want{Consumer: name, Payload: payloadType})
		}
	}
	return wants
}

// Run processes messages until ctx is cancelled. Then it claims no more, lets
// running consumers finish for DrainTimeout, cancels the others with
// bus.ErrStopping, gives back what is left, and returns: nil after a clean
// drain, a *[DrainError] when consumers were still running, or the error that
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
func (p *Processor) Run(ctx context.Context) (err error) {
	if ctx.Err() != nil {
		return nil
	}
	r := p.newRun(ctx)
	p.mu.Lock()
	if p.current != nil {
		p.mu.Unlock()
		return ErrRunning
	}
	p.current = r
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.current, p.lastErr = nil, err
	}()
	if err := outage.Await(ctx, p.config.StartTimeout, p.config.Logger, p.check); err != nil && ctx.Err() == nil {
		return fmt.Errorf("outbox: run: %w", err)
	}
	return r.serve(ctx) // stops at once when it was cancelled during the check
}

// Close cuts the drain of a processor that is stopping short: consumers that
// still run are cancelled with bus.ErrStopping at once. It is what a second
// signal usually means. It has no effect on a processor that is not stopping.
func (p *Processor) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil && p.current.stopping.Load() {
		p.current.stopNowOnce.Do(func() { close(p.current.stopNow) })
	}
}

// Check looks at the live database as [Processor.Run] does before it starts, and
// returns the same errors: [ErrUnsupportedServer], [ErrSchemaOutdated], settings of the database under which the
// library cannot keep its promises, all of them at once, or why the database
// cannot be reached. It takes at most 5 s, and may be called at any time.
func (p *Processor) Check(ctx context.Context) error {
	if err := p.check(ctx); err != nil {
		return fmt.Errorf("outbox: check: %w", err)
	}
	return nil
}

func (p *Processor) check(ctx context.Context) error {
	settings, err := p.store.Ready(ctx, p.db, statementTimeout, p.config.AllowUntestedServer && p.registry.Events() == nil)
	errs := []error{err}
	for _, c := range p.consumers {
		if wait := settings.LockWait; c.transactional && wait > 0 && c.settings.Timeout >= wait {
			errs = append(errs, fmt.Errorf("transactional consumer %q: Timeout %s: it holds the database's only write lock, so less than busy_timeout, %s, is allowed: set bus.Timeout or raise busy_timeout",
				c.Name(), c.settings.Timeout, wait))
		}
	}
	return errors.Join(errs...)
}

// Health returns how the processor is doing.
func (p *Processor) Health() bus.Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return bus.Health{Err: p.lastErr}
	}
	return p.current.health()
}

// DrainError is returned by [Processor.Run] when consumers were still running
// after DrainTimeout, although their context was cancelled. Their messages were
// given back and will run again, unless they had been settled before as failed
// because their timeout had passed.
type DrainError struct {
	// Consumers names the consumer of each.
	Consumers []string
}

// Error implements error.
func (e *DrainError) Error() string {
	var names []string
	for _, name := range slices.Compact(slices.Sorted(slices.Values(e.Consumers))) {
		n := 0
		for _, other := range e.Consumers {
			if other == name {
				n++
			}
		}
		if names = append(names, strconv.Quote(name)); n > 1 {
			names[len(names)-1] += fmt.Sprintf(" x %d", n)
		}
	}
	return fmt.Sprintf("outbox: stopped with %d consumers still running: %s", len(e.Consumers), strings.Join(names, ", "))
}

// run is one Run of a processor.
type run struct {
	*Processor
	ctx           context.Context // of the statements that must outlive a stop
	claiming      context.Context // of claims, which a stop does not end at once
	owner         string
	started       time.Time
	chain         bus.Handler
	dispatcher    *dispatcher
	ledger        *ledger
	outage        *outage.Outage
	unrenewed     notice
	takenAway     notice
	recovered     notice
	alarm         *alarm.Alarm // of the poller
	soon          *alarm.Alarm // of looks for what is expected
	sweeper       sweeper
	underway      underway
	stops         stops
	gathers       time.Duration      // see gatherPatience
	reports       *presence.Reporter // nil while nothing is told
	slots         []*worker
	workers       sync.WaitGroup // and their hands
	hands         *hands
	work          context.Context // the root of all handlers' contexts
	cancelWork    context.CancelCauseFunc
	lastClaim     atomic.Int64
	wakePacer     wakePacer
	unknownClaims atomic.Bool // the database may hold claims for us that we do not know of
	serving       atomic.Bool // false before the start and once it stops
	stopping      atomic.Bool
	stopNow       chan struct{}
	stopNowOnce   sync.Once

	// The poller's own.
	pollRetry      backoff.BackOff
	toldUnprepared bool

	warned     sync.Map // kinds of messages that have no consumer here, and were reported
	undeclared sync.Map // consumers of payload types that were reported
}

func (r *run) health() bus.Health {
	h := bus.Health{Err: r.outage.Err(), Abandoned: r.dispatcher.leftBehind(), Unprepared: r.store.Unprepared(), OpenCircuits: r.dispatcher.closedGates()}
	if last := r.lastClaim.Load(); last != 0 {
		h.LastClaim = time.Unix(0, last)
	}
	h.Ready = h.Err == nil && r.serving.Load() && len(h.Abandoned) < r.config.Concurrency
	return h
}
