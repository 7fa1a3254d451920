package schedule

import (
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// What Next may take.
const (
	mostFires  = 1000
	nextWithin = time.Second
)

// Next returns the next fires of an expression in a time zone, 1 to 1000 of them, the first after the
// given instant: what a schedule of both would do. They are in the zone, so that they tell
// whether daylight saving time holds, by the rules of package schedule/cron. There are fewer where the
// calendar ends, with the year 9999.
//
// It computes for a second at most, and then returns what it has. An expression or zone that cannot
// be used, or has no fire at all, is [ErrExpression]; another number bus.ErrInvalidOption. Next is
// safe for concurrent use.
func Next(expression, zone string, after time.Time, n int) ([]time.Time, error) {
	begun := time.Now()
	if n < 1 || n > mostFires {
		return nil, fmt.Errorf("schedule: next %d fires: %w: 1 to %d are allowed", n, bus.ErrInvalidOption, mostFires)
	}
	parsed, location, err := parse(expression, zone)
	if err != nil {
		return nil, fmt.Errorf("schedule: next fires: %w", err)
	}
	fires := make([]time.Time, 0, n)
	for len(fires) < n && time.Since(begun) < nextWithin {
		next, err := firstAfter(parsed, location, after)
		if err != nil && len(fires) == 0 {
			return nil, fmt.Errorf("schedule: next fires: %w", err)
		}
		if err != nil {
			break
		}
		fires, after = append(fires, next), next
	}
	return fires, nil
}
