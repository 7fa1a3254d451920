package poison

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Message is a poisoned message. Its instants are in UTC, on the database's clock.
type Message struct {
	// ID names the row in calls of [Store].
	ID int64 `json:"id"`
	// MessageID is shared with the other consumers' messages of the payload.
	MessageID   uuid.UUID `json:"message_id"`
	Consumer    string    `json:"consumer"`
	PayloadType string    `json:"payload_type"`
	// Payload is as the registry's codec encoded it: the beginning of it from [Store.GetHead].
	Payload []byte `json:"-"`
	// PayloadBytes is the size of the whole payload; 0 from [Store.ListBrief].
	PayloadBytes int               `json:"payload_bytes,omitempty"`
	Headers      map[string]string `json:"headers,omitempty"`     // nil: none
	InsertID     string            `json:"insert_id,omitempty"`   // empty: none
	OrderingKey  string            `json:"key,omitempty"`         // of its order: see outbox.OrderingKey; empty: none
	BlocksKey    bool              `json:"blocks_key,omitempty"`  // it keeps those of its key from running: see bus.BlockKey
	CreatedAt    time.Time         `json:"created_at,omitzero"`   // when it was produced
	AvailableAt  time.Time         `json:"available_at,omitzero"` // when it was due for the run after which it was poisoned
	PoisonedAt   time.Time         `json:"poisoned_at,omitzero"`
	Attempts     int               `json:"attempts"` // failed runs
	Crashes      int               `json:"crashes"`  // deliveries in a row whose process was lost
	// Reason says in a few words why it was poisoned.
	Reason string `json:"reason"`
	// Fingerprint is what it has in common with others that belong together, see
	// admin.FailureGroup: "crash" if its processes were lost.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Errors are the last ten failed runs, oldest first; none when its process was lost each time.
	Errors []admin.Attempt `json:"errors,omitempty"`
}

// MarshalJSON implements json.Marshaler: the payload is as it is stored when that is JSON,
// else a string. It is for output only: what is unmarshalled from it has no payload.
func (m Message) MarshalJSON() ([]byte, error) {
	type plain Message
	return json.Marshal(struct {
		plain
		Payload store.PayloadText `json:"payload,omitempty"`
	}{plain(m), m.Payload})
}

func shown(row store.Poisoned) Message {
	m := Message{ID: row.ID, MessageID: row.MessageID, Consumer: row.ConsumerType, PayloadType: row.PayloadType, Payload: row.Payload,
		Headers: store.Headers(row.Headers), InsertID: row.InsertID, OrderingKey: row.OrderKey, BlocksKey: row.Parks, CreatedAt: row.CreatedAt.Time, AvailableAt: row.AvailableAfter.Time, PoisonedAt: row.PoisonedAt.Time, Attempts: row.Attempts,
		Crashes: row.Crashes, Reason: row.Reason, Fingerprint: row.Fingerprint}
	if m.PayloadBytes = row.PayloadBytes; m.PayloadBytes == 0 {
		m.PayloadBytes = len(row.Payload)
	}
	for _, e := range errorlog.Attempts(row.Errors) {
		m.Errors = append(m.Errors, admin.Attempt(e))
	}
	return m
}

// Filter selects poisoned messages. All fields that are set must match. The zero
// value selects all.
type Filter struct {
	// IDs selects rows by their ids, up to 1000. Nil selects all; a list of none is an error.
	IDs []int64 `json:"ids,omitempty"`
	// Consumer and PayloadType are names as they are stored with the message.
	// They match exactly: messages stored under a former name (bus.Aliases,
	// bus.PayloadAliases) are found by that name only.
	Consumer    string `json:"consumer,omitempty"`
	PayloadType string `json:"payload_type,omitempty"`
	// Fingerprint selects those that belong together, or with [Unclassified] those without one. It
	// has an index with the consumer.
	Fingerprint string `json:"fingerprint,omitempty"`
	// OrderingKey is the key by which the message is ordered: see outbox.OrderingKey.
	OrderingKey string `json:"key,omitempty"`
	// MessageID is the id that log lines and spans have: one message for each
	// consumer of the payload. It has an index.
	MessageID uuid.UUID `json:"message_id,omitzero"`
	// PoisonedAfter and PoisonedBefore bound when the message was poisoned;
	// both are exclusive.
	PoisonedAfter  time.Time `json:"poisoned_after,omitzero"`
	PoisonedBefore time.Time `json:"poisoned_before,omitzero"`
	// Error is a text anywhere in the reason or in the stored errors of the runs: as
	// it is, on all databases, so that its case counts, and quotes, percent signs and
	// backslashes mean themselves. No index helps to find it, so set Consumer, too,
	// where there are many.
	Error string `json:"error,omitempty"`
}

// mostIDs is how many ids a filter may list.
const mostIDs = 1000

// check reports what no row can match, or nothing can mean.
func (f Filter) check() error {
	if n := len(f.IDs); f.IDs != nil && (n == 0 || n > mostIDs) {
		return fmt.Errorf("filter by %d ids: %w: 1 to %d are allowed, or nil for all", n, bus.ErrInvalidOption, mostIDs)
	}
	for what, text := range map[string]string{"consumer": f.Consumer, "payload type": f.PayloadType, "fingerprint": f.Fingerprint, "key": f.OrderingKey, "error": f.Error} {
		if err := limits.CheckText(text); err != nil {
			return fmt.Errorf("filter by %s %q: %w: %w", what, text, bus.ErrInvalidText, err)
		}
	}
	return nil
}

func (f Filter) rows() store.PoisonFilter {
	return store.PoisonFilter{IDs: f.IDs, Consumer: f.Consumer, PayloadType: f.PayloadType, Fingerprint: f.Fingerprint, Key: f.OrderingKey, MessageID: f.MessageID, PoisonedAfter: f.PoisonedAfter,
		PoisonedBefore: f.PoisonedBefore, Error: f.Error}
}

// Unclassified is the fingerprint by which a [Filter] selects messages that have none. A [Group] of those has it, too.
const Unclassified = store.Unclassified

// Result is what a requeue did.
type Result struct {
	// Requeued messages are pending again.
	Requeued int `json:"requeued"`
	// Unregistered are those of the requeued messages that have no consumer in this registry:
	// another program may have one, else they are unhandled and wait.
	Unhandled int `json:"unhandled"`
	// Conflicts are messages whose insert id is pending again already; they
	// stay poisoned.
	Conflicts int `json:"conflicts"`
	// Missing are ids that name no poisoned message.
	Missing int `json:"missing"`
}
