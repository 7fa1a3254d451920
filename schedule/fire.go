package schedule

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	fireBatch   = 100                    // schedules in one transaction
	fireTimeout = 10 * time.Second       // for one transaction
	stopGrace   = 700 * time.Millisecond // what is left of it after a stop
	badDelay    = time.Minute            // until a schedule that cannot fire is tried again
)

// fire fires one batch and returns how many schedules it dealt with; the next one
// may find more. A batch that is refused is fired one by one, and so are, when
// nothing else is due, those that could not fire the last time: a bad one holds
// nobody back.
func (p *Processor) fire(ctx context.Context, payloadTypes []string) (n int, err error) {
	rows, err := p.fireTx(ctx, payloadTypes, store.ScheduleFilter{Sound: true}, fireBatch)
	if _, refused := errors.AsType[*refusedError](err); refused {
		for _, row := range rows {
			if err := p.fireOne(ctx, payloadTypes, store.ScheduleFilter{ID: row.ID}); err != nil && err != errNotDue {
				return n, err
			}
			n++
		}
		return n, nil
	}
	if err != nil || len(rows) > 0 {
		return len(rows), err
	}
	for {
		switch err := p.fireOne(ctx, payloadTypes, store.ScheduleFilter{Failed: true}); err {
		case nil:
			n++
		case errNotDue:
			return n, nil
		default:
			return n, err
		}
	}
}

// errNotDue: nothing that matched the filter was due.
var errNotDue = errors.New("schedule: not due")

// fireOne fires one schedule that matches, or marks it as one that cannot fire.
func (p *Processor) fireOne(ctx context.Context, payloadTypes []string, filter store.ScheduleFilter) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	rows, err := p.fireTx(ctx, payloadTypes, filter, 1)
	if refused, ok := errors.AsType[*refusedError](err); ok && ctx.Err() == nil {
		return p.postponeLater(ctx, payloadTypes, rows[0], refused.cause)
	}
	if err == nil && len(rows) == 0 {
		return errNotDue
	}
	return err
}

// refusedError is an error of the messages, where others are of the database.
type refusedError struct{ cause error }

func (e *refusedError) Error() string { return e.cause.Error() }
func (e *refusedError) Unwrap() error { return e.cause }

// fireTx sends what is due and sets the next fire times, in one transaction:
// exactly one message per schedule and fire time, whatever crashes.
func (p *Processor) fireTx(ctx context.Context, payloadTypes []string, filter store.ScheduleFilter, limit int) (rows []store.Schedule, err error) {
	var sent []*bus.Message
	err = p.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		if rows, err = p.store.LockDueSchedules(ctx, tx, payloadTypes, filter, limit); err != nil || len(rows) == 0 {
			return err
		}
		if sent, err = p.advance(ctx, tx, rows); err != nil || len(sent) == 0 {
			return err
		}
		if err := p.send(store.WithTx(ctx, tx), sent); err != nil {
			return p.blame(ctx, tx, err)
		}
		return nil
	})
	if err == nil && len(sent) > 0 {
		types := make([]string, len(sent))
		for i, m := range sent {
			types[i] = m.PayloadType
		}
		p.registry.Wakeups().Send(bus.Wake{PayloadTypes: types})
	}
	return rows, err
}

// inTx runs fn in a transaction of limited time. A stop shortens it.
func (p *Processor) inTx(ctx context.Context, fn func(ctx context.Context, tx bun.Tx) error) error {
	inner, cancel := context.WithTimeout(context.WithoutCancel(ctx), fireTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopGrace, cancel) })()
	return store.RunInTx(inner, p.db, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(_ context.Context, tx bun.Tx) error { return fn(inner, tx) })
}

// blame tells whether a batch was not sent because of its messages, or because of
// the database. Layers of the application's may fail with errors that look like
// the database's, so the transaction itself is asked; and one that ran out of time
// may have had too many messages.
func (p *Processor) blame(ctx context.Context, tx bun.Tx, err error) error {
	switch ctx.Err() {
	case context.Canceled: // a stop is nobody's fault
		return err
	case context.DeadlineExceeded:
		return &refusedError{err}
	}
	if p.store.Usable(ctx, tx) || !store.IsUnavailable(err) && !store.IsConflict(err) {
		return &refusedError{err}
	}
	return err
}

