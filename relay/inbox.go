package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// takeTimeout limits each transaction that accepts records.
const takeTimeout = 10 * time.Second

// takeBytes limits the size of the records in one transaction, except for a single record.
const takeBytes = 8 << 20

// receive accepts a batch of a subscription: a nil error acknowledges it.
func (r *Runner) receive(ctx context.Context, rc *receiving, records []broker.Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// A started batch is finished, because a returned batch is redelivered. A stop takes effect
	// between transactions.
	stop := ctx
	ctx = context.WithoutCancel(ctx)
	if err := r.checkRoom(ctx, rc); err != nil {
		return err
	}
	var accepted []arrival
	var messages []*bus.Message
	var unknown []string
	for _, record := range records {
		a, err := rc.read(ctx, r.registry, record)
		if err != nil {
			rc.runs.failed(err)
			return fmt.Errorf("relay: receiver %q: %w", rc.name, err)
		}
		rc.runs.arrived(a.sent)
		switch {
		case a.message != nil:
			a.message.Consumer = rc.name // for telemetry
			messages = append(messages, a.message)
			fallthrough
		case a.parked != nil:
			accepted = append(accepted, a)
		default:
			unknown = append(unknown, a.unknown)
		}
	}
	if err := r.mayDrop(ctx, rc, unknown...); err != nil {
		return err
	}
	left := errNotPassedOn
	err := guarded("RunnerConfig.Telemetry", func() error {
		return bus.RunProduce(ctx, r.chain, messages, func(ctx context.Context, _ []*bus.Message) error {
			for _, m := range messages {
				m.Consumer = ""
			}
			left = r.take(ctx, stop, rc, accepted)
			return left
		})
	})
	if err = cmp.Or(err, left); err != nil { // a telemetry layer must not cause an acknowledgement
		r.outage.Failed("take over what was received", err)
		rc.runs.failed(err)
		return fmt.Errorf("relay: receiver %q: %w", rc.name, err)
	}
	r.outage.Recovered()
	rc.runs.took(len(unknown))
	return nil
}

// errNotPassedOn is returned when a telemetry layer did not pass on a batch.
var errNotPassedOn = errors.New("relay: RunnerConfig.Telemetry has not passed a batch on")

// parkAtOnce is how many unacceptable records are parked in one transaction.
const parkAtOnce = 16

// take accepts records. A record that cannot be written is parked. If a record cannot be parked
// either, take returns an error after all others are accepted.
func (r *Runner) take(ctx, stop context.Context, rc *receiving, arrivals []arrival) error {
	var kept []error // errors of records that stay at the broker
	keep := func(a arrival, err error) error {
		kept = append(kept, fmt.Errorf("a record of %d bytes cannot be parked: %w", len(a.record.Body), err))
		return nil
	}
	var park []arrival
	err := r.sift(ctx, stop, rc, arrivals, func(a arrival, err error) error {
		switch {
		case a.parked != nil:
			return keep(a, err)
		case errors.Is(err, eventlog.ErrTombstoned):
			a.message = nil // nothing of the stream may be kept
		default:
			a = a.park(err)
		}
		if park = append(park, a); len(park) < parkAtOnce {
			return nil
		}
		these := park // the batch may time out: park what was found until then
		park = nil
		return r.sift(ctx, stop, rc, these, keep)
	})
	if err == nil {
		err = r.sift(ctx, stop, rc, park, keep)
	}
	return errors.Join(append(kept, err)...)
}

// sift accepts records in order and passes each rejected one to refused. If a part fails, the
// first bad record is found by bisection. After it, parts start small and double: if all fail,
// each costs one transaction; if one fails, few are needed. Parts that time out are also halved,
// and stay that small.
func (r *Runner) sift(ctx, stop context.Context, rc *receiving, arrivals []arrival, refused func(arrival, error) error) error {
	size, suspects := len(arrivals), 0 // one of the first suspects records is bad
	most := len(arrivals)
	for len(arrivals) > 0 {
		if err := stop.Err(); err != nil {
			return err
		}
		part := arrivals[:bounded(arrivals, min(size, most))]
		err := r.takeTogether(ctx, rc, true, part...)
		switch {
		case err != nil && !isInput(err) && len(part) > 1 && dberr.ClassOf(err) == dberr.Timeout && r.answers(ctx):
			most = len(part) / 2
			continue
		case err != nil && !isInput(err):
			return err
		case err != nil && len(part) > 1:
			size, suspects = len(part)/2, len(part)
			continue
		case err != nil:
			if err := refused(part[0], err); err != nil {
				return err
			}
			size, suspects = 1, 0
		case suspects > 0:
			suspects -= len(part)
			size = max(suspects/2, 1)
		default:
			size = 2 * len(part)
		}
		arrivals = arrivals[len(part):]
	}
	return nil
}

// bounded returns how many of the first n records fit into one transaction.
func bounded(arrivals []arrival, n int) int {
	size := 0
	for i, a := range arrivals[:min(n, len(arrivals))] {
		if size += len(a.record.Body); i > 0 && size > takeBytes {
			return i
		}
	}
	return min(n, len(arrivals))
}

// answers reports whether the database answers; then a timeout was caused by the size of the part.
func (r *Runner) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return r.db.PingContext(ctx) == nil
}

// isInput reports whether an error is caused by the input rather than the database.
func isInput(err error) bool {
	for _, input := range []error{eventlog.ErrTombstoned, bus.ErrNoConsumer, bus.ErrInvalidPayload, bus.ErrTooLarge, bus.ErrInvalidText, bus.ErrInvalidOption, bus.ErrNoKey} {
		if errors.Is(err, input) {
			return true
		}
	}
	_, unreadable := errors.AsType[*bus.DecodeError](err)
	_, panicked := errors.AsType[*bus.PanicError](err)
	return unreadable || panicked || dberr.IsRefused(err)
}

