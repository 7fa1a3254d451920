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

// AppendToLog appends accepted records to the event log (see [RunnerConfig]) instead of sending
// them to consumers. Each is appended once, in the order of arrival, in the transaction that adds
// it to the inbox. Projections and consumers of the events process them from there. The stream is
// the category, a hyphen and the record's key: with AppendToLog("bank"), account-1 becomes
// bank-account-1. Events keep their id and headers. A payload is read as the newest schema known
// here.
//
// A record of [NewLogForwarder] for an erased stream erases the stream here; later records of it
// are dropped. An event that has no key or cannot be appended is parked without blocking later
// events; once requeued, it is appended after them. Each stream has the order in which the broker
// delivers it: see docs/services.md for the brokers' settings. Nothing else should append to these
// streams.
//
// One of the processes that run the receiver subscribes and the others stand by, unless
// [CompetingReceivers] is set: most brokers keep no order with two subscribers. If the process
// stops, another replaces it within a second; if it is killed, within 10 s.
//
// On MariaDB, which has no event log, NewRunner returns errors.ErrUnsupported.
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

// CompetingReceivers lets all processes that run a receiver with [AppendToLog] subscribe at once.
// It is for brokers that distribute partitions and keep the order in each: Kafka. Defaults to one
// process at a time.
func CompetingReceivers() ReceiveOption {
	return func(r *receiving) { r.shared = true }
}

// fitsLog returns an error if the receiver cannot append to the log.
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

// asEvent turns a message into an event.
func (r *receiving) asEvent(m *bus.Message) error {
	if m.OrderingKey == "" {
		return errors.New("it has no key, which would be its stream")
	}
	m.Event = &bus.Event{Stream: r.category + "-" + m.OrderingKey}
	m.OrderingKey, m.Recipients = "", nil
	return nil
}

// appendToLog appends events in order and erases streams.
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
