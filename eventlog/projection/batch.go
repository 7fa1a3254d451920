package projection

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

const (
	window = 50_000          // maximum positions that one batch reads
	budget = 2 * time.Second // after which a batch applies no more events
	// This many failures in a row that the transaction caused are not counted. The wait doubles
	// after each.
	blamelessRuns = 10
	conflictDelay = 50 * time.Millisecond
	maxDelay      = time.Second
)

// batch is one transaction of a shard: its locked checkpoint and the events after it.
type batch struct {
	*shard
	tx       bun.Tx
	sub      store.Subscription
	messages []*bus.Message
	end      int64                       // of the page
	to       int64                       // the checkpoint after the batch
	parked   []store.Event               // events of parked streams
	isolate  isolate.Runner[application] // runs the projection's functions
}

// failure is why a batch was rolled back.
type failure struct {
	smaller   int // size of the next batch; 0 if the first or only event failed
	message   *bus.Message
	sub       store.Subscription
	parked    []store.Event // events of parked streams in the page
	blameless bool
	err       error
}

func (f *failure) Error() string { return errorlog.Text(f.err) }
func (f *failure) Unwrap() error { return f.err }

// named adds the projection and event to the error, for callers without a log.
func (f *failure) named(s *shard) error {
	e := f.message.Event
	return fmt.Errorf(
		"projection %q version %d at position %d, stream %q version %d: %w", s.Name, s.Version, e.Position, e.Stream, e.Version, f,
	)
}

// step applies one batch of a shard and reports whether there may be more. A returned *failure is
// already stored.
func (s *shard) step(ctx context.Context, stop <-chan struct{}) (more bool, err error) {
	b, ran := &batch{shard: s}, false
	defer b.isolate.Dismiss()
	err = txn.RunOwn(ctx, s.runner.db, func(ctx context.Context, tx bun.Tx) (err error) {
		b.tx = tx
		more, err = b.run(ctx, stop)
		ran = err == nil
		return err
	})
	if err != nil && ran { // at the commit, for example a deferred constraint
		err = b.judged(ctx, err)
	}
	if f, failed := errors.AsType[*failure](err); failed {
		return s.afterFailure(ctx, f)
	}
	if err != nil {
		return false, fmt.Errorf("projection %q: %w", s.Name, err)
	}
	s.blameless.Store(0)
	s.applied.Add(int64(b.applied()))
	if more {
		s.limit.Store(min(2*s.limit.Load(), int64(s.BatchSize)))
	}
	s.runner.moves.announce()
	return more, nil
}

// applied is how many events the batch applied.
func (b *batch) applied() (n int) {
	for _, m := range b.messages {
		if m.Event.Position <= b.to {
			n++
		}
	}
	return n
}

// run does everything except the commit.
func (b *batch) run(ctx context.Context, stop <-chan struct{}) (more bool, err error) {
	sub, ok, err := b.runner.store.Readers.Lock(ctx, b.tx, b.Name, b.Version, b.number, b.Timeout+abandonGrace+statementTimeout)
	if err != nil || !ok {
		return false, err
	}
	b.sub = sub
	more, err = b.read(ctx)
	if err != nil || b.to == sub.Position {
		return false, err
	}
	if b.end = b.to; len(b.messages) > 0 {
		if err := b.apply(ctx, stop); err != nil {
			return false, err
		}
		more = more || b.to < b.end
		if err := b.runner.store.Intact(ctx, b.tx); err != nil {
			return false, b.judged(ctx, err)
		}
	}
	moved, err := b.runner.store.Readers.Move(ctx, b.tx, sub, b.to)
	switch {
	case err == nil && !moved:
		err = fmt.Errorf("shard %d was moved by another process, is hidden from the transaction, or the transaction was ended", b.number)
		return false, b.judged(ctx, err)
	case dberr.IsAborted(err) || errors.Is(err, sql.ErrTxDone):
		return false, b.judged(ctx, err)
	case err != nil: // of the statement itself
		return false, err
	}
	return more, b.settle(ctx, b.tx, sub, b.messages, b.parked, b.to)
}

