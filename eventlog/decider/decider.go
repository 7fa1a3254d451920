package decider

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Decider decides on commands C by a state S that events E make. It is a value,
// and safe for concurrent use if its functions are.
type Decider[S, C any, E bus.Payload] struct {
	// Category is what the names of its streams begin with: "account" for
	// "account-42". It has no "-".
	Category string
	// Initial is the state before the first event. Defaults to the zero value.
	Initial func() S
	// Evolve is the state after an event. It is pure: it reads no clock, does no
	// I/O, and does not fail, since what it is given has happened.
	Evolve func(state S, event E) S
	// Decide returns what happens because of the command, or why it cannot be.
	// None is no error. It may be called again with another state.
	Decide func(ctx context.Context, state S, command C) ([]E, error)
	// Snapshots are kept when Every is set. Defaults to none.
	Snapshots Snapshots
}

// Snapshots says when to keep states, for streams of hundreds of events. They are kept as JSON: a state
// type with fields that would be lost in it is an error of every call.
type Snapshots struct {
	// Every is the number of events after which another one is kept.
	Every int
	// Schema is to be raised whenever S or Evolve changes: states of another one
	// are not looked at. Defaults to 0.
	Schema int
}

// ErrSnapshotMismatch is returned for a snapshot that was made of another form of S than is
// used now, under the same schema.
var ErrSnapshotMismatch = errors.New("the snapshot was made of another form of the state: raise Snapshots.Schema")

func (d Decider[S, C, E]) check() error {
	var errs []error
	if d.Category == "" || strings.Contains(d.Category, "-") {
		errs = append(errs, fmt.Errorf("the Category %q: text without \"-\" is needed, which ends it in the name of a stream", d.Category))
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
	return errors.Join(errs...)
}

// Stream returns the name of the stream of an id.
func (d Decider[S, C, E]) Stream(id string) string { return d.Category + "-" + id }

// loaded is a state with what is known of where it comes from.
type loaded[S any] struct {
	state    S
	version  int64
	snapshot int64 // the version of the snapshot it began with
}

// Load returns the state of an id, and the version of its stream; 0 for one that
// has no events.
func Load[S, C any, E bus.Payload](ctx context.Context, log *eventlog.Log, db bun.IDB, d Decider[S, C, E], id string) (S, int64, error) {
	l, err := d.load(ctx, log, db, id, true)
	if err != nil {
		return l.state, 0, fmt.Errorf("decider: load %s: %w", d.Stream(id), err)
	}
	return l.state, l.version, nil
}

func (d Decider[S, C, E]) load(ctx context.Context, log *eventlog.Log, db bun.IDB, id string, snapshots bool) (l loaded[S], err error) {
	if err := d.check(); err != nil {
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
			return fmt.Errorf("version %d is a %T, which is no event of this decider", recorded.Version, recorded.Data)
		}
		l.state = d.Evolve(l.state, event)
		return nil
	})
	return l, err
}

// Handle decides on a command in the caller's transaction, and appends the events at the version
// that it has decided on. It returns the state after them. If the stream has been appended to
// meanwhile, the error is an *eventlog.ConflictError, which only another transaction, or [Execute],
// can repeat.
//
// The error of Decide comes back wrapped; nothing is appended then.
func Handle[S, C any, E bus.Payload](ctx context.Context, log *eventlog.Log, tx bun.Tx, d Decider[S, C, E], id string, command C) (S, eventlog.Appended, error) {
	state, appended, err := d.handle(ctx, log, tx, id, command)
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
	text := d.encode(ctx, id, l)
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
		return log.SaveSnapshot(ctx, tx, d.Stream(id), d.kind(), eventlog.Snapshot{Version: l.version, State: text})
	})
	return l.state, appended, err
}

const tries = 5 // of Execute

// Execute decides on a command in a transaction of its own. It decides again if the stream was
// appended to meanwhile: up to five times in all, after short random waits. It wakes this process's
// processors and projections. The errors are those of [Handle], and of the database, and
// outbox.ErrNotInTx in a transaction that the library has begun, such as that of a transactional
// consumer: use Handle there.
func Execute[S, C any, E bus.Payload](ctx context.Context, log *eventlog.Log, db *bun.DB, d Decider[S, C, E], id string, command C) (state S, appended eventlog.Appended, err error) {
	within := ctx
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(5*time.Millisecond), backoff.WithMaxInterval(100*time.Millisecond))
	for try := 1; ; try++ {
		err = log.RunInTx(within, db, func(ctx context.Context, tx bun.Tx) error {
			state, appended, err = d.handle(ctx, log, tx, id, command)
			return err
		})
		_, conflict := errors.AsType[*eventlog.ConflictError](err)
		if err == nil {
			return state, appended, nil
		}
		if !conflict || try == tries || !outage.Pause(ctx, wait.NextBackOff()) {
			return state, eventlog.Appended{}, fmt.Errorf("decider: %s: %w", d.Stream(id), err)
		}
		within = txn.WithRepeat(ctx) // it waits for others before it reads, and so cannot lose once more
	}
}
