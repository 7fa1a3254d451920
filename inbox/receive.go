package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

const (
	acceptTimeout = 10 * time.Second
	// acceptBytes limits the size of the records in one transaction, except for a single record.
	acceptBytes = 8 << 20
	// parkAtOnce is how many unacceptable records are parked in one transaction.
	parkAtOnce = 16
)

// acceptor accepts batches of one receiver: it writes their messages, events and parked records.
type acceptor struct {
	*services
	receiver *receiver
	reader   reader
	worker   *worker
}

// accept accepts a batch of a subscription: a nil error acknowledges it.
func (a *acceptor) accept(ctx context.Context, records []broker.Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// A started batch is finished, because a returned batch is redelivered. A stop takes effect
	// between transactions.
	stop := ctx
	ctx = context.WithoutCancel(ctx)
	if err := a.worker.backlog.check(ctx); err != nil {
		return err
	}
	b, err := a.read(ctx, records)
	if err != nil {
		return err
	}
	if err := a.worker.types.mayIgnore(ctx, b.unknown...); err != nil {
		return err
	}
	written := errNotPassedOn
	err = isolate.Around(ctx, "inbox: RunnerConfig.Telemetry", &a.worker.state.abandoned, acceptTimeout,
		func(ctx context.Context, next func(context.Context) error) error {
			return access.RunProduce(ctx, a.produce, b.messages, func(ctx context.Context, _ []*bus.Message) error { return next(ctx) })
		},
		func(ctx context.Context) error {
			for _, m := range b.messages {
				m.Consumer = ""
			}
			written = a.write(ctx, stop, b.arrivals)
			return written
		})
	if err = cmp.Or(err, written); err != nil { // a telemetry layer must not cause an acknowledgement
		a.outage.Failed("accept records", err)
		a.worker.state.failed(err)
		return fmt.Errorf("inbox: receiver %q: %w", a.receiver.name, err)
	}
	a.outage.Recovered()
	a.worker.state.succeeded(b.ignored)
	return nil
}

// batch is a batch of records as the receiver understands it.
type batch struct {
	arrivals []arrival      // to be written
	messages []*bus.Message // of those that become messages
	unknown  []string       // types and consumers that this instance lacks
	ignored  int            // records of unknown types, and obsolete events
}

func (a *acceptor) read(ctx context.Context, records []broker.Record) (b batch, err error) {
	for _, record := range records {
		r, err := a.readOne(ctx, record)
		if err != nil {
			a.worker.state.failed(err)
			return b, fmt.Errorf("inbox: receiver %q: %w", a.receiver.name, err)
		}
		a.worker.state.arrived(r.sent)
		if r.unknown != "" {
			b.unknown = append(b.unknown, r.unknown)
		}
		if r.message == nil && r.parked == nil {
			b.ignored++
			continue
		}
		b.arrivals = append(b.arrivals, r)
		if r.message != nil {
			r.message.Consumer = a.receiver.name // for telemetry
			b.messages = append(b.messages, r.message)
		}
	}
	return b, nil
}

// readOne parks a record that a function has hung at before.
func (a *acceptor) readOne(ctx context.Context, record broker.Record) (arrival, error) {
	if !a.worker.state.readHungOften(record) {
		r, err := a.reader.read(ctx, record)
		if !errors.Is(err, errHung) || !a.worker.state.readHung(record) {
			return r, err
		}
	}
	return arrival{record: record}.park(errHung), nil
}

// errNotPassedOn is returned when a telemetry layer did not pass on a batch.
var errNotPassedOn = errors.New("inbox: RunnerConfig.Telemetry has not passed a batch on")

// write accepts records. A record that cannot be written is parked. If a record cannot be parked
// either, write returns an error after all others are accepted.
func (a *acceptor) write(ctx, stop context.Context, arrivals []arrival) error {
	var kept []error // errors of records that stay at the broker
	keep := func(one arrival, err error) error {
		kept = append(kept, fmt.Errorf("a record of %d bytes cannot be parked: %w", len(one.record.Body), err))
		return nil
	}
	var park []arrival
	err := a.sift(ctx, stop, arrivals, func(one arrival, err error) error {
		switch {
		case one.parked != nil:
			return keep(one, err)
		case errors.Is(err, eventlog.ErrTombstoned):
			one.message = nil // nothing of the stream may be kept
		case !isInput(err) && !a.worker.state.failedOften(one.record, err):
			return err // it comes again, before those behind it
		default:
			one = one.park(err)
		}
		park = append(park, one)
		if len(park) < parkAtOnce {
			return nil
		}
		these := park // the batch may time out: park what was found until then
		park = nil
		return a.sift(ctx, stop, these, keep)
	})
	if err == nil {
		err = a.sift(ctx, stop, park, keep)
	}
	return errors.Join(append(kept, err)...)
}

// sift accepts records in order and passes each rejected one to refused. If a part fails, the
// first bad record is found by bisection. After it, parts start small and double: if all fail,
// each costs one transaction; if one fails, few are needed. Parts that time out are also halved,
// and stay that small. After a layer that hangs, which leaves a goroutine behind, and for records
// that failed before, each part is one record.
func (a *acceptor) sift(ctx, stop context.Context, arrivals []arrival, refused func(arrival, error) error) error {
	size, suspects := len(arrivals), 0 // one of the first suspects records is bad
	most := len(arrivals)
	if a.worker.state.suspects(arrivals) {
		most = 1
	}
	for len(arrivals) > 0 {
		if err := stop.Err(); err != nil {
			return err
		}
		part := arrivals[:bounded(arrivals, min(size, most))]
		err := a.writeTogether(ctx, true, part...)
		switch {
		case err == nil && suspects > 0:
			suspects -= len(part)
			size = max(suspects/2, 1)
		case err == nil:
			size = 2 * len(part)
		case !a.divisible(ctx, err):
			return err
		case len(part) == 1:
			if err := refused(part[0], err); err != nil {
				return err
			}
			size, suspects = 1, 0
		case errors.Is(err, isolate.ErrTimeout):
			most = 1
			continue
		case !isInput(err) && dberr.ClassOf(err) == dberr.Timeout:
			most = len(part) / 2
			continue
		default:
			size, suspects = len(part)/2, len(part)
			continue
		}
		arrivals = arrivals[len(part):]
	}
	return nil
}

