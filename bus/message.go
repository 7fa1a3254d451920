package bus

import (
	"time"

	"github.com/google/uuid"
)

// Message is the envelope of one payload. On the produce side it represents the payload once,
// before the fan-out; on the consume side it is one consumer's delivery.
//
// Produce middleware may change a message: see [Batch]. On the consume side a Message is read-only,
// and valid only until the handler returns. A Message is not safe for concurrent modification.
type Message struct {
	// ID is the same for every consumer of one produced payload: the idempotency key for effects
	// outside the database. Produced ids are UUIDs version 7 (RFC 9562), so they sort roughly by
	// creation time. The id of a received message is the event's id, or is derived from it: see
	// inbox.NewReceiver.
	ID uuid.UUID
	// PayloadType is the stored name of the payload.
	PayloadType string
	// Payload is the payload as the registry's Codec encoded it.
	Payload []byte
	// Schema is the version of the schema in which Payload is stored: see [Upcaster]. On the produce
	// side 0 means the newest. It is 0 for a message that delivers an event: see [Event].Schema.
	Schema int
	// Value is the payload given to Produce. It is nil on the consume side.
	Value any
	// Headers travel with the message, such as trace context or tenant. The map may be nil.
	Headers map[string]string
	// InsertID is a key for which a consumer has at most one pending payload; empty means none.
	InsertID string
	// Replace makes the message replace the pending one with its InsertID, instead of being
	// dropped: see outbox.Replace. It is used on the produce side.
	Replace bool
	// DebounceMax limits how long messages that replace each other are postponed, counted from the
	// first: see outbox.Debounce. Zero means no limit.
	DebounceMax time.Duration
	// UniqueFor keeps InsertID taken for this long after the message was consumed: see
	// outbox.UniqueFor.
	UniqueFor time.Duration
	// OrderingKey is the key for consumers that are [Ordered] or limited by key: see
	// outbox.OrderingKey. An event's key is its stream. It is empty if no consumer uses keys or
	// [Forwards] them.
	OrderingKey string
	// Group is the group that the message is a member of: see outbox.Group. It is empty for none.
	Group string
	// Priority lets the message run before others of the same consumer: see [Prioritized]. It is
	// used on the produce side.
	Priority Priority
	// Recipients limits which consumers get the message, by current or former name. Nil means all.
	// It is used on the produce side.
	Recipients []string
	// Event is the position of the delivered event in the event log. It is nil for a message that
	// was produced rather than appended.
	Event *Event
	// Replay is true when the message is delivered again on request: its event is replayed, or an
	// inbox.Receiver with inbox.MarkAsReplay received it. It is stored with the message.
	Replay bool

	// Delay postpones a message by this much on the database's clock. It is used on the produce
	// side if AvailableAt is zero.
	Delay time.Duration
	// AvailableAt is the time before which the message is not consumed. On the produce side, zero
	// means now plus Delay.
	AvailableAt time.Time

	// Consumer is the consumer's current name, even if the row was written under an alias. It is
	// empty on the produce side.
	Consumer string
	// ConsumerAlias is the name under which the message was produced: Consumer or an alias. It is
	// empty on the produce side.
	ConsumerAlias string
	// Config is the consumer's configuration including the processor's defaults. It is shared: do
	// not modify it. It is nil on the produce side.
	Config *ConsumerConfig
	// Attempt is the number of this run, starting at 1: the attempts counted so far, plus one.
	Attempt int
	// CrashCount is how many times in a row the process that ran the message was lost.
	CrashCount int
	// CreatedAt is when the message was produced, on the database's clock.
	CreatedAt time.Time

	handle Handler // the end of the consume chain
}
