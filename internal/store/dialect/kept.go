package dialect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
)

// Kept is a message that was consumed and is kept for a time.
type Kept struct {
	ID           int64
	MessageID    uuid.UUID
	ConsumerType string
	PayloadType  string
	Payload      *string // nil if it is not kept
	Headers      string
	OrderKey     string
	AnyOrder     bool // of messages with a key
	CreatedAt    time.Time
	Attempts     int
	Outcome      string
	Reason       string // why it was discarded
	Version      string // of the program that consumed it
	StartedAt    time.Time
	Took         time.Duration
	For          time.Duration // how long it is kept
}

// Expired is the outcome of a message that was discarded because its deadline had passed.
const Expired = "expired"

// Size returns about how many bytes a row has in a statement.
func (k *Kept) Size() int {
	size := len(k.Headers) + len(k.Reason) + 300
	if k.Payload != nil {
		size += len(*k.Payload)
	}
	return size
}

// KeptOf returns what results keep.
func KeptOf(results []Result) (kept []*Kept) {
	for _, r := range results {
		if r.Kept != nil {
			kept = append(kept, r.Kept)
		}
	}
	return kept
}

// StoredReason returns the reason as it is stored.
func (k *Kept) StoredReason() string { return errorlog.Clean(k.Reason, errorlog.MaxBytes) }

// KeptColumns are the columns that Keep writes.
const KeptColumns = `id, message_id, consumer_type, payload_type, payload, headers, order_key, any_order, created_at,
  attempts, outcome, reason, version, started_at, run_micros, finished_at, expires_at`

// Keep writes consumed messages, in the transaction that removes them.
func Keep(ctx context.Context, n Names, tx bun.IDB, rows []*Kept) error {
	rows = slices.SortedFunc(slices.Values(rows), func(a, b *Kept) int { return cmp.Compare(a.ID, b.ID) })
	for _, part := range Cut(rows, InsertBytes, (*Kept).Size) {
		if err := keep(ctx, n, tx, part); err != nil {
			return fmt.Errorf("keep: %w", err)
		}
	}
	return nil
}

func keep(ctx context.Context, n Names, tx bun.IDB, rows []*Kept) error {
	instant := func(t time.Time) bun.Safe {
		if t.IsZero() {
			return "NULL"
		}
		return bun.Safe(n.Instant(t))
	}
	now := bun.Safe(n.Now(ctx))
	const columns = 17
	values := make([]any, 0, columns*len(rows))
	for _, k := range rows {
		values = append(values, k.ID, k.MessageID, k.ConsumerType, k.PayloadType, k.Payload,
			bun.NullZero(k.Headers), bun.NullZero(k.OrderKey), k.AnyOrder,
			instant(k.CreatedAt), k.Attempts, k.Outcome, bun.NullZero(k.StoredReason()), k.Version,
			instant(k.StartedAt), k.Took.Microseconds(), now, bun.Safe(n.After(ctx, k.For)))
	}
	return n.Exec(ctx, tx, `INSERT INTO {consumed} (`+KeptColumns+`) VALUES `+
		Rows("("+Rows("?", columns)+")", len(rows)), values...)
}

// Consumed is a row of consumed_messages.
type Consumed struct {
	ID           int64     `bun:"id"`
	MessageID    uuid.UUID `bun:"message_id"`
	ConsumerType string    `bun:"consumer_type"`
	PayloadType  string    `bun:"payload_type"`
	Payload      []byte    `bun:"payload"`
	Headers      []byte    `bun:"headers"`
	OrderKey     string    `bun:"order_key"`
	AnyOrder     bool      `bun:"any_order"`
	CreatedAt    Moment    `bun:"created_at"`
	Attempts     int       `bun:"attempts"`
	Outcome      string    `bun:"outcome"`
	Reason       string    `bun:"reason"`
	Version      string    `bun:"version"`
	StartedAt    Moment    `bun:"started_at"`
	RunMicros    int64     `bun:"run_micros"`
	FinishedAt   Moment    `bun:"finished_at"`
	ExpiresAt    Moment    `bun:"expires_at"`
	PayloadKept  bool      `bun:"payload_kept"`
}

// ConsumedColumns are the columns of Consumed that are never large.
const ConsumedColumns = `id, message_id, consumer_type, payload_type, order_key, any_order, created_at, attempts, outcome, reason, version,
	started_at, run_micros, finished_at, expires_at, payload IS NOT NULL AS payload_kept`
