package cron

import (
	"cmp"
	"time"
)

const (
	// searchYears bounds the search for a day. The calendar has 14 kinds of year (leap or not, and
	// the weekday of 1 January), and each recurs within 40 years. A day without a match by then
	// never matches.
	searchYears = 100

	// The calendar ends with the last year of four digits, as in RFC 3339.
	lastYear   = 9999
	lastSecond = 253402300799 // 9999-12-31 23:59:59 UTC, in Unix time
)

// An Expression is a parsed cron expression. It is an immutable, comparable value, and safe for
// concurrent use. Two are equal if they have the same source text. The zero Expression has the text
// "" and never fires: Next returns ErrNeverFires.
type Expression struct {
	text  string
	every time.Duration // of @every; 0 if the fields below decide

	second, minute, hour bits
	day                  dayRule
	month                bits

	// interval marks an expression that means "every so often" rather than a list of times. It
	// keeps firing while an hour is repeated.
	interval bool
}

// String returns the source text passed to Parse.
func (e Expression) String() string { return e.text }

// Next returns the first occurrence strictly after from, in the zone loc; nil is UTC. It is a whole
// second, except that @every adds its duration to from unchanged. The zone of from does not matter.
// A from before the year 1 counts as the beginning of the year 1. Next returns ErrNeverFires if
// there is no occurrence before the end of the year 9999.
func (e Expression) Next(from time.Time, loc *time.Location) (time.Time, error) {
	loc = cmp.Or(loc, time.UTC)
	if from.Before(time.Time{}) {
		from = time.Time{}
	}
	if from.Unix() > lastSecond {
		return time.Time{}, ErrNeverFires
	}
	if e.every > 0 {
		next := from.Add(e.every).In(loc)
		if next.Year() > lastYear {
			return time.Time{}, ErrNeverFires
		}
		return next, nil
	}
	return e.nextOnCalendar(from.In(loc))
}

// nextOnCalendar searches the zone's periods of constant offset, in which the wall clock runs like
// time itself, for the first match.
func (e Expression) nextOnCalendar(from time.Time) (time.Time, error) {
	p := periodFrom(from)
	cursor := p.wallAt(from.Unix()) + 1
	if !e.interval {
		// Fixed times have fired in the first pass of an overlap. They wait until the wall clock is
		// back at the end of that pass.
		cursor = max(cursor, shownBefore(from))
	}
	for {
		match, ok := e.search(cursor)
		if !ok {
			return time.Time{}, ErrNeverFires
		}
		if match < p.stop {
			return p.instantOf(match).In(from.Location()), nil
		}
		// The wall clock reaches match in a later period, or jumps over it: the search need not go
		// back. Only intervals follow a wall clock that is set back.
		cursor, p = match, p.next()
		if e.interval {
			cursor = min(cursor, p.wallAt(p.start))
		}
	}
}

// search returns the first wall-clock reading at or after from that matches the fields.
func (e Expression) search(from wall) (wall, bool) {
	year, month, day := from.date()
	if e.month.has(int(month)) && e.day.in(year, month).has(day) {
		if h, m, s, ok := e.searchClock(from.clock()); ok {
			return wallOf(year, month, day, h, m, s), true
		}
	}
	year, month, day, ok := e.searchDay(year, month, day+1)
	if !ok {
		return 0, false
	}
	return wallOf(year, month, day, e.hour.first(), e.minute.first(), e.second.first()), true
}

// searchClock returns the first matching time of day at or after h:m:s.
func (e Expression) searchClock(h, m, s int) (hour, minute, second int, ok bool) {
	if e.hour.has(h) {
		if e.minute.has(m) {
			if second, ok = e.second.from(s); ok {
				return h, m, second, true
			}
		}
		if minute, ok = e.minute.from(m + 1); ok {
			return h, minute, e.second.first(), true
		}
	}
	hour, ok = e.hour.from(h + 1)
	return hour, e.minute.first(), e.second.first(), ok
}

// searchDay returns the first matching day at or after the given one. The given day may be one past
// the end of the month.
func (e Expression) searchDay(year int, month time.Month, day int) (int, time.Month, int, bool) {
	for end := min(year+searchYears, lastYear); year <= end; year++ {
		for ; month <= time.December; month++ {
			if e.month.has(int(month)) {
				if match, ok := e.day.in(year, month).from(day); ok {
					return year, month, match, true
				}
			}
			day = 1
		}
		month = time.January
	}
	return 0, 0, 0, false
}
