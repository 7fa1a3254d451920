package schedule

import (
	"errors"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/schedule/cron"
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

// checkExpression reports errors in the expression or zone.
func checkExpression(expression, zone string) error {
	_, _, err := parse(expression, zone)
	return err
}

func parse(expression, zone string) (cron.Expression, *time.Location, error) {
	parsed, expressionErr := cron.Parse(expression)
	location, zoneErr := cron.LoadLocation(zone)
	if err := errors.Join(expressionErr, zoneErr); err != nil {
		return cron.Expression{}, nil, fmt.Errorf("%w: %w", ErrExpression, err)
	}
	return parsed, location, nil
}

// nextFire returns the first fire time after from.
func nextFire(expression, zone string, from time.Time) (time.Time, error) {
	parsed, location, err := parse(expression, zone)
	if err != nil {
		return time.Time{}, err
	}
	return firstAfter(parsed, location, from)
}

// firstFire returns the next fire time of a schedule that gets the expression and zone now. After its
// last fire the clock may have been set back: no scheduled time fires twice, but @every counts from now.
func firstFire(row store.Schedule, expression, zone string, now time.Time) (time.Time, error) {
	if last := row.LastFiredAt.Time; last.After(now) && !counts(expression) {
		now = last
	}
	return nextFire(expression, zone, now)
}

func firstAfter(expression cron.Expression, zone *time.Location, from time.Time) (time.Time, error) {
	next, err := expression.Next(from, zone)
	if err == nil && next.UTC().Year() > 9999 { // databases cannot store later years
		err = cron.ErrNeverFires
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", ErrExpression, err)
	}
	return next, nil
}

// following returns the next fire time. If that has passed too, missed is true, and next is the
// first fire time after now.
func following(row store.Schedule) (next time.Time, missed bool, err error) {
	next, err = nextFire(row.CronExpression, row.CronTimezone, row.AvailableAfter.Time)
	if err != nil || next.After(row.Now.Time) {
		return next, false, err
	}
	next, err = nextFire(row.CronExpression, row.CronTimezone, row.Now.Time)
	return next, true, err
}
