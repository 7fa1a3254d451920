package cron_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// A spec is a random expression, and what it means, said without the parser:
// sets of values, and a predicate for days.
type spec struct {
	text                        string
	second, minute, hour, month [64]bool
	ofMonth, ofWeek             func(d date) bool
	interval                    bool
}

// A date is a day of the calendar, seen the way the two day fields look at it.
type date struct {
	year, month, day int
	length           int // of the month
	firstWeekday     int // of the month's first; 0 is Sunday
}

func (d date) weekday(day int) int { return (d.firstWeekday + day - 1) % 7 }

func dateOf(t time.Time) date {
	return date{
		year:         t.Year(),
		month:        int(t.Month()),
		day:          t.Day(),
		length:       time.Date(t.Year(), t.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day(),
		firstWeekday: int(time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC).Weekday()),
	}
}

func (s *spec) matchesDay(d date) bool {
	return s.month[d.month] && s.ofMonth(d) && s.ofWeek(d)
}

// randomSpec makes an expression that has a fair chance to fire around a
// reading of the wall clock. It has seconds other than 0 only on demand.
func randomSpec(r *rand.Rand, near time.Time, seconds bool) *spec {
	s := &spec{}
	fixed := r.IntN(2) == 0
	second := "0"
	if !seconds {
		s.second[0] = true
	} else {
		second = randomField(r, 0, 59, near.Second(), nil, fixed, &s.second)
	}
	minute := randomField(r, 0, 59, near.Minute(), nil, fixed, &s.minute)
	hour := randomField(r, 0, 23, near.Hour()+r.IntN(4)-2, nil, fixed, &s.hour)
	month := "*"
	fill(&s.month, 1, 12, 1, 1, 12)
	if r.IntN(6) == 0 {
		s.month = [64]bool{}
		month = randomField(r, 1, 12, int(near.Month()), []string{
			"", "jan", "Feb", "MAR", "apr", "May", "JUN", "jul", "Aug", "SEP", "oct", "Nov", "DEC",
		}, false, &s.month)
	}
	var ofMonth, ofWeek string
	ofMonth, s.ofMonth = randomDayOfMonth(r, near.Day())
	ofWeek, s.ofWeek = randomDayOfWeek(r, int(near.Weekday()))
	s.interval = strings.ContainsAny(second+minute+hour, "*/-")
	s.text = strings.Join([]string{second, minute, hour, ofMonth, month, ofWeek}, " ")
	if !seconds && r.IntN(2) == 0 {
		s.text = strings.TrimPrefix(s.text, "0 ")
	}
	return s
}

// fill walks from lo to hi on the circle from min to max, and sets every
// step-th value that it comes by.
func fill(set *[64]bool, lo, hi, step, min, max int) {
	for v, i := lo, 0; ; v, i = v+1, i+1 {
		if v > max {
			v = min
		}
		if i%step == 0 {
			set[v] = true
		}
		if v == hi {
			return
		}
	}
}

// randomField makes a field, of any form or of fixed values only, and its set.
func randomField(r *rand.Rand, min, max, near int, names []string, fixed bool, set *[64]bool) string {
	near = (near-min+max-min+1)%(max-min+1) + min
	value := func() (int, string) {
		v := min + r.IntN(max-min+1)
		if r.IntN(2) == 0 {
			v = near
		}
		if names != nil && r.IntN(2) == 0 {
			return v, names[v]
		}
		return v, fmt.Sprint(v)
	}
	term := func() string {
		lo, low := value()
		hi, high := value()
		step := 1 + r.IntN(max-min)
		form := r.IntN(5)
		if fixed {
			form = 4
		}
		switch form {
		case 0:
			fill(set, lo, hi, 1, min, max)
			return low + "-" + high
		case 1:
			fill(set, lo, hi, step, min, max)
			return fmt.Sprintf("%s-%s/%d", low, high, step)
		case 2:
			fill(set, lo, max, step, min, max)
			return fmt.Sprintf("%s/%d", low, step)
		default:
			set[lo] = true
			return low
		}
	}
	form := r.IntN(6)
	if fixed {
		form = 2 + r.IntN(4)
	}
	switch form {
	case 0:
		fill(set, min, max, 1, min, max)
		return "*"
	case 1:
		step := 1 + r.IntN(max-min)
		fill(set, min, max, step, min, max)
		return fmt.Sprintf("*/%d", step)
	case 2:
		return term() + "," + term()
	case 3:
		return term() + "," + term() + "," + term()
	default:
		return term()
	}
}

