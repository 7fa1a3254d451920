package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Producer sends messages down the produce chain in a transaction.
// *outbox.Producer is one.
type Producer interface {
	Send(ctx context.Context, db bun.IDB, batch ...*bus.Message) error
}

// MissedFires says what becomes of fire times that nobody was there for.
type MissedFires uint8

const (
	// CatchUp fires once, however many were missed, and then goes on as scheduled.
	CatchUp MissedFires = iota
	// Skip goes on as scheduled.
	Skip
)

// ProcessorConfig sets up a [Processor]. The zero value works.
type ProcessorConfig struct {
	// ScheduledProcessorCount is the number of loops. Defaults to 1; on a
	// database without row locks more is an error.
	ScheduledProcessorCount int
	// ProcessorMaxDelay is the longest wait between looks; the next fire time
	// cuts it short. Defaults to 5 s.
	ProcessorMaxDelay time.Duration
	// MissedFires says what becomes of a schedule that is found due only after
	// the fire time that follows. Defaults to CatchUp.
	MissedFires MissedFires
	// Logger receives what the processor has to say. Defaults to slog.Default().
	Logger *slog.Logger
	// Telemetry wraps every fire: the sender it is given fires the schedules of
	// the batch. Defaults to none.
	Telemetry bus.SendMiddleware
}

// Processor fires schedules that are due. Any number of processors, in any
// number of processes, may work on the same table. It is safe for concurrent use.
type Processor struct {
	db       *bun.DB
	registry *bus.Registry
	producer Producer
	store    *store.Store
	config   ProcessorConfig
	outage   *outage.Outage
	send     bus.Sender
}

// NewProcessor makes a processor that fires schedules through the producer.
func NewProcessor(db *bun.DB, registry *bus.Registry, producer Producer, config ProcessorConfig) (*Processor, error) {
	switch {
	case db == nil:
		return nil, errors.New("schedule: NewProcessor: the database handle is nil")
	case registry == nil:
		return nil, errors.New("schedule: NewProcessor: the registry is nil")
	case producer == nil:
		return nil, errors.New("schedule: NewProcessor: the producer is nil")
	}
	s, err := store.For(db.Dialect().Name(), registry.Tables())
	if err != nil {
		return nil, fmt.Errorf("schedule: NewProcessor: %w", err)
	}
	if config.ScheduledProcessorCount == 0 {
		config.ScheduledProcessorCount = 1
	}
	if config.ProcessorMaxDelay == 0 {
		config.ProcessorMaxDelay = 5 * time.Second
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if err := config.validate(s.RowLocks()); err != nil {
		return nil, err
	}
	p := &Processor{db: db, registry: registry, producer: producer, store: s, config: config, outage: outage.New(config.Logger, 0)}
	p.send = p.sendInTx
	if config.Telemetry != nil {
		p.send = config.Telemetry(p.send)
	}
	return p, nil
}

func (c ProcessorConfig) validate(rowLocks bool) error {
	var errs []error
	if c.ScheduledProcessorCount < 1 {
		errs = append(errs, fmt.Errorf("schedule: ProcessorConfig.ScheduledProcessorCount %d: 1 or more is allowed", c.ScheduledProcessorCount))
	}
	if c.ScheduledProcessorCount > 1 && !rowLocks {
		errs = append(errs, fmt.Errorf("schedule: ProcessorConfig.ScheduledProcessorCount %d: 1 is allowed on a database without row locks", c.ScheduledProcessorCount))
	}
	if c.ProcessorMaxDelay < 0 {
		errs = append(errs, fmt.Errorf("schedule: ProcessorConfig.ProcessorMaxDelay %s: 0 or more is allowed", c.ProcessorMaxDelay))
	}
	if c.MissedFires > Skip {
		errs = append(errs, fmt.Errorf("schedule: ProcessorConfig.MissedFires %d: CatchUp or Skip is allowed", c.MissedFires))
	}
	return errors.Join(errs...)
}

// Run fires schedules until ctx is cancelled and returns nil within a second of
// that: the transaction it is in is finished or, if it takes longer, rolled back,
// in which case its schedules fire later. It returns an error at once when the database cannot be
// reached or its tables are missing or too old; later outages are logged and
// waited out.
func (p *Processor) Run(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	if err := p.Check(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	var loops sync.WaitGroup
	for range p.config.ScheduledProcessorCount {
		loops.Go(func() { p.loop(ctx) })
	}
	loops.Wait()
	return nil
}

// Check looks at the live database as [Processor.Run] does before it starts, and
// returns the same errors.
func (p *Processor) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fireTimeout)
	defer cancel()
	if err := p.db.PingContext(ctx); err != nil {
		return fmt.Errorf("schedule: run: the database cannot be reached: %w", err)
	}
	if err := p.store.CheckSchema(ctx, p.db); err != nil {
		return fmt.Errorf("schedule: run: %w (run outbox.Migrate)", err)
	}
	return nil
}

// Health returns the database's last error while it does not answer, else nil.
func (p *Processor) Health() error { return p.outage.Err() }
