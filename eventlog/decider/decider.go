package decider

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Decider handles commands of type C with a state S, which is built from events E. It is a value,
// and safe for concurrent use if its functions are.
type Decider[S, C any, E bus.Payload] struct {
	// Category is the category of its streams: "account" for "account-42". It must not contain
	// "-".
	Category string
	// Initial is the state before the first event. Defaults to the zero value.
	Initial func() S
	// Evolve returns the state after an event. It must be pure: no clock, no I/O. It cannot fail,
	// because the event has already happened.
	Evolve func(state S, event E) S
	// Decide returns the events that a command causes, or an error if the command is rejected.
	// Returning no events is allowed. It may be called again with another state.
	Decide func(ctx context.Context, state S, command C) ([]E, error)
	// Snapshots are stored if Every is set. Defaults to none.
	Snapshots Snapshots
}

// Snapshots configures snapshots of the state, for streams of hundreds of events. They are stored
// as JSON: if the state type has fields that JSON would lose, every call returns an error. A state
// with values that JSON changes, such as an int64 in an any field, is not stored; a warning is
// logged.
type Snapshots struct {
	// Every is the number of events between snapshots. The command that reaches a multiple of it
	// stores one. Until then a stream without a snapshot of this Schema is read from its first event.
	Every int
	// Schema must be raised when S or Evolve changes: snapshots of another schema are ignored, and each
	// stream gets a new one at its next multiple of Every. Defaults to 0.
	Schema int
}

// ErrSnapshotMismatch is returned if the state type S changed since the snapshot was stored, and
// [Snapshots].Schema did not.
var ErrSnapshotMismatch = errors.New("the state type has changed since the snapshot was stored: raise Snapshots.Schema")

