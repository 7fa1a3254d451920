package store

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// RateWait returns how long a rate allows nothing for a lane or, if that is 0, at all. Zero means
// that it allows a message.
func (s *FlowStore) RateWait(ctx context.Context, db bun.IDB, rate dialect.Rate, lane int64) (time.Duration, error) {
	statement, args := dialect.RateUsed, []any{rate.Name}
	if lane != 0 {
		statement, args = dialect.KeyRateUsed, append(args, lane)
	}
	row, found, err := first[dialect.RateUse](ctx, s.tables, db, statement, args...)
	if err != nil || !found {
		return 0, err
	}
	return rate.Wait(row), nil
}
