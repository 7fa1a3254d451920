package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// ExpectedVersion is the version that a stream must have for an append: its number of events, or
// one of the constants.
type ExpectedVersion int64

const (
	// NoStream requires a new stream.
	NoStream ExpectedVersion = 0
	// AnyVersion skips the check.
	AnyVersion ExpectedVersion = -1
	// StreamExists requires a stream with events.
	StreamExists ExpectedVersion = -2
)

// text is the version in words.
func (e ExpectedVersion) text() string {
	switch e {
	case NoStream:
		return "no stream"
	case AnyVersion:
		return "any version"
	case StreamExists:
		return "an existing stream"
	}
	return fmt.Sprintf("version %d", int64(e))
}

// Appended is the result of an append to one stream.
type Appended struct {
	Stream string
	// Version is the stream's new version, which is that of its last event.
	Version int64
	// Sequence is the last event's sequence. Positions are assigned after the commit, so
	// projection.Runner.WaitFor waits by sequence.
	Sequence int64
}

// ConflictError reports a stream that did not have the expected version. Nothing was written, and
// the transaction stays usable.
type ConflictError struct {
	Stream   string
	Expected ExpectedVersion
	Actual   int64 // 0 for no stream
}

// Conflict returns true. It marks the error as retryable in a new transaction. A transactional
// consumer that fails with it is repeated.
func (e *ConflictError) Conflict() bool { return true }

// Error implements error.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("eventlog: stream %q has version %d, expected %s", e.Stream, e.Actual, e.Expected.text())
}

// ErrTombstoned is returned for an append to an erased stream, and for a snapshot of it.
var ErrTombstoned = errors.New("eventlog: the stream is tombstoned")

// Write is an append to one stream, for [Log.AppendAll].
type Write struct {
	// Stream is the stream's name: see [Log.Append].
	Stream string
	// Expected is the expected version. Defaults to NoStream.
	Expected ExpectedVersion
	Events   []bus.Payload
	// Headers are stored with each event and sent with the messages that deliver it, like those of
	// a produced message. Defaults to none.
	Headers map[string]string
}

// Append appends events to a stream in the transaction. Once it commits, registered consumers of
// the events run, and readers of the log see the events as soon as they have positions.
//
// If the stream does not have the expected version, the error is a *[ConflictError] and the
// transaction stays usable. At REPEATABLE READ and SERIALIZABLE, which read a snapshot, the
// database may report a serialization failure instead. Retry both in another transaction;
// [Log.RunInTx] begins one at READ COMMITTED. Other appends to the stream wait until the
// transaction ends.
//
// A stream's name is its category, "-", and an id: "account-42". It has up to 255 bytes. Without
// events the version is not checked.
//
// outbox.Producer.Produce also delivers an event to its consumers, but does not write it to a stream:
// bus.Message.Event is then nil.
//
// Other errors that the caller can avoid are *[UnknownTypeError], [ErrTombstoned],
// bus.ErrInvalidPayload, bus.ErrTooLarge, bus.ErrInvalidText and bus.ErrInvalidOption, for which
// nothing was sent to the database.
func (l *Log) Append(ctx context.Context, tx bus.Handle, stream string, expected ExpectedVersion, events ...bus.Payload) (Appended, error) {
	appended, err := l.AppendAll(ctx, tx, Write{Stream: stream, Expected: expected, Events: events})
	if err != nil {
		return Appended{}, err
	}
	return appended[0], nil
}

// AppendAll appends to several streams atomically. Each stream may be given once. Their order in
// the log is that of the arguments. Concurrent calls do not deadlock, whatever their order. See
// [Log.Append].
func (l *Log) AppendAll(ctx context.Context, tx bus.Handle, writes ...Write) (appended []Appended, err error) {
	err = l.through(ctx, tx, func(s *store.Store, db bun.IDB) (err error) {
		appended, err = l.append(ctx, s, db, writes)
		return err
	})
	if err != nil {
		return nil, appendError("append", err)
	}
	return appended, nil
}

// appendError returns a conflict without what layers wrapped around it.
func appendError(operation string, err error) error {
	if conflict, ok := errors.AsType[*ConflictError](err); ok {
		return conflict
	}
	return dberr.Wrap(err, "eventlog: %s", operation)
}

// importMessages is logaccess.Import.
func importMessages(ctx context.Context, l *Log, tx bun.Tx, messages ...*bus.Message) error {
	s, db, err := l.on(tx)
	if err == nil {
		a := &appending{log: l, store: s, tx: tx, batch: store.Each(messages, access.Clone)}
		if err = a.prepareImport(ctx); err == nil && len(messages) > 0 {
			err = a.send(ctx, db)
		}
	}
	return dberr.Wrap(err, "eventlog: import")
}

