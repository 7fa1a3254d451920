package dialect

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/uptrace/bun"
)

// Micros are the instants of a database that has integers for them: microseconds since
// 1970. Clock is that of the database, as SQL.
type Micros struct{ Clock string }

// Now implements [Dialect].
func (c Micros) Now(ctx context.Context) string {
	if t, ok := FixedClock(ctx); ok {
		return c.At(t)
	}
	return c.Clock
}

// After implements [Dialect].
func (c Micros) After(ctx context.Context, d time.Duration) string {
	return fmt.Sprintf("%s + %d", c.Now(ctx), d.Microseconds())
}

// At implements [Dialect].
func (c Micros) At(t time.Time) string { return strconv.FormatInt(t.UnixMicro(), 10) }

// InsertMessages writes messages as a list of values; these are the values.
func (c Micros) InsertMessages(ctx context.Context, rows []NewMessage) (statement string, values []any) {
	values = make([]any, 0, 7*len(rows))
	for _, row := range rows {
		available := c.Now(ctx)
		switch {
		case !row.AvailableAt.IsZero():
			available = c.At(row.AvailableAt)
		case row.Delay > 0:
			available = c.After(ctx, row.Delay)
		}
		values = append(values, row.MessageID, row.ConsumerType, row.PayloadType, row.Payload, bun.NullZero(row.Headers), bun.NullZero(row.InsertID), bun.Safe(available))
	}
	return `INSERT INTO {messages} (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after) VALUES ` +
		Rows("(?, ?, ?, ?, ?, ?, {now}, ?)", len(rows)), values
}
