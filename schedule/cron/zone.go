package cron

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"
)

// LoadLocation returns the zone with an IANA name such as "Europe/Amsterdam",
// or "UTC". It refuses names of more than 255 bytes, and what does not mean the
// same everywhere: "", "Local" and what a system keeps beside the zones of IANA
// (localtime, posixrules, and posix/ and right/, which counts leap seconds).
// This library embeds no time zones: where the system has none, as in a
// scratch image, the program must import time/tzdata, and the error says so. Its
// errors have no type of their own; package schedule wraps them in
// schedule.ErrExpression. LoadLocation is safe for concurrent use.
func LoadLocation(name string) (*time.Location, error) {
	const allowed = `an IANA name such as "Europe/Amsterdam" or "UTC" is allowed`
	if len(name) > maxZone {
		return nil, fmt.Errorf("cron: time zone %q...: up to %d bytes are allowed, not %d", name[:shown], maxZone, len(name))
	}
	switch name {
	case "":
		return nil, fmt.Errorf("cron: time zone %q: %s", name, allowed)
	case "Local":
		return nil, fmt.Errorf("cron: time zone %q: %s, since Local differs from machine to machine", name, allowed)
	}
	if top, _, _ := strings.Cut(name, "/"); slices.Contains([]string{"localtime", "posixrules", "posix", "right"}, top) || path.Clean(name) != name {
		return nil, fmt.Errorf("cron: time zone %q: %s, and this one is no name of IANA", name, allowed)
	}
	loc, err := time.LoadLocation(name)
	switch {
	case err == nil:
		return loc, nil
	case err.Error() != "unknown time zone "+name:
		return nil, fmt.Errorf("cron: time zone %q: %w", name, err)
	case !hasZones():
		return nil, fmt.Errorf("cron: time zone %q: there is no time zone database: import time/tzdata into the program or install the system's", name)
	}
	return nil, fmt.Errorf("cron: time zone %q: %s, in that spelling, and this one is unknown", name, allowed)
}

// hasZones distinguishes a misspelt name from a missing database: every database has
// this zone.
func hasZones() bool {
	_, err := time.LoadLocation("Europe/London")
	return err == nil
}

// A wall is a reading of the wall clock, date and time of day, as the number
// of seconds that it is after 1970-01-01 00:00:00 if no zone is considered.
// Walls are plain calendar arithmetic: a zone may show one twice, or never.
type wall int64

func wallOf(year int, month time.Month, day, hour, minute, second int) wall {
	return wall(time.Date(year, month, day, hour, minute, second, 0, time.UTC).Unix())
}

func (w wall) date() (year int, month time.Month, day int) {
	return time.Unix(int64(w), 0).UTC().Date()
}

func (w wall) clock() (hour, minute, second int) {
	return time.Unix(int64(w), 0).UTC().Clock()
}

// A period is a stretch of time in which a zone keeps one offset from UTC, so
// that its wall clock runs on without a jump.
type period struct {
	start  int64     // the first instant, in Unix seconds
	end    time.Time // the first instant after it; zero if there is none
	offset int64     // what the wall clock is ahead of UTC, in seconds
	stop   wall      // what the wall clock would show at the end
}

// periodFrom returns the period around start, in the zone of start, but for
// what is before start.
func periodFrom(start time.Time) period {
	_, offset := start.Zone()
	p := period{
		start:  start.Unix(),
		end:    endOfPeriod(start),
		offset: int64(offset),
		stop:   math.MaxInt64,
	}
	if !p.end.IsZero() {
		p.stop = p.wallAt(p.end.Unix())
	}
	return p
}

// next returns the period after p, which must have an end.
func (p period) next() period { return periodFrom(p.end) }

// wallAt returns what the wall clock shows at an instant of the period, or
// would show at any other.
func (p period) wallAt(unix int64) wall { return wall(unix + p.offset) }

// instantOf returns when the wall clock shows w in the period, which is at its
// start if the clock has just jumped over w.
func (p period) instantOf(w wall) time.Time {
	return time.Unix(max(p.start, int64(w)-p.offset), 0)
}

// endOfPeriod returns an instant after t until which the zone of t keeps its
// offset, or the zero Time if it always will.
func endOfPeriod(t time.Time) time.Time {
	_, end := t.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		// Where a zone follows a rule, ZoneBounds lets a period end with the
		// year, after 365 days: on 31 December of leap years the end is past
		// (golang.org/issue/81583). No offset changes before the true year's end.
		end = time.Date(t.UTC().Year()+1, time.January, 1, 0, 0, 0, 0, time.UTC).In(t.Location())
	}
	return end
}

// shownBefore returns the reading that the wall clock had come to, and did not
// show, when the period around t began. If that was an overlap, the readings
// before it are being repeated.
func shownBefore(t time.Time) wall {
	start, _ := t.ZoneBounds()
	if start.IsZero() {
		return math.MinInt64
	}
	_, offset := start.Add(-1).Zone()
	return wall(start.Unix() + int64(offset))
}