func (l *Log) append(ctx context.Context, s *store.Store, db bun.IDB, writes []Write) ([]Appended, error) {
	tx, ok := db.(bun.Tx)
	a := &appending{log: l, store: s, tx: tx, writes: writes, appended: make([]Appended, len(writes))}
	err := a.prepare()
	if !ok {
		err = errors.Join(fmt.Errorf("the database handle is a %T: a transaction is needed", db), err)
	}
	if err != nil || len(a.batch) == 0 {
		return a.appended, err
	}
	return a.appended, a.send(ctx, tx)
}

// send runs the messages through the produce chain and writes their events at its end.
func (a *appending) send(ctx context.Context, db bun.IDB) (err error) {
	l := a.log
	// Use the caller's context: the chain's context is only for the chain.
	record := func(db bun.IDB, registry *bus.Registry, batch []*bus.Message) error {
		if registry != l.registry {
			return errors.New("the producer and the log have different registries: make both from one registry, or consumers would miss the events")
		}
		return a.record(ctx, db, batch)
	}
	send := func() error { return l.producer.SendEvents(ctx, db, store.Recording{Batch: a.batch, Record: record}) }
	if a.needsSavepoint() {
		err = txn.Whole(ctx, db, send)
	} else {
		err = send()
	}
	if err == nil && !a.done {
		err = errors.New("the produce chain did not pass the events on")
	}
	return err
}

// appending is one call of Append.
type appending struct {
	log      *Log
	store    *store.Store
	tx       bun.Tx
	writes   []Write
	order    []int // indexes of the writes that have events
	batch    []*bus.Message
	appended []Appended
	done     bool
}

// prepare makes a message of each event, and returns an error for what cannot be appended.
func (a *appending) prepare() error {
	seen := map[string]bool{}
	for i, w := range a.writes {
		a.appended[i] = Appended{Stream: w.Stream}
		if err := checkStream(w.Stream); err != nil {
			return err
		}
		if seen[w.Stream] {
			return fmt.Errorf("stream %q: %w: it is given twice", w.Stream, bus.ErrInvalidOption)
		}
		seen[w.Stream] = true
		if w.Expected < StreamExists {
			return fmt.Errorf(
				"stream %q: %w: expected version %d, a version, NoStream, AnyVersion or StreamExists is allowed", w.Stream, bus.ErrInvalidOption,
				int64(w.Expected),
			)
		}
		if len(w.Events) > 0 {
			a.order = append(a.order, i)
		}
		for _, event := range w.Events {
			m, err := a.log.message(event)
			if err != nil {
				return fmt.Errorf("stream %q: %w", w.Stream, err)
			}
			m.Headers = maps.Clone(w.Headers)
			m.Event.Stream = w.Stream
			a.batch = append(a.batch, m)
		}
	}
	return nil
}

func checkStream(stream string) error {
	category, id, ok := strings.Cut(stream, "-")
	if !ok || category == "" || id == "" {
		return fmt.Errorf("stream %q: %w: a category, \"-\" and an id are needed, such as account-42", stream, bus.ErrInvalidOption)
	}
	return limits.CheckKey("stream", stream)
}

// message encodes an event.
func (l *Log) message(event bus.Payload) (*bus.Message, error) {
	if event == nil {
		return nil, fmt.Errorf("%w: a nil event", bus.ErrInvalidPayload)
	}
	goType := reflect.TypeOf(event)
	if goType.Kind() == reflect.Pointer {
		return nil, fmt.Errorf("%w: %s, pass the struct itself", bus.ErrInvalidPayload, goType)
	}
	name := event.PayloadType()
	known, ok := l.types.byName[name]
	switch {
	case !ok:
		return nil, &UnknownTypeError{Type: name}
	case known.goType != goType:
		return nil, fmt.Errorf("event %q (%s): %w: the event is registered with the Go type %s",
			name, goType, bus.ErrInvalidPayload, known.goType)
	}
	text, err := l.registry.Codec().Encode(event)
	if err != nil {
		return nil, fmt.Errorf("encode event %q: %w", name, err)
	}
	if len(text) == 0 {
		return nil, fmt.Errorf("encode event %q: %w: the codec wrote nothing", name, bus.ErrInvalidText)
	}
	id := uuid.Must(uuid.NewV7()) // cannot fail
	return &bus.Message{ID: id, PayloadType: known.name, Payload: text, Value: event, Event: &bus.Event{Schema: known.newest()}}, nil
}