// read reads the events after the checkpoint. It reads the head before the page, so that the
// checkpoint never passes an event that the page could not see.
func (b *batch) read(ctx context.Context) (more bool, err error) {
	head, err := b.runner.store.EventLog.Head(ctx, b.tx)
	if err != nil {
		return false, fmt.Errorf("read head: %w", err)
	}
	limit := int(b.limit.Load())
	if b.sub.Attempts > 0 {
		limit = 1
	}
	page := store.Page{After: b.sub.Position, UpTo: min(head, b.sub.Position+b.window.Load()), Limit: limit, ReplayUntil: b.sub.ReplayUntil,
		EventFilter: b.page(b.number)}
	if page.UpTo <= page.After {
		b.to = page.After
		return false, nil
	}
	rows, err := b.runner.store.EventLog.ReadEvents(ctx, b.tx, page)
	if err != nil {
		return false, fmt.Errorf("read events: %w", err)
	}
	full := len(rows) == limit
	if b.to = page.UpTo; full {
		b.to = rows[len(rows)-1].Position
	} else if page.UpTo < head { // few events match the filter
		b.window.Store(min(2*b.window.Load(), window))
	}
	if n := b.alike(rows); n < len(rows) {
		rows, b.to = rows[:n], rows[n-1].Position
	}
	more = b.to < head
	for _, row := range rows {
		if row.Parked {
			b.parked = append(b.parked, row)
			continue
		}
		b.messages = append(b.messages, b.message(row, more))
	}
	return more, nil
}

// alike returns how many of the events one call of the chain may stand for: replays or others, not both.
func (b *batch) alike(rows []store.Event) int {
	var first *store.Event
	for i, row := range rows {
		switch {
		case b.Batch == nil || row.Parked:
		case first == nil:
			first = &rows[i]
		case row.Replay != first.Replay:
			return i
		}
	}
	return len(rows)
}

// message makes the event's message for the chain.
func (b *batch) message(row store.Event, behind bool) *bus.Message {
	m := &bus.Message{
		ID: row.ID, PayloadType: row.Type, Payload: row.Data, Headers: store.Headers(row.Headers), Consumer: b.Name, Config: &b.settings,
		Attempt: 1, CreatedAt: row.RecordedAt.Time, AvailableAt: row.RecordedAt.Time,
		Event: &bus.Event{Sequence: row.Sequence, Stream: row.Stream, Version: row.Version, Position: row.Position, Schema: row.Schema},
	}
	switch {
	case row.Replay:
		m.Replay, m.Event.Replay = true, true
	case behind:
		m.Event.Backlog = true
	}
	if len(b.messages) == 0 {
		m.Attempt = b.sub.Attempts + 1
	}
	return m
}

// errNotPassedOn prevents the checkpoint from moving.
var errNotPassedOn = errors.New("projection: RunnerConfig.Telemetry has not passed a batch on")

// apply sends the events through the chain. A telemetry layer cannot make the checkpoint pass
// them.
func (b *batch) apply(ctx context.Context, stop <-chan struct{}) error {
	first, left := b.messages[0], errNotPassedOn
	err := b.around(ctx, first, func(ctx context.Context, next func(context.Context) error) error {
		return access.RunProduce(ctx, b.runner.applies, b.messages, func(ctx context.Context, _ []*bus.Message) error { return next(ctx) })
	}, func(ctx context.Context) error {
		left = b.applyAll(txn.Within(ctx), stop)
		return left
	})
	if _, failed := left.(*failure); failed {
		return left
	}
	if err = cmp.Or(err, left); err != nil {
		return b.failed(ctx, 0, first, safe(err))
	}
	return nil
}

func (b *batch) applyAll(ctx context.Context, stop <-chan struct{}) error {
	if b.Batch != nil {
		return b.applyBatch(ctx)
	}
	begun := time.Now()
	for i, m := range b.messages {
		if i > 0 && (time.Since(begun) > budget || stopped(stop)) {
			b.to = b.messages[i-1].Event.Position
			return nil
		}
		if err := b.send(ctx, m); err != nil {
			return b.failed(ctx, i, m, err) // those before it are applied first
		}
	}
	return nil
}

func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// applyBatch applies the events in one call.
func (b *batch) applyBatch(ctx context.Context) error {
	first := b.messages[0]
	if err := b.send(ctx, first); err != nil {
		return b.failed(ctx, len(b.messages)/2, first, err) // it may be any event
	}
	return nil
}

// decodeAll decodes the events for Projection.Batch, up to the first that cannot be decoded: that
// becomes the first of the next batch. It returns the last position that they stand for.
func (b *batch) decodeAll(ctx context.Context) (events []eventlog.RecordedEvent, to int64, err error) {
	for i, m := range b.messages {
		data, err := logaccess.Decode(ctx, b.runner.log, m)
		switch {
		case access.Obsolete(err):
		case err != nil && i > 0:
			return events, m.Event.Position - 1, nil
		case err != nil:
			return nil, m.Event.Position, err
		default:
			events = append(events, recorded(m, data))
		}
	}
	return events, b.end, nil
}

