package access

import (
	"time"

	"github.com/uptrace/bun/schema"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/handoff"
	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

// Functions of registries; immutable.
var (
	// Wakeups returns the registry's hub, which wakes the processors of this process.
	Wakeups = hooks.Function[func(r *bus.Registry) *wakeup.Hub]("bus.Wakeups")

	// HandOffs returns the registry's hub of processors that take messages without a claimer.
	HandOffs = hooks.Function[func(r *bus.Registry) *handoff.Hub]("bus.HandOffs")

	// Events returns the payloads that are recorded in the event log, or nil.
	Events = hooks.Function[func(r *bus.Registry) bus.EventTypes]("bus.Events")

	// Heartbeat returns how often each Run writes its heartbeat, where less than 0 means never, and
	// the configured release of the program, or "".
	Heartbeat = hooks.Function[func(r *bus.Registry) (interval time.Duration, appVersion string)]("bus.Heartbeat")

	// SetKey sets a message's key from its payload, unless it has one. It returns an error if a
	// consumer needs a key and there is none.
	SetKey = hooks.Function[func(r *bus.Registry, m *bus.Message) error]("bus.SetKey")

	// ConsumersOf returns the consumers of a payload type, by its current or a former name, including
	// declared ones, or nil if there are none. The slice is shared: do not modify it.
	ConsumersOf = hooks.Function[func(r *bus.Registry, payloadType string) []bus.Consumer]("bus.ConsumersOf")

	// AllPayloadTypes returns every payload type that has a consumer, aliases included, sorted.
	AllPayloadTypes = hooks.Function[func(r *bus.Registry) []string]("bus.PayloadTypes")

	// Encode returns the stored name and text of a payload. It rejects a nil or pointer payload and
	// one whose name belongs to another Go type (bus.ErrInvalidPayload), and one without a consumer
	// (bus.ErrNoConsumer). Any other error is the codec's.
	Encode = hooks.Function[func(r *bus.Registry, payload bus.Payload) (payloadType string, text []byte, err error)]("bus.Encode")

	// CheckTables returns an error for every field that is too long or not a lower-case SQL identifier.
	CheckTables = hooks.Function[func(t bus.Tables) error]("bus.CheckTables")

	// Dialect returns the dialect of transactions that are not Bun's, or nil.
	Dialect = hooks.Function[func(r *bus.Registry) schema.Dialect]("bus.Dialect")
)