// Check returns an error for every invalid field. With snapshots it also returns an error for each
// given state that JSON does not preserve. [Handle], [Execute] and [Load] check the fields too.
// They do not store a snapshot of a state that JSON does not preserve; a warning is logged.
func (d Decider[S, C, E]) Check(states ...S) error {
	var errs []error
	if d.Category == "" || strings.Contains(d.Category, "-") {
		errs = append(errs, fmt.Errorf("the Category %q: text without \"-\" is needed: the first \"-\" of a stream's name ends the category",
			d.Category))
	}
	if d.Evolve == nil || d.Decide == nil {
		errs = append(errs, errors.New("the function Evolve or Decide is nil"))
	}
	if d.Snapshots.Every < 0 {
		errs = append(errs, fmt.Errorf("the field Snapshots.Every %d: 0 or more is allowed", d.Snapshots.Every))
	}
	if d.Snapshots.Every > 0 {
		state := reflect.TypeFor[S]()
		if err := survives(state, state.String(), nil); err != nil {
			errs = append(errs, fmt.Errorf("the field Snapshots: %w", err))
		}
	}
	if d.Snapshots.Every > 0 {
		for i, state := range states {
			if _, err := d.encoded(state); err != nil {
				errs = append(errs, fmt.Errorf("state %d: %w", i, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Stream returns the name of an id's stream.
func (d Decider[S, C, E]) Stream(id string) string { return d.Category + "-" + id }

type loaded[S any] struct {
	state    S
	version  int64
	snapshot int64 // the snapshot's version
}

// Load returns the state of an id and the version of its stream, which is 0 without events.
func Load[S, C any, E bus.Payload](ctx context.Context, log *eventlog.Log, db bus.Handle, d Decider[S, C, E], id string) (S, int64, error) {
	var l loaded[S]
	err := txn.Through(ctx, db, access.Dialect(logaccess.Registry(log)), func(db bun.IDB) (err error) {
		l, err = d.load(ctx, log, db, id, true)
		return err
	})
	if err != nil {
		return l.state, 0, fmt.Errorf("decider: load %s: %w", d.Stream(id), err)
	}
	return l.state, l.version, nil
}

func (d Decider[S, C, E]) load(ctx context.Context, log *eventlog.Log, db bun.IDB, id string, snapshots bool) (l loaded[S], err error) {
	if err := d.Check(); err != nil {
		return l, err
	}
	if d.Initial != nil {
		l.state = d.Initial()
	}
	if snapshots && d.Snapshots.Every > 0 {
		if l, err = d.restore(ctx, log, db, id, l); err != nil {
			return l, err
		}
	}
	l.version, err = log.FoldStream(ctx, db, d.Stream(id), l.version, func(recorded eventlog.RecordedEvent) error {
		event, ok := recorded.Data.(E)
		if _, over := recorded.Data.(eventlog.Tombstoned); over && !ok {
			return eventlog.ErrTombstoned
		}
		if !ok {
			return fmt.Errorf("version %d is a %T, which is not an event of this decider", recorded.Version, recorded.Data)
		}
		l.state = d.Evolve(l.state, event)
		return nil
	})
	return l, err
}

// Handle decides on a command in the caller's transaction and appends the events at the version
// that it loaded. It returns the state after them. If another transaction has appended to the
// stream meanwhile, the error is an *eventlog.ConflictError; only another transaction, or
// [Execute], can retry.
//
// An error of Decide is returned wrapped, and nothing is appended.
func Handle[S, C any, E bus.Payload](
	ctx context.Context, log *eventlog.Log, tx bus.Handle, d Decider[S, C, E], id string, command C,
) (state S, appended eventlog.Appended, err error) {
	err = txn.Through(ctx, tx, access.Dialect(logaccess.Registry(log)), func(db bun.IDB) (err error) {
		tx, ok := db.(bun.Tx)
		if !ok {
			return fmt.Errorf("the database handle is a %T: a transaction is needed", db)
		}
		state, appended, err = d.handle(ctx, log, tx, id, command)
		return err
	})
	if err != nil {
		return state, eventlog.Appended{}, fmt.Errorf("decider: %s: %w", d.Stream(id), err)
	}
	return state, appended, nil
}

func (d Decider[S, C, E]) handle(ctx context.Context, log *eventlog.Log, tx bun.Tx, id string, command C) (S, eventlog.Appended, error) {
	l, err := d.load(ctx, log, tx, id, true)
	if err != nil {
		return l.state, eventlog.Appended{}, err
	}
	events, err := d.Decide(ctx, l.state, command)
	if err != nil || len(events) == 0 {
		return l.state, eventlog.Appended{Stream: d.Stream(id), Version: l.version}, err
	}
	payloads := make([]bus.Payload, len(events))
	for i, event := range events {
		payloads[i] = event
		if any(event) == nil {
			return l.state, eventlog.Appended{}, fmt.Errorf("event %d: %w", i, bus.ErrInvalidPayload)
		}
	}
	for _, event := range events {
		l.state = d.Evolve(l.state, event)
	}
	expected := eventlog.ExpectedVersion(l.version)
	l.version += int64(len(events))
	text := d.encode(ctx, id, l, len(events))
	if text == nil {
		appended, err := log.Append(ctx, tx, d.Stream(id), expected, payloads...)
		return l.state, appended, err
	}
	var appended eventlog.Appended
	err = txn.Whole(ctx, tx, func() error {
		var err error
		if appended, err = log.Append(ctx, tx, d.Stream(id), expected, payloads...); err != nil {
			return err
		}
		return logaccess.SaveSnapshot(ctx, log, tx, d.Stream(id), d.kind(), store.Snapshot{Version: l.version, State: text})
	})
	return l.state, appended, err
}

// Execute decides on a command in its own transaction: see [eventlog.Log.RunInTx]. If the stream was
// appended to meanwhile, it locks the stream and decides again. It wakes this process's
// processors and projections. The errors are those of [Handle] and of the database. Inside a
// transaction that the library began, such as that of a transactional consumer, the error is
// outbox.ErrNotInTx: use Handle there.
func Execute[S, C any, E bus.Payload](
	ctx context.Context, log *eventlog.Log, db *bun.DB, d Decider[S, C, E], id string, command C,
) (state S, appended eventlog.Appended, err error) {
	err = log.RunInTx(ctx, db, func(ctx context.Context, tx bun.Tx) error {
		state, appended, err = d.handle(ctx, log, tx, id, command)
		return err
	})
	if err != nil {
		return state, eventlog.Appended{}, fmt.Errorf("decider: %s: %w", d.Stream(id), err)
	}
	return state, appended, nil
}
