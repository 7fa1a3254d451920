package logaccess

import (
	"context"
	"reflect"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Functions of logs; immutable.
var (
	// Registry returns the registry that the log was made with, or nil for a nil or zero Log.
	Registry = hooks.Function[func(l *eventlog.Log) *bus.Registry]("eventlog.Registry")

	// Types returns the event types of a log.
	Types = hooks.Function[func(l *eventlog.Log) *eventlog.Types]("eventlog.Types")

	// Import appends events recorded by another service, in the given order, in the transaction. Each
	// message has an ID, which the event keeps, a PayloadType, a Payload in the newest schema here,
	// Headers, and an Event with its Stream. Streams may have any version. The errors are those of
	// eventlog.Log.Append, and a *bus.DecodeError for a payload that does not fit its type. Import
	// does not modify the messages, so a transaction may be repeated with them.
	Import = hooks.Function[func(ctx context.Context, l *eventlog.Log, tx bun.Tx, messages ...*bus.Message) error]("eventlog.Import")

	// NewestSchema returns the newest schema of an event type, or 0 for an unknown one.
	NewestSchema = hooks.Function[func(types bus.EventTypes, name string) int]("eventlog.NewestSchema")

	// EachType calls yield with each event type but those of the library. It calls it with none if
	// types is nil.
	EachType = hooks.Function[func(
		types bus.EventTypes, yield func(name string, aliases []string, goType reflect.Type, schema int),
	)]("eventlog.EachType")

	// Decode upcasts and decodes the event that a message delivers. For an obsolete event
	// access.Obsolete is true for the error.
	Decode = hooks.Function[func(ctx context.Context, l *eventlog.Log, m *bus.Message) (bus.Payload, error)]("eventlog.Decode")

	// Snapshot returns the last snapshot of a kind, and false if there is none. For a stream or kind
	// that is not valid text it returns bus.ErrInvalidText.
	Snapshot = hooks.Function[func(
		ctx context.Context, l *eventlog.Log, db bun.IDB, stream, kind string,
	) (store.Snapshot, bool, error)]("eventlog.Snapshot")

	// SaveSnapshot stores a snapshot, unless a later version is stored. For a tombstoned stream it
	// returns eventlog.ErrTombstoned. Appends to the stream, and eventlog.Log.Tombstone, wait for the
	// end of the transaction. The error is bus.ErrInvalidText if the stream, kind or state is not
	// valid text, bus.ErrTooLarge for a kind of more than 255 bytes, and bus.ErrInvalidOption for an
	// invalid stream name.
	SaveSnapshot = hooks.Function[func(
		ctx context.Context, l *eventlog.Log, tx bun.Tx, stream, kind string, snapshot store.Snapshot,
	) error]("eventlog.SaveSnapshot")
)
