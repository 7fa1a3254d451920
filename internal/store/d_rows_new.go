package store

import (
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// NewMessage is one consumer's row to be inserted.
type NewMessage struct {
	MessageID    bus.MessageID
	ConsumerType string
	PayloadType  string
	Payload      string
	Headers      string
	InsertID     string
	// FormerConsumers are former names of the consumer: the insert id must not be
	// pending under these either.
	FormerConsumers []string
	// AvailableAt, when not zero, is a fixed instant; otherwise the message is
	// available Delay after the insert, on the database's clock.
	AvailableAt time.Time
	Delay       time.Duration
}

func (row NewMessage) key() pendingKey { return pendingKey{row.InsertID, row.ConsumerType} }

// NewEvent is an event to be inserted.
type NewEvent struct {
	ID            bus.MessageID
	Stream        string
	Version       int64
	Category      string
	Slot          int
	Type          string
	Schema        int
	Data, Headers string
	Sequence      int64 // filled in by the insert
}

// numberInserted fills in sequence numbers by event id.
func numberInserted(rows []*NewEvent, inserted []insertedEvent) error {
	sequences := make(map[bus.MessageID]int64, len(inserted))
	for _, row := range inserted {
		sequences[row.ID] = row.Sequence
	}
	for _, row := range rows {
		if row.Sequence = sequences[row.ID]; row.Sequence == 0 {
			return fmt.Errorf("event %s has no sequence number", row.ID)
		}
	}
	return nil
}

type insertedEvent struct {
	Sequence int64         `bun:"sequence"`
	ID       bus.MessageID `bun:"event_id"`
}

// newSchedule is what an insert writes.
type newSchedule struct {
	bun.BaseModel `bun:"table:scheduled_messages,alias:s"`

	Name           string   `bun:"name,nullzero"`
	Tag            string   `bun:"tag,nullzero"`
	PayloadType    string   `bun:"payload_type"`
	Payload        string   `bun:"payload"`
	Headers        string   `bun:"headers,nullzero"`
	CronExpression string   `bun:"cron_expression"`
	CronTimezone   string   `bun:"cron_timezone"`
	AvailableAfter bun.Safe `bun:"available_after"`
	CreatedAt      bun.Safe `bun:"created_at"`
}

// changedRow is a message that was changed.
type changedRow struct {
	ID          int64
	PayloadType string
}

// queueStats is what waits for one consumer. What is counted is so up to a bound.
type queueStats struct {
	Consumer                         string
	Ready, Delayed, Leased, Poisoned int64
	OldestReady, OldestPoisoned, Now Moment
}
