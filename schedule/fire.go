package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

const (
	fireBatch   = 100                    // most schedules per transaction
	fireTimeout = 10 * time.Second       // of one transaction
	stopGrace   = 700 * time.Millisecond // rest of the transaction's time after a stop
	serverGrace = 5 * time.Second        // after fireTimeout, until the server ends the transaction of a lost client
	badDelay    = time.Minute            // until a schedule that cannot fire is retried
)

// errTooSlow is the cause of a transaction that exceeded fireTimeout.
var errTooSlow = fmt.Errorf("firing took longer than %s", fireTimeout)

// fire fires one batch and returns the number of schedules handled; the next batch may find more.
// Schedules that could not fire last time are fired one at a time, and only when no other is due,
// so they block no other. If a call of the application hangs for a batch, schedules fire one at a time
// until it returns. If it hangs for one schedule, that is skipped until it returns.
func (p *Processor) fire(ctx context.Context, payloadTypes []string) (n int, err error) {
	for {
		size, begun := p.batch.Load(), time.Now()
		if p.abandoned.Load() > 0 {
			size = 1
		}
		aside, _ := p.aside.waiting(begun)
		filter, limit := store.ScheduleFilter{Sound: true, Except: aside, Tried: p.tried.ids(begun)}, int(size)
		rows, err := p.fireTx(ctx, payloadTypes, filter, limit)
		if err == nil && len(rows) == 0 {
			filter.Sound, filter.Failed, limit = false, true, 1
			rows, err = p.fireTx(ctx, payloadTypes, filter, limit)
		}
		if err == nil {
			if time.Since(begun) < fireTimeout/4 { // a batch twice as large would be fast enough
				p.batch.CompareAndSwap(size, min(2*size, fireBatch))
			}
			return len(rows), nil
		}
		hung := p.hanging(rows)
		if len(hung) > 0 {
			return p.setAside(ctx, payloadTypes, 0, hung)
		}
		if len(rows) > 1 && errors.Is(err, errTooSlow) && p.answers(ctx, payloadTypes, err) {
			p.batch.Store(int64(len(rows) / 2)) // smaller batches may be fast enough
			continue
		}
		ids := idsOf(rows)
		if len(ids) == 0 && ctx.Err() == nil && !isDatabases(err) {
			// A schedule that cannot be read or locked hides the others.
			found, listErr := p.dueIDs(ctx, payloadTypes, filter, limit)
			if ids = found; listErr != nil {
				return 0, errors.Join(err, listErr)
			}
		}
		n, bad, err := p.bisect(ctx, payloadTypes, ids, rows, err)
		if err != nil {
			return n, err
		}
		return p.setAside(ctx, payloadTypes, n, bad)
	}
}

// errHangs is why a schedule for which a call of the application hangs does not fire.
var errHangs = fmt.Errorf("a codec, upcaster or layer has not returned after %s", fireTimeout+isolate.AskGrace)

// hanging returns the schedules for which a call hangs.
func (p *Processor) hanging(rows []store.Schedule) (bad []failure) {
	for i, row := range rows {
		if p.aside.calls(row.ID).Load() > 0 {
			bad = append(bad, failure{id: row.ID, row: &rows[i], cause: errHangs})
		}
	}
	return bad
}

func (p *Processor) dueIDs(ctx context.Context, payloadTypes []string, filter store.ScheduleFilter, limit int) ([]int64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fireTimeout, errTooSlow)
	defer cancel()
	return p.store.Schedules.DueIDs(ctx, p.db, payloadTypes, filter, limit)
}

// refusedError is an error about the messages rather than the database.
type refusedError struct{ cause error }

func (e *refusedError) Error() string { return errorlog.Text(e.cause) }
func (e *refusedError) Unwrap() error { return e.cause }

// fireTx sends due messages and sets the next fire times in one transaction: exactly one message
// per schedule and fire time, even after a crash. With an error it returns the schedules that it
// had locked.
func (p *Processor) fireTx(
	ctx context.Context, payloadTypes []string, filter store.ScheduleFilter, limit int,
) (rows []store.Schedule, err error) {
	var sent []*bus.Message
	var bad []failure
	err = p.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		if rows, err = p.store.Schedules.LockDue(ctx, tx, payloadTypes, filter, limit, fireTimeout+serverGrace); err != nil || len(rows) == 0 {
			return err
		}
		if sent, bad, err = p.advance(ctx, tx, rows); err != nil || len(sent) == 0 {
			return err
		}
		abandoned := &p.abandoned
		if len(rows) == 1 {
			abandoned = p.aside.calls(rows[0].ID)
		}
		return p.send(ctx, tx, sent, abandoned)
	})
	if err != nil {
		return rows, err
	}
	for _, f := range bad {
		p.complain(*f.row, f.cause)
	}
	p.aside.forget(idsOf(rows)...)
	if len(sent) > 0 {
		access.Wakeups(p.registry).Send(wakeup.Wake{PayloadTypes: store.Each(sent, func(m *bus.Message) string { return m.PayloadType })})
	}
	return rows, nil
}

func idsOf(rows []store.Schedule) []int64 {
	return store.Each(rows, func(row store.Schedule) int64 { return row.ID })
}

// inTx runs fn in a transaction with a timeout. A stop shortens it.
func (p *Processor) inTx(ctx context.Context, fn func(ctx context.Context, tx bun.Tx) error) error {
	inner, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), fireTimeout, errTooSlow)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopGrace, cancel) })()
	err := txn.RunOwn(inner, p.db, func(_ context.Context, tx bun.Tx) error { return fn(inner, tx) })
	if err != nil && context.Cause(inner) == errTooSlow {
		return fmt.Errorf("%w: %w", errTooSlow, err)
	}
	return err
}

