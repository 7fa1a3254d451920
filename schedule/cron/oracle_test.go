package cron_test

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/schedule/cron"
)

// oracleSeed fixes the random expressions. Every failure prints it.
const oracleSeed = 20161106

// A reading is what the wall clock shows, or skips, at an instant.
type reading struct {
	at                   int64 // Unix seconds; of a skipped reading, those of the end of the gap
	date                 *date
	hour, minute, second int
	repeated             bool // the clock has shown it before
}

// A walk goes through time from an instant to another, and writes down what
// the wall clock shows at each step, and before it what the clock has skipped.
// It is used again and again, for the race detector makes memory dear.
type walk struct {
	loc      *time.Location
	readings []reading
	seen     map[int64]bool
	dates    map[int64]*date // by the wall clock's midnight
}

func (w *walk) wallAt(at int64) int64 {
	_, offset := time.Unix(at, 0).In(w.loc).Zone()
	return at + int64(offset)
}

func (w *walk) add(at, wall int64) {
	const minute, hour, day = 60, 60 * 60, 24 * 60 * 60
	clock := (wall%day + day) % day
	midnight := wall - clock
	if w.dates[midnight] == nil {
		d := dateOf(time.Unix(midnight, 0).UTC())
		w.dates[midnight] = &d
	}
	w.readings = append(w.readings, reading{
		at:       at,
		date:     w.dates[midnight],
		hour:     int(clock / hour),
		minute:   int(clock % hour / minute),
		second:   int(clock % minute),
		repeated: w.seen[wall],
	})
	w.seen[wall] = true
}

func (w *walk) run(from, to, step int64) []reading {
	w.readings = w.readings[:0]
	clear(w.seen)
	last := w.wallAt(from - step)
	for at := from; at <= to; at += step {
		wall := w.wallAt(at)
		for skipped := last + step; skipped < wall; skipped += step {
			w.add(at, skipped)
		}
		w.add(at, wall)
		last = wall
	}
	return w.readings
}

// occurrencesIn applies the rules of Cronos, one by one, to each reading.
func (s *spec) occurrencesIn(all []reading) []int64 {
	var fires []int64
	var today *date
	var matchesToday bool
	for i := range all {
		w := &all[i]
		if w.date != today {
			today, matchesToday = w.date, s.matchesDay(*w.date)
		}
		if !matchesToday || !s.hour[w.hour] || !s.minute[w.minute] || !s.second[w.second] {
			continue
		}
		if w.repeated && !s.interval {
			continue // fixed times: the first pass only
		}
		if n := len(fires); n > 0 && fires[n-1] == w.at {
			continue // a gap: once at its end
		}
		fires = append(fires, w.at)
	}
	return fires
}

// A window is a stretch of time around an instant of interest.
type window struct {
	at, from, to int64
}

// windows finds every change of a zone's offset from 2000 to 2040, by looking,
// and adds the last days of leap years, about which ZoneBounds errs. Wide ones
// are for steps of a minute, narrow ones, around the gap or overlap alone, for
// steps of a second.
func windows(loc *time.Location) (wide, narrow []window) {
	const hour = 60 * 60
	offsetAt := func(at int64) int64 {
		_, offset := time.Unix(at, 0).In(loc).Zone()
		return int64(offset)
	}
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	end := time.Date(2041, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for at := begin; at < end; at += 3 * hour {
		shift := offsetAt(at+3*hour) - offsetAt(at)
		if shift == 0 {
			continue
		}
		n := sort.Search(3*hour, func(n int) bool { return offsetAt(at+int64(n)) != offsetAt(at) })
		change := at + int64(n)
		wide = append(wide, window{change, change - 30*hour, change + 30*hour})
		around := min(max(shift, -shift), 3*hour) + hour/4
		narrow = append(narrow, window{change, change - around, change + around})
	}
	for year := 2000; year <= 2040; year += 4 {
		at := time.Date(year, 12, 31, 0, 0, 0, 0, time.UTC).Unix()
		wide = append(wide, window{at, at - 30*hour, at + 30*hour})
	}
	return wide, narrow
}

// TestNextAgreesWithAWalkThroughTime compares Next, around every transition of
// its zones, with a walk that visits every minute or second.
func TestNextAgreesWithAWalkThroughTime(t *testing.T) {
	t.Parallel()
	zones := []string{
		"America/New_York", "Europe/London", "Australia/Lord_Howe", "America/Sao_Paulo",
		"Africa/Casablanca", "Asia/Kathmandu", "Pacific/Apia", "Europe/Amsterdam",
		"Asia/Tehran", "Antarctica/Troll", "America/Caracas", "Asia/Gaza", "Europe/Dublin",
	}
	for _, zone := range zones {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			loc := mustLoad(t, zone)
			hash := fnv.New64a()
			hash.Write([]byte(zone))
			r := rand.New(rand.NewPCG(oracleSeed, hash.Sum64()))

			wide, narrow := windows(loc)
			walk := &walk{loc: loc, seen: make(map[int64]bool), dates: make(map[int64]*date)}
			for _, w := range wide {
				compare(t, r, walk, w, 60, 20)
			}
			for _, w := range narrow {
				compare(t, r, walk, w, 1, 10)
			}
			t.Logf("%d transitions", len(narrow))
		})
	}
}

