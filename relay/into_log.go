package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// AppendToLog has what is accepted appended to the event log, see [RunnerConfig], instead of sent to
// consumers: in the transaction that remembers it, in the order in which it arrives, and once.
// Projections, and consumers of the events, go on from there. The stream is the record's key behind
// a category of its own: with AppendToLog("bank") what is account-1 there is bank-account-1 here. Events
// keep their id and headers; a payload is taken as the newest schema that is known here.
//
// What [NewLogForwarder] says of a stream that was erased erases it here, and later records of it are dropped.
// An event that cannot be appended, or has no key, is parked like any other record, and those behind
// it are not held up; requeued, it is appended behind them. The order of a stream is as the broker
// delivers it: see docs/services.md for what each needs. Nothing else should append to these streams.
//
// Of the processes that run the receiver one subscribes, and the others stand by, unless it is
// [CompetingReceivers]: with two subscribers most brokers keep no order. When that one stops another takes its
// place within a second, and when it is killed within 10 s.
//
// On MariaDB, which has no event log, NewRunner returns an errors.ErrUnsupported.
func AppendToLog(category string) ReceiveOption {
	return func(r *receiving) {
		if category == "" || strings.Contains(category, "-") {
			r.mistake("AppendToLog(%q): a category is allowed, which has no \"-\"", category)
		}
		r.intoLog, r.category = true, category
		if _, accepted := r.types[tombstone]; !accepted {
			r.types[tombstone] = tombstone
		}
	}
}

// CompetingReceivers has all processes that run a receiver with [AppendToLog] subscribe at once, for brokers that
// share out partitions, in each of which the order is kept: Kafka. Defaults to one at a time.
func CompetingReceivers() ReceiveOption {
	return func(r *receiving) { r.shared = true }
}

// fitsLog reports what keeps a receiver from appending.
func (r *receiving) fitsLog(s *store.Store, log *eventlog.Log) error {
	err := s.Events()
	if err == nil && log == nil {
		err = errNoLog
	}
	if err != nil {
		return fmt.Errorf("relay: receiver %q: %w", r.name, err)
	}
	var errs []error
	for _, payloadType := range r.payloadTypes {
		if log.Types().Names(payloadType) == nil {
			errs = append(errs, fmt.Errorf("relay: receiver %q: %w", r.name, &eventlog.UnknownTypeError{Type: payloadType}))
		}
	}
	return errors.Join(errs...)
}

// asEvent makes an event of a message.
func (r *receiving) asEvent(m *bus.Message) error {
	if m.OrderingKey == "" {
		return errors.New("it has no key, which would be its stream")
	}
	m.Event = &bus.Event{Stream: r.category + "-" + m.OrderingKey}
	m.OrderingKey, m.Recipients = "", nil
	return nil
}

// appendToLog appends events in their order, and erases streams.
func (r *Runner) appendToLog(ctx context.Context, tx bun.Tx, messages []*bus.Message) error {
	begin := 0
	for i, m := range messages {
		if m.PayloadType != tombstone {
			continue
		}
		if err := r.config.Log.Import(ctx, tx, messages[begin:i]...); err != nil {
			return err
		}
		begin = i + 1
		err := r.config.Log.Tombstone(ctx, tx, m.Event.Stream)
		if _, unknown := errors.AsType[*eventlog.ConflictError](err); err != nil && !unknown && !errors.Is(err, eventlog.ErrTombstoned) {
			return err
		}
	}
	return r.config.Log.Import(ctx, tx, messages[begin:]...)
}