// blame decides whether sending failed because of the messages or the database. Layers of the
// application may return errors that look like the database's, so it checks the transaction itself.
func (p *Processor) blame(ctx context.Context, tx bun.Tx, err error) error {
	if ctx.Err() != nil { // a stop is not a failure, and inTx adds errTooSlow
		return err
	}
	if p.store.Usable(ctx, tx) || !dberr.IsUnavailable(err) && !dberr.IsConflict(err) {
		return &refusedError{err}
	}
	return err
}

// advance sets every schedule's next fire time and returns the messages to send. It marks and
// postpones schedules that cannot fire, and returns them as well.
func (p *Processor) advance(ctx context.Context, tx bun.Tx, rows []store.Schedule) (batch []*bus.Message, bad []failure, err error) {
	var notes []store.Fire
	for i, row := range rows {
		fires, change, err := p.plan(row)
		if err == nil {
			err = p.decodable(ctx, row)
		}
		if err != nil {
			bad = append(bad, failure{id: row.ID, row: &rows[i], cause: err})
			if err := p.postpone(ctx, tx, row, err); err != nil {
				return nil, nil, err
			}
			continue
		}
		headers, schema, skipOverlap := headersOf(row)
		for _, at := range fires {
			notes = append(notes, p.note(row, at, nil))
			m := &bus.Message{PayloadType: row.PayloadType, Payload: row.Payload, Schema: schema, Headers: withFiredFor(headers, at),
				AvailableAt: at, CreatedAt: row.Now.Time} // times for the telemetry
			if skipOverlap {
				m.InsertID = fmt.Sprintf("asyncmonolith-schedule-%d", row.ID)
			}
			batch = append(batch, m)
		}
		if _, err := p.store.Schedules.Update(ctx, tx, row.ID, change); err != nil {
			return nil, nil, err
		}
	}
	return batch, bad, p.store.Schedules.NoteFires(ctx, tx, notes)
}

// note returns the record of a fire.
func (p *Processor) note(row store.Schedule, at time.Time, cause error) store.Fire {
	f := store.Fire{Schedule: row.ID, Due: at.UnixMicro(), Fired: row.Now.UnixMicro()}
	if cause != nil {
		f.Error = errorlog.Text(cause)
	} else {
		f.Messages = len(access.ConsumersOf(p.registry, row.PayloadType))
	}
	return f
}

// plan returns the instants for which a schedule fires now, and the change of its row: for its own
// fire time, and for a triggered run.
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
		if !missed || p.config.Misfire != Skip {
			fires = append(fires, row.AvailableAfter.Time)
		}
	}
	if len(fires) > 0 {
		change.FiredAt = row.Now.Time
	}
	return fires, change, nil
}

// decodable checks the payload against every consumer that would get it. A payload that a newer
// release has written is for the consumers of newer processes.
func (p *Processor) decodable(ctx context.Context, row store.Schedule) error {
	_, err := isolate.Until(ctx, "schedule: decode", p.aside.calls(row.ID), func(context.Context) (struct{}, error) {
		_, schema, _ := headersOf(row)
		m := &bus.Message{PayloadType: row.PayloadType, Payload: row.Payload, Schema: schema}
		for _, c := range access.ConsumersOf(p.registry, row.PayloadType) {
			if err := access.CheckStored(c, p.registry.Codec(), m); err != nil && !access.IsNewer(err) {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

// postpone marks a locked schedule that cannot fire, to be retried later. The cause may be local to
// this instance, such as a missing zone database.
func (p *Processor) postpone(ctx context.Context, tx bun.Tx, row store.Schedule, cause error) error {
	change := store.ScheduleChange{Error: new(errorlog.Text(cause)), RetryAt: row.Now.Add(badDelay)}
	var notes []store.Fire
	if row.RunNow() {
		notes = append(notes, p.note(row, row.RunAt.Time, cause))
	}
	if row.Due() {
		notes = append(notes, p.note(row, row.AvailableAfter.Time, cause))
	}
	_, err := p.store.Schedules.Update(ctx, tx, row.ID, change)
	if err == nil {
		err = p.store.Schedules.NoteFires(ctx, tx, notes)
	}
	return err
}

// errNotPassedOn is returned when a layer did not pass on a batch; none of its schedules fires.
var errNotPassedOn = errors.New("schedule: ProcessorConfig.Telemetry has not passed a batch on")

// send produces the messages of the schedules. It fails if the producer fails, even if the
// telemetry returns nil.
func (p *Processor) send(ctx context.Context, tx bun.Tx, fires []*bus.Message, abandoned *atomic.Int32) error {
	left, err := isolate.Until(ctx, "schedule: produce", abandoned, func(ctx context.Context) (left, err error) {
		left = errNotPassedOn
		err = access.RunProduce(ctx, p.chain, fires, func(ctx context.Context, batch []*bus.Message) error {
			for _, m := range batch { // due at once, also if a layer of the application sets a time
				m.AvailableAt, m.CreatedAt = time.Time{}, time.Time{}
			}
			left = p.producer.Send(ctx, tx, batch...)
			return left
		})
		return left, err
	})
	if err = cmp.Or(err, isolate.AsError("schedule: produce", left)); err != nil {
		return p.blame(ctx, tx, err)
	}
	return nil
}
