package access

import (
	"time"

	"github.com/uptrace/bun/schema"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access/hook"
	"github.com/asyncmonolith/asyncmonolith-go/internal/handoff"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

// Wakeups returns the registry's hub, which wakes the processors of this process.
func Wakeups(r *bus.Registry) *wakeup.Hub { return hook.Bus.Wakeups(r) }

// HandOffs returns the registry's hub of processors that take messages without a fetcher's claim.
func HandOffs(r *bus.Registry) *handoff.Hub { return hook.Bus.HandOffs(r) }

// Events returns the payloads that are recorded in the event log, or nil.
func Events(r *bus.Registry) bus.EventTypes {
	events, _ := hook.Bus.Events(r).(bus.EventTypes)
	return events
}

// Dialect returns the dialect of transactions that are not Bun's, or nil.
func Dialect(r *bus.Registry) schema.Dialect {
	if r == nil {
		return nil
	}
	dialect, _ := hook.Bus.Dialect(r).(schema.Dialect)
	return dialect
}

// Heartbeat returns how often each Run writes its heartbeat, where less than 0 means never, and the
// configured release of the program, or "".
func Heartbeat(r *bus.Registry) (interval time.Duration, appVersion string) {
	return hook.Bus.Heartbeat(r)
}

// SetKey sets a message's key from its payload, unless it has one. It returns an error if a
// consumer needs a key and there is none.
func SetKey(r *bus.Registry, m *bus.Message) error { return hook.Bus.SetKey(r, m) }

// AllPayloadTypes returns every payload type that has a consumer, aliases included, sorted.
func AllPayloadTypes(r *bus.Registry) []string { return hook.Bus.PayloadTypes(r) }

// Encode returns the stored name and text of a payload. It rejects a nil or pointer payload and one
// whose name belongs to another Go type (bus.ErrInvalidPayload), and one without a consumer
// (bus.ErrNoConsumer). Any other error is the codec's.
func Encode(r *bus.Registry, payload bus.Payload) (payloadType string, text []byte, err error) {
	return hook.Bus.Encode(r, payload)
}

// CheckTables returns an error for every field that is too long or not a lower-case SQL identifier.
func CheckTables(t bus.Tables) error { return hook.Bus.CheckTables(t) }
