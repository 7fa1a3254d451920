package eventlog

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// sender sends messages through the produce chain in a transaction. *outbox.Producer implements
// it. It must be safe for concurrent use.
type sender interface {
	// SendEvents writes events and their messages atomically in the transaction db.
	SendEvents(ctx context.Context, db bun.IDB, recording store.Recording) error
}

// Inline is called with events in the transaction that appends them. Package projection makes an
// Inline from a projection.
type Inline interface {
	// InlineName is the same in all processes. A rebuild of the tables locks this name: where the
	// inline is set, appends of events that it handles wait for its end.
	InlineName() string
	// Handles reports whether ApplyInline is called for events of a type.
	Handles(payloadType string) bool
	// ApplyInline gets the events of one append, in order. Its error fails the append.
	ApplyInline(ctx context.Context, tx bun.Tx, events []RecordedEvent) error
}

// LogConfig configures a [Log]. The zero value works.
type LogConfig struct {
	// Inline is called with appended events, in the same transaction. All processes that append need
	// the same: see projection.Inline. Defaults to none.
	Inline []Inline
}

// Log is the event log in the tables of a registry. It holds no database handle and is safe for
// concurrent use. Make it with [NewLog].
type Log struct {
	registry *bus.Registry
	types    *Types
	producer sender
	inline   []Inline
	stores   store.Stores
}

