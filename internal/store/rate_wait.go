package store

import (
	"context"
	"slices"
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

// namedUse is a dialect.RateUse with the name of its rate.
type namedUse struct {
	Name string `bun:"name"`
	dialect.RateUse
}

// RateWaits returns for how long each of these rates allows nothing, by name. Rates that allow a
// message are left out.
func (s *FlowStore) RateWaits(ctx context.Context, db bun.IDB, rates []dialect.Rate) (map[string]time.Duration, error) {
	waits := make(map[string]time.Duration)
	for part := range slices.Chunk(rates, 100) {
		names := dialect.Each(part, func(r dialect.Rate) string { return r.Name })
		rows, err := read[[]namedUse](ctx, s.tables, db, dialect.RatesUsed, bun.List(names))
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			rate := part[slices.Index(names, row.Name)]
			if wait := rate.Wait(row.RateUse); wait > 0 {
				waits[row.Name] = wait
			}
		}
	}
	return waits, nil
}
