package store

import (
	"context"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// HandOff is a claim that the transaction of a producer writes.
type HandOff = dialect.HandOff

// HandsOff reports whether rows may be handed off: nothing but their consumers
// decides when they run. A test kit decides itself.
func HandsOff(ctx context.Context, rows []dialect.NewMessage) bool {
	if dialect.HasFixedClock(ctx) {
		return false
	}
	bytes := 0
	for i := range rows {
		row := &rows[i]
		if row.InsertID != "" || row.OrderKey != "" || row.GroupKey != "" || row.Priority != 0 || row.Delay != 0 || !row.AvailableAt.IsZero() ||
			!row.CreatedAt.IsZero() || row.Payload == "" {
			return false
		}
		bytes += len(row.Payload) + len(row.Headers)
	}
	return len(rows) > 0 && len(rows) <= dialect.MostHandedOff && bytes <= dialect.InsertBytes
}
