package bus

import (
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Message is the envelope around one payload. On the produce side it stands
// for the payload once, before it fans out; on the consume side it is one
// consumer's delivery.
//
// Middleware may change Headers, Payload, Delay and AvailableAt on the produce
// side. On the consume side a Message is read-only, and it is valid only until
// the handler returns. A Message is not safe for concurrent modification.
type Message struct {
	// ID is the same for every consumer of one produced payload: the
	// idempotency key for effects outside the database. It is a UUID version 7
	// (RFC 9562), so ids sort roughly by the time they were made.
	ID uuid.UUID
	// PayloadType is the stored name of the payload.
	PayloadType string
	// Payload is the payload as the registry's Codec encoded it.
	Payload []byte
	// Value is the payload given to Produce. It is nil on the consume side.
	Value any
	// Headers travel with the message: trace context, tenant, and the like.
	// The map may be nil.
	Headers map[string]string
	// InsertID is the key that keeps a payload from being pending twice for
	// one consumer; empty means none.
	InsertID string
	// Replace has the message take the place of the one that is pending with its InsertID,
	// instead of being left out: see outbox.Replace. It is used on the produce side.
	Replace bool
	// DebounceMax bounds for how long, from the first of them on, messages that replace
	// each other are postponed: see outbox.Debounce. Zero is no bound.
	DebounceMax time.Duration
	// UniqueFor keeps InsertID taken for so long after the message was consumed: see
	// outbox.UniqueFor.
	UniqueFor time.Duration
	// OrderingKey is what consumers go by that are [Ordered], or share among keys: see outbox.OrderingKey. An event has
	// its stream. It is empty where none of the consumers goes by keys, or [Forwards] them.
	OrderingKey string
	// Priority has the message come before others of the same consumer: see [Prioritized]. It
	// is used on the produce side.
	Priority Priority
	// Recipients has the message written for those of its consumers that have one of these names, or
	// had it formerly. Nil stands for all. It is used on the produce side.
	Recipients []string
	// Event is where the event that the message delivers stands in the event
	// log. It is nil for a message that was produced, rather than appended.
	Event *Event
	// Replay is true when the message is delivered again on request: its event is replayed, or
	// it was received by a relay.Receiver with relay.MarkAsReplay. It is stored with the message.
	Replay bool

	// Delay postpones a message by that much on the database's clock. It is
	// used on the produce side, where AvailableAt is the zero time.
	Delay time.Duration
	// AvailableAt is the instant before which the message is not consumed. On
	// the produce side the zero time means "now, plus Delay".
	AvailableAt time.Time

	// Consumer is the name of the consumer, as registered today even when the
	// row was written under an alias. It is empty on the produce side.
	Consumer string
	// ConsumerAlias is the name under which the message was produced: Consumer, or an alias. It
	// is empty on the produce side.
	ConsumerAlias string
	// Config is the consumer's configuration with the processor's defaults
	// filled in. It is shared: do not modify it. Nil on the produce side.
	Config *ConsumerConfig
	// Attempt is the number of this run, starting at 1: the attempts that
	// counted so far, plus one.
	Attempt int
	// CrashCount is how often in a row the process that ran the message was lost.
	CrashCount int
	// CreatedAt is when the message was produced, on the database's clock.
	CreatedAt time.Time

	handle Handler // see Deliver
}

// Mode is "replay" or, of a message of a projection, "catchup"; of a live message, and of nil, it
// is "". It is in logs, spans and stored headers.
func (m *Message) Mode() string {
	switch {
	case m == nil:
		return ""
	case m.Replay:
		return modeReplay
	}
	return m.Event.Mode()
}

// Clone returns a copy that shares nothing with m which layers may change: neither Payload, Headers, Only nor Event.
func (m *Message) Clone() *Message {
	c := *m
	c.Payload, c.Headers, c.Recipients = slices.Clone(m.Payload), maps.Clone(m.Headers), slices.Clone(m.Recipients)
	if m.Event != nil {
		c.Event = new(*m.Event)
	}
	return &c
}