func randomDayOfMonth(r *rand.Rand, near int) (string, func(date) bool) {
	day := near
	if r.IntN(3) == 0 {
		day = 1 + r.IntN(31)
	}
	before := r.IntN(4) * r.IntN(4) * r.IntN(4)
	switch r.IntN(12) {
	case 0:
		return "L", func(d date) bool { return d.day == d.length }
	case 1:
		return fmt.Sprintf("L-%d", before), func(d date) bool { return d.day+before == d.length }
	case 2:
		return fmt.Sprintf("%dW", day), func(d date) bool { return day <= d.length && d.day == nearestWeekday(d, day) }
	case 3:
		return "LW", func(d date) bool { return d.day == nearestWeekday(d, d.length) }
	case 4:
		return fmt.Sprintf("l-%dw", before), func(d date) bool {
			return before < d.length && d.day == nearestWeekday(d, d.length-before)
		}
	case 5, 6:
		var set [64]bool
		text := randomField(r, 1, 31, near, nil, false, &set)
		return text, func(d date) bool { return set[d.day] }
	case 7:
		return "?", func(date) bool { return true }
	default:
		return "*", func(date) bool { return true }
	}
}

// nearestWeekday looks at days ever farther away, within the month.
func nearestWeekday(d date, day int) int {
	for far := 0; ; far++ {
		for _, c := range []int{day - far, day + far} {
			if weekday := d.weekday(c + 35); c >= 1 && c <= d.length && weekday >= 1 && weekday <= 5 {
				return c
			}
		}
	}
}

func randomDayOfWeek(r *rand.Rand, near int) (string, func(date) bool) {
	names := []string{"SUN", "mon", "Tue", "wED", "THU", "fri", "SAT"}
	name := func(weekday int) string {
		switch n := r.IntN(3); {
		case n == 0:
			return names[weekday]
		case n == 1 && weekday == 0:
			return "7"
		default:
			return fmt.Sprint(weekday)
		}
	}
	weekday := near
	if r.IntN(4) == 0 {
		weekday = r.IntN(7)
	}
	switch r.IntN(12) {
	case 0:
		return name(weekday) + "L", func(d date) bool {
			return d.weekday(d.day) == weekday && d.day+7 > d.length
		}
	case 1:
		nth := 1 + r.IntN(5)
		return fmt.Sprintf("%s#%d", name(weekday), nth), func(d date) bool {
			count := 0
			for day := 1; day <= d.day; day++ {
				if d.weekday(day) == weekday {
					count++
				}
			}
			return d.weekday(d.day) == weekday && count == nth
		}
	case 2, 3:
		from := r.IntN(7)
		step := 1 + r.IntN(3)
		var set [64]bool
		fill(&set, from, weekday, step, 0, 6)
		low := names[from] // not 0 or 7, with which 0-7 could be meant
		return fmt.Sprintf("%s-%s/%d", low, names[weekday], step), func(d date) bool { return set[d.weekday(d.day)] }
	case 4:
		other := r.IntN(7)
		return name(weekday) + "," + name(other), func(d date) bool {
			return d.weekday(d.day) == weekday || d.weekday(d.day) == other
		}
	case 5:
		return "?", func(date) bool { return true }
	default:
		return "*", func(date) bool { return true }
	}
}
