package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Producer sends messages down the produce chain in a transaction.
// *outbox.Producer is one. It must be safe for concurrent use.
type Producer interface {
	// SendEvents writes the messages in the transaction db, all or none. At the end of
	// the chain it calls record, which writes the events that the messages deliver.
	SendEvents(ctx context.Context, db bun.IDB, batch []*bus.Message, record func(db bun.IDB, registry *bus.Registry, batch []*bus.Message) error) error
}

// Inline is called with events in the transaction that appends them. Package projection makes an
// Inline of a projection.
type Inline interface {
	// InlineName is the same for all processes. While what the inline has made is
	// being rebuilt, appends that it wants to hear of wait.
	InlineName() string
	// Handles reports whether it is to be told of events of a type.
	Handles(payloadType string) bool
	// ApplyInline is given the events of one call, in order. Its error fails the
	// append.
	ApplyInline(ctx context.Context, tx bun.Tx, events []RecordedEvent) error
}

// LogConfig sets up a [Log]. The zero value works.
type LogConfig struct {
	// Inline is called with what is appended, in the same transaction. Defaults to none.
	Inline []Inline
}

// Log is the event log in the tables of a registry. It holds no database, and is
// safe for concurrent use. Make one with [NewLog].
type Log struct {
	registry *bus.Registry
	types    *Types
	producer Producer
	inline   []Inline
	stores   store.Stores
}

// NewLog makes a log. The registry must have been made with a *[Types] as its
// bus.RegistryConfig.Events; its consumers of these events are run for what is
// appended, by an outbox.Processor as ever. The producer must have been made from
// the same registry, which the first append checks. NewLog reports everything else
// that is wrong with its arguments at once. It does not know the database yet: on
// MariaDB, where there is no event log, every call with a handle fails with an
// errors.ErrUnsupported, and so do outbox.NewProcessor and projection.NewRunner.
func NewLog(registry *bus.Registry, producer Producer, config LogConfig) (*Log, error) {
	var errs []error
	l := &Log{registry: registry, producer: producer, inline: config.Inline}
	if registry == nil {
		errs = append(errs, errors.New("eventlog: NewLog: the registry is nil"))
	} else {
		var ok bool
		if l.types, ok = registry.Events().(*Types); !ok || l.types == nil {
			errs = append(errs, errors.New("eventlog: NewLog: the registry has no events: make it with an *eventlog.Types as bus.RegistryConfig.Events"))
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
	l.stores = store.All(registry.Tables())
	return l, nil
}

// Registry returns the registry that the log was made with.
func (l *Log) Registry() *bus.Registry { return l.registry }

// Types returns the events of the log.
func (l *Log) Types() *Types { return l.types }

// errUnmade is what the zero Log has to say, which under fx is what a constructor sees.
var errUnmade = errors.New("the log was not made by NewLog; under fx use it from OnStart on")

// on returns the store for a handle that a user passed in.
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

// RunInTx runs fn in a READ COMMITTED transaction, again when it loses a conflict
// of the database, and wakes this process's processors and projections once it is
// committed. It is for transactions that read a stream before they append, which
// on SQLite must begin with a write, as this one does. In a transaction that the
// library has begun, that of a transactional consumer or of a projection, say, it
// is outbox.ErrNotInTx: append in that one.
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
	err = txn.InTx(txn.WithIdle(ctx, 0), db, func(tx bun.Tx) error { // fn may take its time
		if err := s.WriteFirst(ctx, tx); err != nil {
			return fmt.Errorf("eventlog: run in tx: %w", dberr.Explained(err))
		}
		var within context.Context
		within, wakeups = txn.WithWakeups(ctx)
		return fn(within, tx)
	})
	if err != nil {
		return err
	}
	wakeups.Send(l.registry)
	return nil
}
