package schedule

import (
	"context"
	"database/sql"
	"encoding/json"
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

const (
	fireBatch        = 100                    // schedules in one transaction
	badDelay         = time.Minute            // until a schedule that cannot fire is tried again
	expectedDelay    = 100 * time.Millisecond // until a change in an open transaction is looked for
	statementTimeout = 10 * time.Second
)

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

// Run fires schedules until ctx is cancelled, then finishes the transaction it
// is in and returns nil. It returns an error at once when the database cannot be
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
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
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

func (p *Processor) loop(ctx context.Context) {
	changed := make(chan time.Duration, 1)
	stop := p.registry.Wakeups().Listen(func(w bus.Wake) {
		if !w.Schedules {
			return
		}
		wait := time.Duration(0)
		if w.Expected {
			wait = expectedDelay
		}
		select {
		case changed <- wait:
		default: // told already
		}
	})
	defer stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	retry := outage.NewRetry()
	for {
		select {
		case <-ctx.Done():
			return
		case wait := <-changed:
			timer.Reset(wait)
			continue
		case <-timer.C:
		}
		wait, err := p.look(ctx)
		if err != nil {
			p.outage.Noticed("fire schedules", err)
			timer.Reset(retry.NextBackOff())
			continue
		}
		p.outage.Over()
		retry.Reset()
		timer.Reset(wait)
	}
}

// look fires everything that is due and returns how long nothing will be.
func (p *Processor) look(ctx context.Context) (time.Duration, error) {
	ctx = context.WithoutCancel(ctx) // a stop waits for the transaction
	payloadTypes := p.registry.PayloadTypes()
	if len(payloadTypes) == 0 {
		return p.config.ProcessorMaxDelay, nil
	}
	for {
		n, err := p.fire(ctx, payloadTypes)
		if err != nil {
			return 0, err
		}
		if n < fireBatch {
			break
		}
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	next, ok, err := p.store.NextSchedule(ctx, p.db, payloadTypes)
	if err != nil || !ok {
		return p.config.ProcessorMaxDelay, err
	}
	return min(max(next, 0), p.config.ProcessorMaxDelay), nil
}

// fire fires one batch. When the chain or the database refuses it, each schedule
// is fired on its own, so that a bad one holds nobody back.
func (p *Processor) fire(ctx context.Context, payloadTypes []string) (int, error) {
	rows, err := p.fireTx(ctx, payloadTypes, store.ScheduleFilter{}, fireBatch)
	var refused *refusedError
	if !errors.As(err, &refused) {
		return len(rows), err
	}
	for _, row := range rows {
		_, err := p.fireTx(ctx, payloadTypes, store.ScheduleFilter{ID: row.ID}, 1)
		switch {
		case errors.As(err, &refused):
			if err := p.postpone(ctx, p.db, row, refused.cause); err != nil {
				return 0, err
			}
		case err != nil:
			return 0, err
		}
	}
	return len(rows), nil
}

// refusedError tells an error of a message from one of the database's absence.
type refusedError struct{ cause error }

func (e *refusedError) Error() string { return e.cause.Error() }
func (e *refusedError) Unwrap() error { return e.cause }

// fireTx sends what is due and sets the next fire times, in one transaction:
// exactly one message per schedule and fire time, whatever crashes.
func (p *Processor) fireTx(ctx context.Context, payloadTypes []string, filter store.ScheduleFilter, limit int) (rows []store.Schedule, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var sent []*bus.Message
	err = p.db.RunInTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(_ context.Context, tx bun.Tx) error {
		if rows, err = p.store.LockDueSchedules(ctx, tx, payloadTypes, filter, limit); err != nil || len(rows) == 0 {
			return err
		}
		now, err := p.store.Now(ctx, tx)
		if err != nil {
			return err
		}
		if sent, err = p.advance(ctx, tx, rows, now); err != nil || len(sent) == 0 {
			return err
		}
		err = p.send(store.WithTx(ctx, tx), sent)
		if err != nil && !store.IsUnavailable(err) && !store.IsConflict(err) {
			return &refusedError{err}
		}
		return err
	})
	if err != nil {
		return rows, err
	}
	if len(sent) > 0 {
		types := make([]string, len(sent))
		for i, m := range sent {
			types[i] = m.PayloadType
		}
		p.registry.Wakeups().Send(bus.Wake{PayloadTypes: types})
	}
	return rows, nil
}

// advance moves every schedule on to its next fire time and returns the messages
// to send. A schedule that cannot fire is marked and postponed.
func (p *Processor) advance(ctx context.Context, tx bun.Tx, rows []store.Schedule, now time.Time) (batch []*bus.Message, err error) {
	for _, row := range rows {
		next, missed, err := following(row, now)
		if err == nil {
			err = p.decodable(row)
		}
		if err != nil {
			if err := p.postpone(ctx, tx, row, err); err != nil {
				return nil, err
			}
			continue
		}
		change := store.ScheduleChange{AvailableAfter: next, Error: new("")}
		if !missed || p.config.MissedFires == CatchUp {
			change.FiredAt = now
			batch = append(batch, message(row))
		}
		if _, err := p.store.UpdateSchedule(ctx, tx, row.ID, change); err != nil {
			return nil, err
		}
	}
	return batch, nil
}

// following returns the fire time after this one, and whether it has passed as
// well, in which case the one after now counts.
func following(row store.Schedule, now time.Time) (next time.Time, missed bool, err error) {
	next, err = nextFire(row.CronExpression, row.CronTimezone, row.AvailableAfter.Time)
	if err != nil || next.After(now) {
		return next, false, err
	}
	next, err = nextFire(row.CronExpression, row.CronTimezone, now)
	return next, true, err
}

// decodable checks the payload against every consumer that would get it.
func (p *Processor) decodable(row store.Schedule) error {
	for _, c := range p.registry.ConsumersOf(row.PayloadType) {
		if err := c.CheckPayload(p.registry.Codec(), row.Payload); err != nil {
			return err
		}
	}
	return nil
}

// postpone marks a schedule that cannot fire and tries it again later: the cause
// may be this instance's alone, such as a missing zone database.
func (p *Processor) postpone(ctx context.Context, db bun.IDB, row store.Schedule, cause error) error {
	p.config.Logger.Error("schedule cannot fire", "schedule", row.ID, "name", row.Name, "tag", row.Tag, "error", cause)
	now, err := p.store.Now(ctx, db)
	if err != nil {
		return err
	}
	_, err = p.store.UpdateSchedule(ctx, db, row.ID, store.ScheduleChange{AvailableAfter: now.Add(badDelay), Error: new(cause.Error())})
	return err
}

func message(row store.Schedule) *bus.Message {
	m := &bus.Message{PayloadType: row.PayloadType, Payload: row.Payload}
	if len(row.Headers) > 0 {
		_ = json.Unmarshal(row.Headers, &m.Headers) // written by us
	}
	return m
}

// sendInTx is the innermost sender of a fire.
func (p *Processor) sendInTx(ctx context.Context, batch []*bus.Message) error {
	tx, ok := store.TxFrom(ctx)
	if !ok {
		return errors.New("schedule: the telemetry must pass on the context it was given")
	}
	return p.producer.Send(ctx, tx, batch...)
}
