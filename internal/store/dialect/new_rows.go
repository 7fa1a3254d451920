package dialect

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
)

// NewMessage is one consumer's row to be inserted.
type NewMessage struct {
	MessageID    uuid.UUID
	ConsumerType string
	PayloadType  string
	Payload      string
	Headers      string
	InsertID     string
	// FormerConsumers are former names of the consumer: the insert id must not be pending under
	// these either.
	FormerConsumers []string
	// AvailableAt, if not zero, is a fixed instant. Otherwise the message is available Delay after
	// the insert, on the database's clock.
	AvailableAt time.Time
	Delay       time.Duration
	// Replace makes the row replace the one whose insert id is pending. MaxPostponed bounds how
	// long after the first one's creation the row is due, unless it is zero.
	Replace      bool
	MaxPostponed time.Duration
	// UniqueFor is how long the insert id stays taken after the message was consumed.
	UniqueFor time.Duration
	// OrderKey is the key of a message of a keyed consumer. Rank is its place among those of the
	// key. Zero is behind the existing ones or, with AnyOrder, when the message is due.
	OrderKey string
	Rank     int64
	AnyOrder bool
	// Priority is above 0 for a message that comes before others of its consumer. It has no key.
	Priority int
	// GroupKey is the group that the message is in, if any.
	GroupKey string
	// CreatedAt is when the first message that this one replaces was created; zero is now.
	CreatedAt time.Time
	// Crashes are those of that message.
	Crashes int
}

// TakePlace gives the row the creation time of the pending row that it replaces. It makes it due no
// sooner than that one, within the bound. If that one is claimed, the row keeps its own times.
func (row *NewMessage) TakePlace(old Superseded) {
	row.Crashes = old.Crashes
	if old.Held {
		return
	}
	row.CreatedAt = old.CreatedAt.Time
	due := row.AvailableAt
	if due.IsZero() {
		due = old.Now.Add(row.Delay)
	}
	due = later(due, old.AvailableAfter.Time)
	if bound := row.CreatedAt.Add(row.MaxPostponed); row.MaxPostponed > 0 && due.After(bound) {
		due = bound
	}
	row.AvailableAt, row.Delay = due, 0
}

// Key returns the unique key that the message will have.
func (row NewMessage) Key() PendingKey { return PendingKey{row.InsertID, row.ConsumerType} }

// InsertMessages returns a statement that inserts messages as a list of values, and the values.
// Either all rows have a key, or all have a priority, or none has either. All or none are in a group.
func (n Names) InsertMessages(ctx context.Context, rows []NewMessage) (statement string, values []any) {
	columns, row := "", "(?, ?, ?, ?, ?, ?, ?, ?)"
	keyed := len(rows) > 0 && rows[0].OrderKey != ""
	lanes := keyed && n.Lanes.Table == ""
	switch {
	case lanes:
		columns, row = ", order_key, lane, rank", "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	case keyed:
		columns, row = ", keyed", "(?, ?, ?, ?, ?, ?, ?, ?, TRUE)"
	}
	priority := !keyed && len(rows) > 0 && rows[0].Priority > 0
	if priority {
		columns, row = ", priority", "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
	}
	grouped := len(rows) > 0 && rows[0].GroupKey != ""
	if grouped {
		columns, row = columns+", group_key", row[:len(row)-1]+", ?)"
	}
	values = make([]any, 0, 8*len(rows))
	for _, row := range rows {
		now := n.Now(ctx)
		available, created := now, now
		if !row.CreatedAt.IsZero() {
			created = n.Instant(row.CreatedAt)
		}
		switch {
		case !row.AvailableAt.IsZero():
			available = n.Instant(row.AvailableAt)
		case row.Delay > 0:
			available = n.After(ctx, row.Delay)
		}
		values = append(
			values, row.MessageID, row.ConsumerType, row.PayloadType, row.Payload, bun.NullZero(row.Headers), bun.NullZero(row.InsertID),
			bun.Safe(created), bun.Safe(available),
		)
		if priority {
			values = append(values, row.Priority)
		}
		if lanes {
			values = append(values, row.OrderKey, Lane(row.OrderKey), n.rankOf(row, available))
		}
		if grouped {
			values = append(values, row.GroupKey)
		}
	}
	return `INSERT INTO {messages} (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after` + columns + `) VALUES ` +
		Rows(row, len(rows)), values
}

// rankOf returns the place of a message that is due at an instant, or the expression for the last
// place.
func (n Names) rankOf(row NewMessage, due string) any {
	switch {
	case row.AnyOrder:
		return bun.Safe(n.Traits.Micros(due))
	case row.Rank != 0:
		return row.Rank
	}
	return bun.Safe(n.Expand(n.LastRank))
}

// NewEvent is an event to be inserted.
type NewEvent struct {
	ID            uuid.UUID
	Stream        string
	Version       int64
	Category      string
	Slot          int
	Type          string
	Schema        int
	Data, Headers string
	Sequence      int64 // set by the insert
}

// NumberInserted sets sequence numbers by event id.
func NumberInserted(rows []*NewEvent, inserted []InsertedEvent) error {
	sequences := make(map[uuid.UUID]int64, len(inserted))
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

// InsertedEvent is what an insert returns for each event.
type InsertedEvent struct {
	Sequence int64     `bun:"sequence"`
	ID       uuid.UUID `bun:"event_id"`
}

// InsertSchedule takes the columns of a schedule.
const InsertSchedule = `INSERT INTO {schedules} (name, tag, payload_type, payload, headers, cron_expression, cron_timezone, available_after, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, {now})`

// ChangedRow is a changed message.
type ChangedRow struct {
	ID          int64
	PayloadType string
}

// MostCounted is the largest number of a statistic; it means "or more".
const MostCounted = 10_000

// QueueStats is what waits for one consumer. Counts have a bound.
type QueueStats struct {
	Consumer                         string
	Ready, Delayed, Leased, Poisoned int64
	OldestReady, OldestPoisoned, Now Moment
}

// Age returns how long ago an instant was, or 0 for none.
func (q QueueStats) Age(since Moment) time.Duration {
	if since.IsZero() {
		return 0
	}
	return max(q.Now.Sub(since.Time), 0)
}
