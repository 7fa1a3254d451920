package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/heartbeat"
	"github.com/asyncmonolith/asyncmonolith-go/internal/lifecycle"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// sender sends messages through the produce chain in a transaction. *outbox.Producer is one. It must
// be safe for concurrent use.
type sender interface {
	// Send writes the messages in the transaction db, all or none. An error marks the schedule,
	// which is retried after a minute, unless the database is unavailable.
	Send(ctx context.Context, db bun.IDB, batch ...*bus.Message) error
}

// Processor fires due schedules. Any number of processors, in any number of processes, may use the
// same table. It is safe for concurrent use.
type Processor struct {
	db       *bun.DB
	registry *bus.Registry
	producer sender
	store    *store.Store
	config   ProcessorConfig
	outage   *outage.Outage
	chain    bus.ProduceFunc
	reported atomic.Int64 // last check for unhandled payload types, in Unix nanoseconds
	batch    atomic.Int64 // schedules per transaction, adapted to fireTimeout
	aside    aside
	tried    tried
	// abandoned counts calls of the application for several schedules that did not return after their
	// context ended. Those for one schedule count in aside.
	abandoned atomic.Int32
	run       lifecycle.Run
}

// NewProcessor makes a processor that fires schedules through the producer, an
// *outbox.Producer. It reports all configuration errors at once and does not access the database.
func NewProcessor(db *bun.DB, registry *bus.Registry, producer sender, config ProcessorConfig) (*Processor, error) {
	config.Concurrency = cmp.Or(config.Concurrency, 1)
	config.PollInterval = cmp.Or(config.PollInterval, 5*time.Second)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	var errs []error
	for _, part := range []struct {
		missing bool
		name    string
	}{{db == nil, "database handle"}, {registry == nil, "registry"}, {producer == nil, "producer"}} {
		if part.missing {
			errs = append(errs, fmt.Errorf("schedule: NewProcessor: the %s is nil", part.name))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(append(errs, config.validate(true))...)
	}
	s, err := store.For(db.Dialect().Name(), registry.Tables())
	if err != nil {
		return nil, fmt.Errorf("schedule: NewProcessor: %w", err)
	}
	if err := config.validate(s.RowLocks()); err != nil {
		return nil, err
	}
	p := &Processor{db: db, registry: registry, producer: producer, store: s, config: config, outage: outage.New(config.Logger, 0, s.Look(db))}
	p.batch.Store(fireBatch)
	p.chain = access.ComposeProduce(nil)
	if config.Telemetry != nil {
		p.chain = config.Telemetry(p.chain)
	}
	return p, nil
}

// Run fires schedules until ctx is cancelled. It returns nil within a second after that, or within
// two if a layer of the application hangs. The current transaction is finished or, if it takes
// longer, rolled back; its schedules then fire later. A schedule that cannot fire is logged and
// marked (Schedule.LastError), and does not block others.
//
// Run returns an error at startup in these cases:
//   - The database cannot be reached within StartTimeout.
//   - The server is not supported (outbox.ErrUnsupportedServer). An untested server is accepted if
//     the registry has no events and READ COMMITTED is effective there.
//   - The tables are missing or too old (outbox.ErrSchemaOutdated).
//   - The database's settings would break the library's guarantees.
//
// Run logs later outages and waits for them to end. It may be called again once it has returned. A
// concurrent Run returns bus.ErrRunning.
//
// Schedules whose payload type is not registered are left to other programs. If one has been due
// for a minute, Run logs a warning, at most once a minute.
func (p *Processor) Run(ctx context.Context) error {
	c := p.config
	return p.run.Do(ctx, lifecycle.Config{Package: "schedule", Check: p.check, StartTimeout: c.StartTimeout, Heartbeat: heartbeat.Config{
		Store: p.store, DB: p.db, Registry: p.registry, Kind: "scheduler", Logger: c.Logger,
		Takes: heartbeat.Manifest{Schedules: access.AllPayloadTypes(p.registry), Connections: c.Concurrency},
		Doing: func() heartbeat.State { return heartbeat.State{Limit: c.Concurrency} },
	}}, p.fireAll)
}

// fireAll fires schedules until ctx ends.
func (p *Processor) fireAll(ctx context.Context) {
	var loops sync.WaitGroup
	for range p.config.Concurrency {
		loops.Go(func() { p.loop(ctx) })
	}
	loops.Wait()
}

// FireDue fires all due schedules, as [Processor.Run] does, and returns their number, including
// those that could not fire. Use it in tests, and in commands that fire due schedules and exit. It
// skips schedules that another instance or an open transaction has locked.
func (p *Processor) FireDue(ctx context.Context) (total int, err error) {
	if total, _, err = p.fireDue(ctx, access.AllPayloadTypes(p.registry)); err != nil {
		return total, fmt.Errorf("schedule: fire: %w", err)
	}
	return total, nil
}

// Check checks the database as [Processor.Run] does at startup, and returns the same errors. It
// takes at most 10 s, and may be called at any time.
func (p *Processor) Check(ctx context.Context) error {
	return dberr.Wrap(p.check(ctx), "schedule: check")
}

func (p *Processor) check(ctx context.Context) error {
	_, err := p.store.Ready(ctx, p.db, fireTimeout, access.Events(p.registry) == nil)
	return err
}

// Health returns the processor's health. It does not access the database. Its error is nil before
// the first Run; after a Run it keeps its last value.
func (p *Processor) Health() bus.Health {
	err := p.outage.Err()
	return bus.Health{Ready: err == nil && p.run.Serving(), Err: err}
}