// takeTogether accepts records in one transaction: it adds them to the inbox and writes messages
// for the new ones. received is false for records that were parked before.
func (r *Runner) takeTogether(ctx context.Context, rc *receiving, received bool, arrivals ...arrival) error {
	hashes := make([]string, 0, len(arrivals))
	for _, a := range arrivals {
		hashes = append(hashes, a.hashes()...)
	}
	var fresh, parked int
	ctx, wakeups := txn.WithWakeups(ctx)
	ctx, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	err := txn.InTx(txn.WithIdle(ctx, takeTimeout+statementTimeout), r.db, func(tx bun.Tx) error {
		fresh, parked = 0, 0
		added, err := r.store.Receive(ctx, tx, rc.name, hashes)
		if err != nil {
			return err
		}
		var messages []*bus.Message
		var rows []store.NewMessage
		for i := range arrivals {
			a := &arrivals[i]
			if !a.isNew(added) {
				continue
			}
			if a.message != nil {
				messages, fresh = append(messages, a.message), fresh+1
				continue
			}
			if a.parked == nil { // its stream is erased
				continue
			}
			row, err := rc.parkedRow(a)
			if err != nil {
				return err
			}
			rows, parked = append(rows, row), parked+1
		}
		if err := r.write(ctx, tx, rc, messages); err != nil {
			return err
		}
		if err := r.park(ctx, tx, rows); err != nil || !received || !rc.alone() {
			return err
		}
		return r.holdsTurn(ctx, tx, rc)
	})
	if err != nil {
		return err
	}
	wakeups.Send(r.registry)
	rc.runs.counted(fresh, parked, len(arrivals)-fresh-parked)
	return nil
}

// write writes messages or events. It calls application functions that may decode a payload; their
// panics count as input errors.
func (r *Runner) write(ctx context.Context, tx bun.Tx, rc *receiving, messages []*bus.Message) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &bus.PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	if rc.intoLog {
		return r.appendToLog(ctx, tx, messages)
	}
	return r.send(ctx, tx, messages)
}

// send writes messages. Messages with the same id, for different consumers or of different
// sources, are written separately.
func (r *Runner) send(ctx context.Context, tx bun.Tx, messages []*bus.Message) error {
	for len(messages) > 0 {
		var now, later []*bus.Message
		seen := make(map[uuid.UUID]bool, len(messages))
		for _, m := range messages {
			if seen[m.ID] {
				later = append(later, m)
				continue
			}
			seen[m.ID], now = true, append(now, m)
		}
		if err := r.producer.Send(ctx, tx, now...); err != nil {
			return err
		}
		messages = later
	}
	return nil
}

// parkedRow makes the message of a parked record. It bypasses the produce chain, whose layers are
// for the application's messages, and may exceed its size limit.
func (r *receiving) parkedRow(a *arrival) (_ store.NewMessage, err error) {
	if a.encoded == "" { // otherwise an earlier attempt encoded it
		if a.encoded, err = encodeRecord(a.record); err != nil {
			return store.NewMessage{}, err
		}
	}
	id, err := uuid.NewV7()
	if err != nil {
		return store.NewMessage{}, fmt.Errorf("relay: make an id: %w", err)
	}
	return store.NewMessage{MessageID: id, ConsumerType: r.consumerName(), PayloadType: parkedType, Payload: a.encoded}, nil
}

// park writes parked records for their receiver's consumer.
func (r *Runner) park(ctx context.Context, tx bun.Tx, rows []store.NewMessage) error {
	if len(rows) == 0 {
		return nil
	}
	if _, err := r.store.Insert(ctx, tx, rows); err != nil {
		return fmt.Errorf("park: %w", err)
	}
	txn.AnnounceMessages(ctx, tx, r.registry, []string{parkedType})
	return nil
}

// unattended is how long a parked record is snoozed in a program that does not run its receiver.
const unattended = 30 * time.Second

// retake tries parked records again; those that still fail are poisoned.
func (r *receiving) retake(ctx context.Context, batch []*bus.Message) error {
	failed := make(bus.BatchError)
	for i, m := range batch {
		runner := r.runs.by.Load()
		if runner == nil {
			failed[i] = bus.Snooze(unattended)
		} else if err := runner.retake(ctx, r, m); err != nil {
			failed[i] = err
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return failed
}

func (r *Runner) retake(ctx context.Context, rc *receiving, m *bus.Message) error {
	record, err := decodeRecord(m.Payload)
	if err != nil {
		return bus.Permanent(err)
	}
	a, err := rc.read(ctx, r.registry, record)
	switch {
	case err != nil:
		return fmt.Errorf("relay: receiver %q: %w", rc.name, err)
	case a.parked != nil:
		return bus.Permanent(fmt.Errorf("relay: receiver %q: %w", rc.name, a.parked))
	case a.message == nil:
		err := r.mayDrop(ctx, rc, a.unknown)
		if _, newer := errors.AsType[*newerError](err); newer {
			return bus.Snooze(unattended)
		}
		if err != nil {
			return err
		}
		return bus.Discard(fmt.Errorf("relay: receiver %q: the type of the event is not accepted", rc.name))
	}
	switch err = r.takeTogether(ctx, rc, false, a); {
	case errors.Is(err, eventlog.ErrTombstoned): // nothing of the stream may be kept
		return bus.Discard(fmt.Errorf("relay: receiver %q: %w", rc.name, err))
	case err != nil && isInput(err):
		return bus.Permanent(fmt.Errorf("relay: receiver %q: %w", rc.name, err))
	}
	return err
}
