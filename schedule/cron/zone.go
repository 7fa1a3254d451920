package cron

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"
)

// LoadLocation returns the zone with an IANA name such as "Europe/Amsterdam", or "UTC". It refuses
// names of more than 255 bytes, and names that differ between systems: "", "Local", localtime,
// posixrules, and the directories posix and right. This library embeds no time zones. On a system
// without them, such as a scratch image, the program must import time/tzdata; the error mentions
// it. Package schedule wraps its errors in schedule.ErrExpression. LoadLocation is safe for
// concurrent use.
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
	if top, _, _ := strings.Cut(name, "/"); slices.Contains([]string{"localtime", "posixrules", "posix", "right"}, top) ||
		path.Clean(name) != name {
		return nil, fmt.Errorf("cron: time zone %q is not an IANA name: %s", name, allowed)
	}
	loc, err := time.LoadLocation(name)
	switch {
	case err == nil:
		return loc, nil
	case err.Error() != "unknown time zone "+name:
		return nil, fmt.Errorf("cron: time zone %q: %w", name, err)
	case !hasZones():
		return nil, fmt.Errorf(
			"cron: time zone %q: there is no time zone database: import time/tzdata into the program or install the system's", name,
		)
	}
	return nil, fmt.Errorf("cron: time zone %q is unknown: %s, spelled like this", name, allowed)
}

// hasZones distinguishes a misspelt name from a missing database: every database has this zone.
func hasZones() bool {
	_, err := time.LoadLocation("Europe/London")
	return err == nil
}

// A wall is a reading of the wall clock, date and time of day, in seconds since 1970-01-01 00:00:00
// without a zone. It is plain calendar arithmetic: a zone may show a reading twice, or never.
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

// A period is a span of time in which a zone keeps one offset from UTC, so its wall clock does not
// jump.
type period struct {
	start  int64     // the first instant, in Unix seconds
	end    time.Time // the first instant after it; zero if there is none
	offset int64     // wall clock minus UTC, in seconds
	stop   wall      // the wall clock's reading at the end, with this offset
}

// periodFrom returns the part of the period around start, in the zone of start, that begins at
// start.
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

// wallAt returns the wall clock's reading at an instant, with the offset of the period.
func (p period) wallAt(unix int64) wall { return wall(unix + p.offset) }

// instantOf returns when the wall clock shows w in the period. That is the start of the period if
// the clock has just jumped over w.
func (p period) instantOf(w wall) time.Time {
	return time.Unix(max(p.start, int64(w)-p.offset), 0)
}

// endOfPeriod returns the end of a span after t in which the zone of t keeps its offset, or the
// zero Time if the offset never changes.
func endOfPeriod(t time.Time) time.Time {
	_, end := t.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		// For a zone with a rule, ZoneBounds ends a period with the year, after 365 days. On 31
		// December of leap years that end has passed (golang.org/issue/81583). No offset changes
		// before the true end of the year.
		end = time.Date(t.UTC().Year()+1, time.January, 1, 0, 0, 0, 0, time.UTC).In(t.Location())
	}
	return end
}

// shownBefore returns the reading that the wall clock had reached, but not shown, when the period
// around t began. If that began an overlap, the readings before it are repeated.
func shownBefore(t time.Time) wall {
	start, _ := t.ZoneBounds()
	if start.IsZero() {
		return math.MinInt64
	}
	_, offset := start.Add(-1).Zone()
	return wall(start.Unix() + int64(offset))
}