// compare tries random expressions in a window.
func compare(t *testing.T, r *rand.Rand, walk *walk, w window, step int64, specs int) {
	t.Helper()
	loc := walk.loc
	all := walk.run(w.from, w.to, step)
	for range specs {
		near := all[r.IntN(len(all))]
		s := randomSpec(r, time.Date(near.date.year, time.Month(near.date.month), near.date.day,
			near.hour, near.minute, near.second, 0, time.UTC), step == 1)
		e, err := cron.Parse(s.text)
		if errors.Is(err, cron.ErrNeverFires) {
			continue // TestNextAgreesWithAWalkOverTheCalendar sees whether that is so
		}
		if err != nil {
			t.Fatalf("seed %d: %v", oracleSeed, err)
		}
		want := s.occurrencesIn(all)
		check := func(from time.Time) time.Time {
			got, err := e.Next(from, loc)
			if err != nil {
				t.Fatalf("seed %d: %q after %s: %v", oracleSeed, s.text, from.In(loc), err)
			}
			i := sort.Search(len(want), func(i int) bool { return time.Unix(want[i], 0).After(from) })
			switch {
			case !got.After(from):
				t.Fatalf("seed %d: %q after %s: got %s, which is not later", oracleSeed, s.text, from.In(loc), got)
			case i < len(want) && got.Unix() != want[i]:
				t.Fatalf("seed %d: %q after %s: got %s, want %s", oracleSeed, s.text, from.In(loc), got, time.Unix(want[i], 0).In(loc))
			case i == len(want) && got.Unix() <= w.to:
				t.Fatalf("seed %d: %q after %s: got %s, want nothing in the window", oracleSeed, s.text, from.In(loc), got)
			}
			return got
		}
		// A chain over the transition, and leaps into anywhere, also between
		// two seconds.
		from := time.Unix(w.at-min(w.at-w.from, r.Int64N(2*60*60)), 0)
		for range 40 {
			if from = check(from); from.Unix() >= w.to {
				break
			}
		}
		for range 10 {
			check(time.Unix(w.from+r.Int64N(w.to-w.from), r.Int64N(2)*r.Int64N(1e9)))
			check(time.Unix(w.at+r.Int64N(min(w.to-w.at, 2*60*60)), 0))
		}
	}
}

// TestNextAgreesWithAWalkOverTheCalendar compares the days that Next chooses,
// in a zone without transitions, with a walk over all days of 41 years. That
// is long enough to believe the walk if it finds none, and so ErrNeverFires.
func TestNextAgreesWithAWalkOverTheCalendar(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(oracleSeed, 0))
	never := 0
	for range 1500 {
		from := time.Date(2000+r.IntN(200), time.January, 1+r.IntN(366), 0, 0, 0, 0, time.UTC)
		s := &spec{}
		monthText := randomField(r, 1, 12, 2, nil, false, &s.month)
		var ofMonth, ofWeek string
		ofMonth, s.ofMonth = randomDayOfMonth(r, 29+r.IntN(3))
		ofWeek, s.ofWeek = randomDayOfWeek(r, r.IntN(7))
		s.text = fmt.Sprintf("0 0 0 %s %s %s", ofMonth, monthText, ofWeek)

		var want time.Time
		for day := from.AddDate(0, 0, 1); day.Year() <= from.Year()+41; day = day.AddDate(0, 0, 1) {
			if s.matchesDay(dateOf(day)) {
				want = day
				break
			}
		}
		e, err := cron.Parse(s.text)
		if want.IsZero() {
			never++
			if !errors.Is(err, cron.ErrNeverFires) {
				t.Fatalf("seed %d: Parse(%q): got %v, want ErrNeverFires", oracleSeed, s.text, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v, but it fires at %s", oracleSeed, err, want)
		}
		if got, err := e.Next(from, time.UTC); err != nil || !got.Equal(want) {
			t.Fatalf("seed %d: %q after %s: got %s, %v, want %s", oracleSeed, s.text, from, got, err, want)
		}
	}
	if never == 0 {
		t.Error("no expression was unreachable")
	}
}

// TestNextMissesNoDayOfACentury goes beyond the tables of the zone database,
// where ZoneBounds has its bug, and where a wrong step from one period to the
// next would lose days, or repeat them, or never end.
func TestNextMissesNoDayOfACentury(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"America/New_York", "Australia/Lord_Howe", "Antarctica/Troll", "Asia/Gaza"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			loc := mustLoad(t, zone)
			fixed, interval := mustParse(t, "0 30 12 * * *"), mustParse(t, "0 30-30 12 * * *")
			at := time.Date(2000, 1, 1, 0, 0, 0, 0, loc)
			for day := time.Date(2000, 1, 1, 12, 30, 0, 0, time.UTC); day.Year() < 2101; day = day.AddDate(0, 0, 1) {
				next, err := fixed.Next(at, loc)
				other, err2 := interval.Next(at, loc)
				if err != nil || err2 != nil || !next.Equal(other) || !slices.Equal(clockOf(next), clockOf(day)) {
					t.Fatalf("after %s: got %s, %v and %s, %v, want %s", at, next, err, other, err2, day)
				}
				at = next
			}
		})
	}
}

func clockOf(t time.Time) []int {
	return []int{t.Year(), t.YearDay(), t.Hour(), t.Minute(), t.Second()}
}
