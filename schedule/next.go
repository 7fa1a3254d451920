package schedule

import (
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Limits of Next.
const (
	mostFires  = 1000
	nextWithin = time.Second
)

// Next returns the next n fire times, 1 to 1000, of an expression in a time zone, starting after
// the given instant. A schedule with this expression and zone fires at these times. They are in the
// zone, so they show whether daylight saving time applies, by the rules of package schedule/cron.
// It returns fewer at the end of the calendar, the year 9999.
//
// It computes for at most one second, and then returns the fire times found so far. An invalid
// expression or zone, or one that never fires, is [ErrExpression]; an invalid n is
// bus.ErrInvalidOption. Next is safe for concurrent use.
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