// advance moves every schedule on and returns the messages to send. A schedule
// that cannot fire is marked and postponed.
func (p *Processor) advance(ctx context.Context, tx bun.Tx, rows []store.Schedule) (batch []*bus.Message, err error) {
	for _, row := range rows {
		fires, change, err := p.plan(row)
		if err == nil {
			err = p.decodable(row)
		}
		if err != nil {
			if err := p.postpone(ctx, tx, row, err); err != nil {
				return nil, err
			}
			continue
		}
		for _, at := range fires {
			batch = append(batch, message(row, at))
		}
		if _, err := p.store.UpdateSchedule(ctx, tx, row.ID, change); err != nil {
			return nil, err
		}
	}
	return batch, nil
}

// plan says for which instants a schedule fires now, and what becomes of it: for
// its own fire time, and for when somebody has asked for it.
func (p *Processor) plan(row store.Schedule) (fires []time.Time, change store.ScheduleChange, err error) {
	change.Error = new("")
	if row.RunNow() {
		fires, change.Ran = append(fires, row.RunAt.Time), true
	}
	if row.Due() {
		next, missed, err := following(row)
		if err != nil {
			return nil, change, err
		}
		change.AvailableAfter = next
		if !missed || p.config.MissedFires == CatchUp {
			fires = append(fires, row.AvailableAfter.Time)
		}
	}
	if len(fires) > 0 {
		change.FiredAt = row.Now.Time
	}
	return fires, change, nil
}

// following returns the fire time after this one, and whether it has passed as
// well, in which case the one after now counts.
func following(row store.Schedule) (next time.Time, missed bool, err error) {
	next, err = nextFire(row.CronExpression, row.CronTimezone, row.AvailableAfter.Time)
	if err != nil || next.After(row.Now.Time) {
		return next, false, err
	}
	next, err = nextFire(row.CronExpression, row.CronTimezone, row.Now.Time)
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

// postpone marks a locked schedule that cannot fire, and has it tried again later:
// the cause may be this instance's alone, such as a missing zone database.
func (p *Processor) postpone(ctx context.Context, tx bun.Tx, row store.Schedule, cause error) error {
	p.config.Logger.Error("schedule cannot fire", "schedule", row.ID, "name", row.Name, "tag", row.Tag, "error", cause)
	change := store.ScheduleChange{Error: new(cause.Error())}
	later := row.Now.Add(badDelay)
	if row.Due() {
		change.AvailableAfter = later
	}
	if row.RunNow() {
		change.RunAt = later
	}
	_, err := p.store.UpdateSchedule(ctx, tx, row.ID, change)
	return err
}

// postponeLater postpones a schedule whose transaction was rolled back, unless
// somebody has fired or changed it since.
func (p *Processor) postponeLater(ctx context.Context, payloadTypes []string, refused store.Schedule, cause error) error {
	return p.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		rows, err := p.store.LockDueSchedules(ctx, tx, payloadTypes, store.ScheduleFilter{ID: refused.ID}, 1)
		if err != nil || len(rows) == 0 {
			return err
		}
		row := rows[0]
		if !row.AvailableAfter.Equal(refused.AvailableAfter.Time) || !row.RunAt.Equal(refused.RunAt.Time) {
			return nil
		}
		return p.postpone(ctx, tx, row, cause)
	})
}

// message is what a schedule makes. Its times are for the telemetry.
func message(row store.Schedule, at time.Time) *bus.Message {
	return &bus.Message{PayloadType: row.PayloadType, Payload: row.Payload, Headers: store.Headers(row.Headers), AvailableAt: at, CreatedAt: row.Now.Time}
}

// sendInTx is the innermost sender of a fire.
func (p *Processor) sendInTx(ctx context.Context, batch []*bus.Message) error {
	tx, ok := store.TxFrom(ctx)
	if !ok {
		return errors.New("schedule: the telemetry must pass on the context it was given")
	}
	for _, m := range batch { // due at once, whatever a layer of the application's adds
		m.AvailableAt, m.CreatedAt = time.Time{}, time.Time{}
	}
	return p.producer.Send(ctx, tx, batch...)
}