// record is called at the end of the produce chain.
func (a *appending) record(ctx context.Context, db bun.IDB, batch []*bus.Message) error {
	if err := a.same(batch); err != nil {
		return err
	}
	if err := a.reserve(ctx, db); err != nil {
		return err
	}
	if err := a.insert(ctx, db); err != nil {
		txn.Spoil(ctx, db)
		return err
	}
	a.done = true
	return a.applyInline(ctx)
}

// needsSavepoint reports whether this package's own error may follow a write. With one stream,
// nothing is written when its version conflicts. Any other error aborts the transaction on
// PostgreSQL, as the database's own do; on SQLite the transaction could continue.
func (a *appending) needsSavepoint() bool {
	return len(a.order) > 1 || len(a.log.inline) > 0 || !a.store.RowLocks()
}

// insert writes the events with their versions.
func (a *appending) insert(ctx context.Context, db bun.IDB) error {
	rows := make([]*store.NewEvent, len(a.batch))
	for i, m := range a.batch {
		headers, err := store.EncodeHeaders(m.Headers, store.Extras{})
		if err != nil {
			return err
		}
		rows[i] = &store.NewEvent{
			ID: m.ID, Stream: m.Event.Stream, Version: m.Event.Version, Category: category(m.Event.Stream), Slot: slotOf(m.Event.Stream),
			Type: m.PayloadType, Schema: m.Event.Schema, Data: string(m.Payload), Headers: headers,
		}
	}
	if err := a.store.EventLog.InsertEvents(ctx, db, rows); err != nil {
		return err
	}
	n := 0
	for i, w := range a.writes {
		for range w.Events {
			a.batch[n].Event.Sequence = rows[n].Sequence
			a.appended[i].Sequence = rows[n].Sequence // not returned for an import
			n++
		}
	}
	return nil
}

// same checks that the chain kept every event, because a missing one would leave a gap in a
// stream's versions.
func (a *appending) same(batch []*bus.Message) error {
	if len(batch) != len(a.batch) {
		return fmt.Errorf("the produce chain passed on %d of %d events", len(batch), len(a.batch))
	}
	for i, m := range a.batch {
		if batch[i] != m && !slices.Contains(batch, m) { // layers may reorder messages
			return fmt.Errorf("the produce chain replaced an event of stream %q", m.Event.Stream)
		}
	}
	return nil
}

// reserve reserves the versions of all streams in the order of their names, so that concurrent
// appends do not deadlock.
func (a *appending) reserve(ctx context.Context, db bun.IDB) error {
	slices.SortFunc(a.order, func(x, y int) int { return cmp.Compare(a.writes[x].Stream, a.writes[y].Stream) })
	next := map[string]int64{}
	for _, i := range a.order {
		w := a.writes[i]
		r, err := a.store.EventLog.Reserve(
			ctx, db, store.Reservation{Stream: w.Stream, Category: category(w.Stream), Want: int64(w.Expected), Count: len(w.Events)},
		)
		switch {
		case err != nil:
			return err
		case r.Closed:
			return fmt.Errorf("stream %q: %w", w.Stream, ErrTombstoned)
		case !r.OK:
			return &ConflictError{Stream: w.Stream, Expected: w.Expected, Actual: r.Version}
		}
		a.appended[i].Version = r.Version
		next[w.Stream] = r.Version - int64(len(w.Events)) + 1
	}
	for _, m := range a.batch {
		m.Event.Version = next[m.Event.Stream]
		next[m.Event.Stream]++
	}
	return nil
}

func (a *appending) applyInline(ctx context.Context) error {
	for _, inline := range a.log.inline {
		var events []RecordedEvent
		for _, m := range a.batch {
			if inline.Handles(m.PayloadType) {
				events = append(events, RecordedEvent{
					Sequence: m.Event.Sequence, ID: m.ID, Stream: m.Event.Stream, Version: m.Event.Version, Type: m.PayloadType,
					Schema: m.Event.Schema, Data: m.Value.(bus.Payload), Headers: maps.Clone(m.Headers),
				})
			}
		}
		if len(events) == 0 {
			continue
		}
		if err := a.store.AdvisoryLock(ctx, a.tx, inline.InlineName(), false); err != nil {
			return fmt.Errorf("lock inline %q: %w", inline.InlineName(), err)
		}
		if err := inline.ApplyInline(ctx, a.tx, events); err != nil {
			return fmt.Errorf("apply inline %q: %w", inline.InlineName(), err)
		}
	}
	return nil
}

func category(stream string) string {
	category, _, _ := strings.Cut(stream, "-")
	return category
}

// slotOf distributes streams over slots. The slot is stored with each event, so this must never
// change.
func slotOf(stream string) int {
	h := fnv.New32a()
	h.Write([]byte(stream))
	return int(h.Sum32() % store.Slots)
}
