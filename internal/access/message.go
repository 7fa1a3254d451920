package access

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
)

// Replay is the [Mode] of a message that is delivered again on request.
const Replay = "replay"

// Mode returns "replay", or "catchup" for a message of a projection that works through a backlog.
// For a live message or nil it returns "". Logs, spans and stored headers contain it.
func Mode(m *bus.Message) string {
	switch {
	case m == nil:
		return ""
	case m.Replay || m.Event != nil && m.Event.Replay:
		return Replay
	case m.Event != nil && m.Event.Backlog:
		return "catchup"
	}
	return ""
}

// Clone returns a deep copy of what layers may change: Payload, Headers, Recipients and Event.
func Clone(m *bus.Message) *bus.Message {
	c := *m
	c.Payload, c.Headers, c.Recipients = slices.Clone(m.Payload), maps.Clone(m.Headers), slices.Clone(m.Recipients)
	if m.Event != nil {
		c.Event = new(*m.Event)
	}
	return &c
}

// Functions of messages; immutable.
var (
	// CheckMessage returns an error if the message cannot be written; maxPayload is in bytes.
	CheckMessage = hooks.Function[func(m *bus.Message, maxPayload int) error]("bus.CheckMessage")

	// CodecFromContext returns the registry's codec inside a consumer made by bus.ConsumeRaw, to
	// decode its messages. Elsewhere it returns nil.
	CodecFromContext = hooks.Function[func(ctx context.Context) bus.Codec]("bus.CodecFromContext")

	// Schema returns the schema in which a message's payload is written.
	Schema = hooks.Function[func(r *bus.Registry, m *bus.Message) int]("bus.Schema")

	// Upcasters returns the upcasters of a payload type, given its zero value: see bus.Upcaster.
	Upcasters = hooks.Function[func(zero any) []bus.Upcaster]("bus.Upcasters")

	// Upcast converts a text to the newest schema. Schema 0 is the newest. [IsNewer] is true for the
	// error if the schema is unknown.
	Upcast = hooks.Function[func(ctx context.Context, upcasters []bus.Upcaster, schema int, text []byte) ([]byte, error)]("bus.Upcast")

	// StandBack returns the outcome of a message that a newer process can read: it runs again soon, and no
	// attempt counts.
	StandBack = hooks.Function[func(created time.Time, err error) error]("bus.StandBack")

	// IsNewer reports whether a payload could not be read because a newer release has written it.
	IsNewer = hooks.Function[func(err error) bool]("bus.IsNewer")

	// DecodeFailure returns the outcome of a message whose payload could not be upcast to a Go type.
	DecodeFailure = hooks.Function[func(m *bus.Message, goType reflect.Type, err error) error]("bus.DecodeFailure")
)

// Obsolete reports whether an upcaster has given up a payload with bus.Discard.
func Obsolete(err error) bool { return bus.OutcomeOf(err).Outcome == bus.Discarded }