func recorded(m *bus.Message, data bus.Payload) eventlog.RecordedEvent {
	return eventlog.RecordedEvent{
		ID: m.ID, Sequence: m.Event.Sequence, Stream: m.Event.Stream, Version: m.Event.Version, Position: m.Event.Position,
		Type: m.PayloadType, Schema: m.Event.Schema, Data: data, Headers: maps.Clone(m.Headers), RecordedAt: m.CreatedAt,
	}
}

// send runs the chain. A layer's panic is an error of the event, as in a processor, and a layer
// that hangs is a failed attempt.
func (b *batch) send(ctx context.Context, m *bus.Message) error {
	err := b.deliver(ctx, m, b.consume)
	if errors.Is(err, isolate.ErrTimeout) {
		err = &bus.OutcomeError{Outcome: bus.Retried, Delay: b.AttemptDelay, Err: err}
		if m.Attempt >= b.MaxAttempts {
			err = &bus.OutcomeError{Outcome: bus.Poisoned, Reason: "too many attempts", Err: err}
		}
	}
	switch bus.OutcomeOf(err).Outcome {
	case bus.Done:
		return nil
	case bus.Discarded:
		if b.usable(ctx) { // otherwise the batch could not commit
			return nil
		}
	}
	return safe(err)
}

// safe replaces an error whose methods panic.
func safe(err error) error {
	if v := bus.OutcomeOf(err); v.Outcome == bus.Errored {
		return v.Err
	}
	return err
}

// consume is the end of the chain. It decodes where it can be abandoned.
func (b *batch) consume(ctx context.Context, m *bus.Message) error {
	if b.Batch == nil {
		return b.call(ctx, m, func() error {
			event, err := logaccess.Decode(ctx, b.runner.log, m)
			if access.Obsolete(err) {
				return nil
			}
			if err != nil {
				return err
			}
			return b.reader.apply[m.PayloadType].fn(ctx, b.tx, event)
		})
	}
	to := m.Event.Position // if decoding panics
	err := b.call(ctx, m, func() error {
		events, end, err := b.decodeAll(ctx)
		if to = end; err != nil || len(events) == 0 {
			return err
		}
		return b.Batch(ctx, b.tx, events)
	})
	if !errors.Is(err, bus.ErrAbandoned) { // otherwise it may still write to
		b.to = to // also with an error, which a layer may replace by success
	}
	return err
}

func (b *batch) failed(ctx context.Context, smaller int, m *bus.Message, err error) error {
	f := &failure{smaller: smaller, message: m, sub: b.sub, parked: b.parked, err: err}
	f.blameless = innocent(err) && !b.usable(ctx)
	return f
}

// usable reports whether the transaction can still be committed.
func (b *batch) usable(ctx context.Context) bool {
	statement, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	return b.runner.store.Usable(statement, b.tx)
}

// errEnded replaces sql.ErrTxDone, which does not name the cause.
var errEnded = errors.New("projection: the function committed or rolled back its transaction: only the library may end it")

// judged returns the failure of a batch whose functions returned no error, although the transaction
// can no longer be committed: they ignored the error of a statement, ended the transaction, or broke
// a deferred constraint. An outage is no failure. A smaller batch finds the event that caused it, and
// the chain decides its outcome. An event whose function ends the transaction is not tried again,
// because its writes may be committed.
func (b *batch) judged(ctx context.Context, cause error) error {
	class := dberr.ClassOf(cause)
	if len(b.messages) == 0 || ctx.Err() != nil || class.Outage() || class == dberr.Timeout && !dberr.Answered(cause) {
		return cause
	}
	first, smaller := b.messages[0], len(b.messages)/2
	err := fmt.Errorf("projection: the transaction cannot be committed, although the function returned no error: %w", cause)
	if errors.Is(cause, sql.ErrTxDone) {
		smaller, err = min(smaller, 1), bus.Permanent(errEnded)
	}
	if smaller > 0 {
		return b.failed(ctx, smaller, first, err)
	}
	judged := b.deliver(ctx, first, func(context.Context, *bus.Message) error { return err })
	return b.failed(ctx, 0, first, safe(cmp.Or(judged, err)))
}

// innocent reports whether an error may not be the function's fault: the transaction conflicted or
// lost its connection. A statement timeout or lock timeout is the function's fault.
func innocent(err error) bool {
	return dberr.IsConflict(err) || dberr.IsConnectionDoubtful(err) && dberr.ClassOf(err) != dberr.Timeout
}
