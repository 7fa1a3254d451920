package store

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// RateWait is for how long a rate allows nothing; zero when it does.
func (s *Store) RateWait(ctx context.Context, db bun.IDB, rate dialect.Rate) (time.Duration, error) {
	row, found, err := first[dialect.RateUse](ctx, s, db, dialect.RateUsed, rate.Name)
	if err != nil || !found {
		return 0, err
	}
	return rate.Wait(row), nil
}