// divisible reports whether an error may be that of one record, so that the others are accepted
// without it.
func (a *acceptor) divisible(ctx context.Context, err error) bool {
	switch class := dberr.ClassOf(err); {
	case isInput(err):
		return true
	case errors.Is(err, errLeaseLost), errors.Is(err, isolate.ErrBusy), class.Outage(), class == dberr.Conflict,
		class == dberr.LockTimeout, class == dberr.Schema:
		return false
	case class == dberr.Timeout:
		return a.answers(ctx)
	}
	return true
}

// bounded returns how many of the first n records fit into one transaction.
func bounded(arrivals []arrival, n int) int {
	size := 0
	for i, one := range arrivals[:min(n, len(arrivals))] {
		size += len(one.record.Body)
		if i > 0 && size > acceptBytes {
			return i
		}
	}
	return min(n, len(arrivals))
}

// answers reports whether the database answers; then a timeout was caused by the size of the part.
func (a *acceptor) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return a.db.PingContext(ctx) == nil
}

// isInput reports whether an error is caused by the input rather than the database.
func isInput(err error) bool {
	for _, input := range []error{eventlog.ErrTombstoned, bus.ErrNoConsumer, bus.ErrInvalidPayload, bus.ErrTooLarge,
		bus.ErrInvalidText, bus.ErrInvalidOption, bus.ErrNoKey} {
		if errors.Is(err, input) {
			return true
		}
	}
	_, unreadable := errors.AsType[*bus.DecodeError](err)
	_, panicked := errors.AsType[*bus.PanicError](err)
	return unreadable || panicked || dberr.IsRefused(err)
}

// writeTogether accepts records in one transaction: it adds them to the inbox and writes messages
// for the new ones. received is false for records that were parked before.
func (a *acceptor) writeTogether(ctx context.Context, received bool, arrivals ...arrival) error {
	arrivals = cloned(arrivals) // an abandoned call may still use them
	hashes := make([]string, 0, len(arrivals))
	for _, one := range arrivals {
		hashes = append(hashes, one.hashes()...)
	}
	ctx, wakeups := txn.WithWakeups(ctx)
	write := func(ctx context.Context) (f fresh, err error) {
		ctx, cancel := context.WithTimeout(ctx, acceptTimeout)
		defer cancel()
		err = txn.InTx(txn.WithIdle(ctx, acceptTimeout+statementTimeout), a.db, func(tx bun.Tx) error {
			added, err := a.store.Inbox.Receive(ctx, tx, a.receiver.name, hashes)
			if err != nil {
				return err
			}
			if f, err = a.fresh(arrivals, added); err != nil {
				return err
			}
			if err := a.writeMessages(ctx, tx, f.messages); err != nil {
				return err
			}
			if err := a.park(ctx, tx, f.parked); err != nil || !received {
				return err
			}
			return a.worker.lease.holds(ctx, tx)
		})
		return f, err
	}
	what, timeout := "inbox: a layer, key or codec of the application", acceptTimeout+statementTimeout
	f, err := isolate.Ask(ctx, what, a.reader.abandoned, timeout, write)
	if err != nil {
		return err
	}
	wakeups.Send(a.registry)
	accepted, parked := len(f.messages), len(f.parked)
	a.worker.state.counted(accepted, parked, len(arrivals)-accepted-parked)
	a.worker.backlog.add(accepted)
	return nil
}

// cloned copies arrivals and their messages.
func cloned(arrivals []arrival) []arrival {
	arrivals = slices.Clone(arrivals)
	for i := range arrivals {
		if m := arrivals[i].message; m != nil {
			own := *m
			own.Headers = maps.Clone(m.Headers)
			arrivals[i].message = &own
		}
	}
	return arrivals
}

// fresh are the records of a batch that the inbox did not have.
type fresh struct {
	messages []*bus.Message
	parked   []store.NewMessage
}

// fresh returns the new records, given the hashes that were added to the inbox.
func (a *acceptor) fresh(arrivals []arrival, added map[string]bool) (f fresh, err error) {
	for i := range arrivals {
		one := &arrivals[i]
		switch {
		case !one.isNew(added):
		case one.message != nil:
			f.messages = append(f.messages, one.message)
		case one.parked != nil: // otherwise its stream is erased
			row, err := a.receiver.parkedRow(one)
			if err != nil {
				return f, err
			}
			f.parked = append(f.parked, row)
		}
	}
	return f, nil
}

// writeMessages writes messages or events. It calls application functions that may decode a
// payload; isInput counts their panics.
func (a *acceptor) writeMessages(ctx context.Context, tx bun.Tx, messages []*bus.Message) error {
	if a.receiver.appends {
		return a.appendToLog(ctx, tx, messages)
	}
	return a.produceMessages(ctx, tx, messages)
}

// produceMessages writes messages. Messages with the same id, for different consumers or of
// different sources, are written separately.
func (a *acceptor) produceMessages(ctx context.Context, tx bun.Tx, messages []*bus.Message) error {
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
		if err := a.producer.Send(ctx, tx, now...); err != nil {
			return err
		}
		messages = later
	}
	return nil
}
