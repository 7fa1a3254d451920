package dialect

import (
	"cmp"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Poisoned is a row of poisoned_messages.
type Poisoned struct {
	Message    `bun:",extend"`
	PoisonedAt Moment `bun:"poisoned_at"`
	Reason     string `bun:"reason"`
	Parks      bool   `bun:"parks"` // it keeps others of its key from running
	// Fingerprint identifies its group.
	Fingerprint string `bun:"fingerprint"`
	// PayloadBytes is the size of the whole payload, if it was asked for.
	PayloadBytes int `bun:"payload_bytes"`
	// NewID is the row of the pending message that it has become.
	NewID int64 `bun:"-"`
}

// Requeued is a pending message that was poisoned before.
type Requeued struct {
	ID         int64     `bun:"id"`
	MessageID  uuid.UUID `bun:"message_id"`
	PendingKey `bun:",extend"`
}

// Unclassified selects poisoned messages without a fingerprint.
const Unclassified = "unclassified"

// GroupKey identifies a group of poisoned messages.
type GroupKey struct {
	ConsumerType string `bun:"consumer_type"`
	Fingerprint  string `bun:"fingerprint"` // empty: they have none
}

// Requeuing is what changes in messages when they are requeued.
type Requeuing struct {
	Renamed map[string]string // consumer types that have another name now
	// Former are the former names of consumers, by their present one: the insert id must not be
	// pending under these either.
	Former map[string][]string
	// Payload replaces the payload, unless it is nil; its type goes with it.
	Payload     []byte
	PayloadType string
}

// Key returns the key that a poisoned message will have when it is pending.
func (r Requeuing) Key(row Poisoned) PendingKey {
	return PendingKey{row.InsertID, cmp.Or(r.Renamed[row.ConsumerType], row.ConsumerType)}
}

// Columns returns the new columns for a poisoned message p, with their values.
func (r Requeuing) Columns() (consumer, payload string, args []any) {
	consumer, payload = "p.consumer_type", "p.payload_type, p.payload"
	if r.Payload != nil {
		payload, args = "?, ?", append(args, r.PayloadType, string(r.Payload))
	}
	if len(r.Renamed) > 0 {
		consumer = "CASE p.consumer_type" + strings.Repeat(" WHEN ? THEN ?", len(r.Renamed)) + " ELSE p.consumer_type END"
		for former, current := range r.Renamed {
			args = append(args, former, current)
		}
	}
	return consumer, payload, args
}

// RequeuedHeaders are the headers of a poisoned message p. A requeue lifts its deadline, which
// stays visible under another name.
const RequeuedHeaders = `REPLACE(p.headers, '"` + DeliverByHeader + `":', '"asyncmonolith-lifted-deliver-by":')`

// PendingKey is the unique key of a pending message, unless its insert id is empty.
type PendingKey struct {
	InsertID     string `bun:"insert_id"`
	ConsumerType string `bun:"consumer_type"`
}

// Recent is an insert id that stays taken for a while after its message was consumed.
type Recent struct {
	PendingKey
	For time.Duration
}

// Superseded is a pending message that another one replaces.
type Superseded struct {
	InsertID       string `bun:"insert_id"`
	ConsumerType   string `bun:"consumer_type"`
	CreatedAt      Moment `bun:"created_at"`
	AvailableAfter Moment `bun:"available_after"`
	Crashes        int    `bun:"crashes"`
	Held           bool   `bun:"held"` // it is claimed
	Now            Moment `bun:"now"`  // the database's clock
}

// Compare orders keys in the order in which they are locked.
func (k PendingKey) Compare(o PendingKey) int {
	return cmp.Or(cmp.Compare(k.InsertID, o.InsertID), cmp.Compare(k.ConsumerType, o.ConsumerType))
}

// IDsOf returns the row ids.
func IDsOf(rows []Poisoned) []int64 { return Each(rows, func(row Poisoned) int64 { return row.ID }) }
