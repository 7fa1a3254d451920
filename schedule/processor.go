package schedule

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Producer sends messages down the produce chain in a transaction.
// *outbox.Producer is one. It must be safe for concurrent use.
type Producer interface {
	// Send writes the messages in the transaction db, all or none. An error that
	// is not the database's absence marks the schedule, which is tried again
	// after a minute.
	Send(ctx context.Context, db bun.IDB, batch ...*bus.Message) error
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
	reported atomic.Int64 // when strangers were last looked for, in Unix nanoseconds
}

const (
	fireBatch        = 100                    // schedules in one transaction
	badDelay         = time.Minute            // until a schedule that cannot fire is tried again
	expectedDelay    = 100 * time.Millisecond // until a change in an open transaction is looked for
	strangersEvery   = time.Minute            // between looks for schedules that nobody fires
	strangersOverdue = time.Minute            // for so long another program may still be about to
	statementTimeout = 10 * time.Second
)

// NewProcessor makes a processor that fires schedules through the producer. It
// reports everything that is wrong with its arguments at once, and does not touch
// the database.
func NewProcessor(db *bun.DB, registry *bus.Registry, producer Producer, config ProcessorConfig) (*Processor, error) {
	config = config.withDefaults()
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
	p := &Processor{db: db, registry: registry, producer: producer, store: s, config: config, outage: outage.New(config.Logger, 0)}
	p.send = p.sendInTx
	if config.Telemetry != nil {
		p.send = config.Telemetry(p.send)
	}
	return p, nil
}

// Run fires schedules until ctx is cancelled, then finishes the transaction it
// is in, which takes 10 s at most, and returns nil. It returns an error at once
// when the database cannot be reached, when its tables are missing or too old
// (bus.ErrSchema), or when its settings would break the library's promises; later
// outages are logged and waited out. A schedule that cannot fire is logged and
// marked (Schedule.LastError), and holds back no other.
//
// Run may be called again once it has returned. Calls at the same time are as
// many instances: each schedule still fires once for each fire time.
//
// Schedules whose payload type the registry does not know are left to other
// programs. When one has been due for a minute all the same, Run logs a warning,
// at most once a minute.
func (p *Processor) Run(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	if err := p.check(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("schedule: run: %w", err)
	}
	var loops sync.WaitGroup
	for range p.config.ScheduledProcessorCount {
		loops.Go(func() { p.loop(ctx) })
	}
	loops.Wait()
	return nil
}

// Check looks at the live database as [Processor.Run] does before it starts, and
// returns the same errors. It takes at most 10 s, and may be called at any time.
func (p *Processor) Check(ctx context.Context) error {
	if err := p.check(ctx); err != nil {
		return fmt.Errorf("schedule: check: %w", err)
	}
	return nil
}

func (p *Processor) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if err := p.db.PingContext(ctx); err != nil {
		return fmt.Errorf("the database cannot be reached: %w", err)
	}
	_, err := p.store.Check(ctx, p.db)
	return errors.Join(p.store.CheckSchema(ctx, p.db), err)
}

// Health returns the database's last error while it does not answer, else nil.
// It is nil before the first Run, and after a Run what it was at its end. It does
// not touch the database, and does not tell whether Run runs.
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
	if err := p.reportStrangers(ctx, payloadTypes); err != nil {
		return 0, err
	}
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

// reportStrangers warns of schedules that nobody fires, because no program that
// runs has a consumer for their payload: most often the consumer was removed, and
// the schedule forgotten.
func (p *Processor) reportStrangers(ctx context.Context, payloadTypes []string) error {
	now, last := time.Now().UnixNano(), p.reported.Load()
	if last != 0 && now-last < int64(strangersEvery) || !p.reported.CompareAndSwap(last, now) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := p.store.ScheduleStrangers(ctx, p.db, payloadTypes, strangersOverdue)
	for _, row := range rows {
		p.config.Logger.Warn("schedule is due, but no consumer registered here takes its payload",
			"schedule", row.ID, "name", row.Name, "tag", row.Tag, "payload_type", row.PayloadType, "due", row.AvailableAfter.Time)
	}
	return err
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