// NewLog makes a log. The registry must have a *[Types] as its bus.RegistryConfig.Events; an
// outbox.Processor runs its consumers of appended events. The producer is an *outbox.Producer with
// the same registry, which the first append checks. NewLog reports all other configuration errors at
// once.
//
// NewLog does not access the database. On MariaDB, which has no event log, every call with a handle
// returns errors.ErrUnsupported, and so do outbox.NewProcessor and projection.NewRunner.
func NewLog(registry *bus.Registry, producer sender, config LogConfig) (*Log, error) {
	var errs []error
	l := &Log{registry: registry, producer: producer, inline: config.Inline}
	if registry == nil {
		errs = append(errs, errors.New("eventlog: NewLog: the registry is nil"))
	} else {
		var ok bool
		if l.types, ok = access.Events(registry).(*Types); !ok || l.types == nil {
			errs = append(errs, errors.New("eventlog: NewLog: the registry has no events: make it with an *eventlog.Types as "+
				"bus.RegistryConfig.Events"))
		}
	}
	if producer == nil {
		errs = append(errs, errors.New("eventlog: NewLog: the producer is nil"))
	}
	for i, inline := range config.Inline {
		if inline == nil {
			errs = append(errs, fmt.Errorf("eventlog: NewLog: LogConfig.Inline[%d] is nil", i))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	l.stores = store.All(registry)
	return l, nil
}

// errUnmade is the error of a zero Log, which a constructor gets under fx.
var errUnmade = errors.New("the log was not made by NewLog; under fx use it from OnStart on")

// on returns the store for a user's handle.
func (l *Log) on(db bun.IDB) (*store.Store, bun.IDB, error) {
	if l == nil {
		return nil, nil, errUnmade
	}
	s, db, err := l.stores.Of(db, errUnmade)
	if err == nil {
		err = s.Events()
	}
	return s, db, err
}

// through calls fn with the store for a user's handle, and the handle as one of Bun's.
func (l *Log) through(ctx context.Context, h bus.Handle, fn func(s *store.Store, db bun.IDB) error) error {
	if l == nil || l.registry == nil {
		return errUnmade
	}
	return txn.Through(ctx, h, access.Dialect(l.registry), func(db bun.IDB) error {
		s, db, err := l.on(db)
		if err != nil {
			return err
		}
		return fn(s, db)
	})
}

// RunInTx runs fn in a READ COMMITTED transaction and retries it after a *[ConflictError] or a
// database conflict. A retry locks the streams that it reads, so that no other append conflicts. After
// the commit it wakes this process's processors and projections. Use it for transactions that read
// a stream before they append. On SQLite such a transaction must begin with a write, as this one
// does. Inside a transaction that the library began, such as that of a transactional consumer or a
// projection, it returns outbox.ErrNotInTx: append in that transaction instead.
func (l *Log) RunInTx(ctx context.Context, db *bun.DB, fn func(ctx context.Context, tx bun.Tx) error) error {
	s, _, err := l.on(db)
	if err == nil {
		_, err = txn.HandleIn(ctx, db)
	}
	if err == nil && fn == nil {
		err = errors.New("the function is nil")
	}
	if err != nil {
		return fmt.Errorf("eventlog: run in tx: %w", err)
	}
	var wakeups *txn.Wakeups
	try := ctx
	err = txn.InTx(txn.WithIdle(ctx, 0), db, func(tx bun.Tx) error { // fn may take long
		if err := s.WriteFirst(ctx, tx); err != nil {
			return fmt.Errorf("eventlog: run in tx: %w", dberr.Explained(err))
		}
		var within context.Context
		within, wakeups = txn.WithWakeups(try)
		try = txn.WithRepeat(ctx)
		return fn(within, tx)
	})
	if err != nil {
		return err
	}
	wakeups.Send(l.registry)
	return nil
}

// Replay writes a message for each event of the consumer, marked as a replay (bus.Message), and
// returns how many this call has written. An outbox.Processor runs them as usual;
// middleware.SkipOnReplay protects consumers whose effects must not happen twice. Each event is
// written once per name, even after crashes: pages and the replay's progress commit together.
// Calling it again with the same name but another Consumer, After or UpTo returns
// bus.ErrInvalidOption, as does an invalid field. For an unknown consumer the error is
// bus.ErrNoConsumer.
func (l *Log) Replay(ctx context.Context, db *bun.DB, replay Replay) (total int, err error) {
	s, _, err := l.on(db)
	if err == nil {
		r := &replayer{Replay: replay, log: l, store: s, db: db}
		total, err = r.run(ctx)
	}
	return total, dberr.Wrap(err, "eventlog: replay %q", replay.Name)
}

// Package internal/logaccess has these for the library's other packages.
var _ = hooks.Provide(hooks.Functions{
	"eventlog.Decode": decode,
	"eventlog.EachType": func(types bus.EventTypes, yield func(name string, aliases []string, goType reflect.Type, schema int)) {
		t, ok := types.(*Types)
		if !ok || t == nil {
			return
		}
		for _, name := range t.names {
			if known := t.byName[name]; known.goType != reflect.TypeFor[Tombstoned]() {
				yield(name, known.aliases, known.goType, known.newest())
			}
		}
	},
	"eventlog.Import": importMessages,
	"eventlog.NewestSchema": func(types bus.EventTypes, name string) int {
		if t, ok := types.(*Types); ok {
			if known, ok := t.find(name); ok {
				return known.newest()
			}
		}
		return 0
	},
	"eventlog.Registry": func(l *Log) *bus.Registry {
		if l == nil {
			return nil
		}
		return l.registry
	},
	"eventlog.SaveSnapshot": saveSnapshot,
	"eventlog.Snapshot":     snapshot,
	"eventlog.Types":        func(l *Log) *Types { return l.types },
})

// snapshot is logaccess.Snapshot.
func snapshot(ctx context.Context, l *Log, db bun.IDB, stream, kind string) (store.Snapshot, bool, error) {
	s, db, err := l.on(db)
	if err = errors.Join(err, checkText("stream", stream), checkText("kind", kind)); err != nil {
		return store.Snapshot{}, false, fmt.Errorf("eventlog: snapshot: %w", err)
	}
	found, ok, err := s.EventLog.Snapshot(ctx, db, stream, kind)
	return found, ok, dberr.Wrap(err, "eventlog: snapshot")
}

// saveSnapshot is logaccess.SaveSnapshot.
func saveSnapshot(ctx context.Context, l *Log, tx bun.Tx, stream, kind string, snapshot store.Snapshot) error {
	s, db, err := l.on(tx)
	if err == nil {
		err = errors.Join(checkStream(stream), limits.CheckKey("kind", kind))
	}
	if bad := limits.CheckText(string(snapshot.State)); err == nil && bad != nil { // the state must not be in the error
		err = fmt.Errorf("state: %w: %w", bus.ErrInvalidText, bad)
	}
	if err == nil {
		var open bool
		if open, err = s.EventLog.KeepOpen(ctx, db, stream); err == nil && !open {
			err = fmt.Errorf("stream %q: %w", stream, ErrTombstoned)
		}
	}
	if err == nil {
		err = s.EventLog.SaveSnapshot(ctx, db, stream, kind, snapshot)
	}
	return dberr.Wrap(err, "eventlog: save snapshot")
}

// Tombstone erases a stream in the transaction: it removes its snapshots, and the payloads and
// headers of its events and of the consumed messages (bus.Keep) that delivered them. The events'
// positions and ids remain. It then appends a [Tombstoned]
// event, so that projections and consumers can erase what they derived from the stream. The stream
// accepts no further events or snapshots. A pending message that delivers an erased event is
// discarded when it runs.
//
// For a stream that does not exist the error is a *[ConflictError], for a tombstoned one
// [ErrTombstoned]. Tombstone does not erase headers, errors and edited payloads of poisoned
// messages: delete those. What is kept of messages that run meanwhile, have an edited payload or are
// repetitions (admin.Client.Repeat) remains for the time of bus.Keep. Nor does Tombstone reach
// backups or other systems.
//
// Keep the transaction short: if an event of the stream has no position yet, no event gets one until
// the transaction ends.
func (l *Log) Tombstone(ctx context.Context, tx bus.Handle, stream string) error {
	err := l.through(ctx, tx, func(s *store.Store, db bun.IDB) error {
		return txn.Whole(ctx, db, func() error {
			last, err := l.append(ctx, s, db, []Write{{Stream: stream, Expected: StreamExists, Events: []bus.Payload{Tombstoned{Stream: stream}}}})
			if err != nil {
				return err
			}
			return s.EventLog.Erase(ctx, db, stream, last[0].Version)
		})
	})
	return appendError("tombstone", err)
}
