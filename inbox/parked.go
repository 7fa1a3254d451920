package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// parkedRow makes the message of a parked record. It bypasses the produce chain, whose layers are
// for the application's messages, and may exceed its size limit.
func (r *receiver) parkedRow(a *arrival) (_ store.NewMessage, err error) {
	if a.encoded == "" { // otherwise an earlier attempt encoded it
		if a.encoded, err = encodeRecord(a.record); err != nil {
			return store.NewMessage{}, err
		}
	}
	id, err := uuid.NewV7()
	if err != nil {
		return store.NewMessage{}, fmt.Errorf("inbox: make an id: %w", err)
	}
	return store.NewMessage{MessageID: id, ConsumerType: r.consumerName(), PayloadType: parkedType, Payload: a.encoded}, nil
}

// park writes parked records for their receiver's consumer.
func (a *acceptor) park(ctx context.Context, tx bun.Tx, rows []store.NewMessage) error {
	if len(rows) == 0 {
		return nil
	}
	if _, err := a.store.Outbox.Insert(ctx, tx, rows); err != nil {
		return fmt.Errorf("park: %w", err)
	}
	txn.AnnounceMessages(ctx, tx, a.registry, []string{parkedType})
	return nil
}

// retryDelay is how long a parked record is snoozed in a program that does not run its receiver.
const retryDelay = 30 * time.Second

// retryTimeout is more than a retry takes: MapRecord, the codec and an upcaster, then the transaction.
const retryTimeout = 3*(readTimeout+isolate.AskGrace) + acceptTimeout + 2*statementTimeout

// retry tries a parked record again; one that still fails is poisoned.
func (r *receiver) retry(ctx context.Context, batch []*bus.Message) error {
	w := r.attached.Load()
	if w == nil {
		return bus.Snooze(retryDelay)
	}
	return w.retrier.retry(ctx, batch[0]) // its BatchSize is 1
}

func (a *acceptor) retry(ctx context.Context, m *bus.Message) error {
	record, err := decodeRecord(m.Payload)
	if err != nil {
		return bus.Permanent(err)
	}
	wrap := func(err error) error { return fmt.Errorf("inbox: receiver %q: %w", a.receiver.name, err) }
	one, err := a.reader.read(ctx, record)
	switch _, newer := errors.AsType[*newerError](err); {
	case newer:
		return bus.Snooze(retryDelay)
	case err == nil && one.message == nil:
		return a.retryUnaccepted(ctx, one, wrap)
	case err == nil:
		err = a.writeTogether(ctx, false, one)
	}
	switch {
	case errors.Is(err, isolate.ErrBusy): // nothing is known of the record
		return bus.Snooze(retryDelay)
	case errors.Is(err, isolate.ErrTimeout): // another attempt may leave another goroutine behind
		return bus.Permanent(wrap(err))
	case errors.Is(err, eventlog.ErrTombstoned): // nothing of the stream may be kept
		return bus.Discard(wrap(err))
	case err != nil && isInput(err):
		return bus.Permanent(wrap(err))
	}
	return err
}

// retryUnaccepted poisons a record that is still to be parked. It discards one that is obsolete, or of a
// type that no instance accepts.
func (a *acceptor) retryUnaccepted(ctx context.Context, one arrival, wrap func(error) error) error {
	err := a.worker.types.mayIgnore(ctx, one.unknown)
	if _, newer := errors.AsType[*newerError](err); newer {
		return bus.Snooze(retryDelay)
	}
	switch {
	case err != nil:
		return err
	case one.parked != nil:
		return bus.Permanent(wrap(one.parked))
	}
	return bus.Discard(wrap(errors.New("the type of the event is not accepted, or the event is obsolete")))
}
