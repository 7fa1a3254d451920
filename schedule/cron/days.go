package cron

import "time"

// lastWeek is the dayRule.week of 5L, the last Friday.
const lastWeek = -1

// A dayRule holds the two day fields: which days of a month match.
type dayRule struct {
	listed  bits // the days of the month, as numbers; unused with last
	last    bool // L: counted from the end of the month
	before  int  // L-3: this many days before the last
	nearest bool // W: moved to the nearest weekday

	weekdays bits // 0 is Sunday
	week     int  // #2: the second such weekday of the month; lastWeek; or 0, any
}

// in returns the days of the month that match.
func (r dayRule) in(year int, month time.Month) bits {
	firstDay := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).Weekday()
	length := daysIn(year, month)
	whole := between(1, length)

	days := r.listed & whole
	if r.last {
		days = only(length-r.before) & whole
	}
	if r.nearest && days != 0 {
		days = only(nearestWeekday(days.first(), length, firstDay))
	}

	switch {
	case r.week == lastWeek:
		days &= between(length-6, length)
	case r.week > 0:
		days &= between(7*r.week-6, 7*r.week)
	}
	return days & daysOfWeek(r.weekdays, firstDay)
}

// daysOfWeek returns the days of a month that fall on one of the weekdays, given the weekday of the
// 1st. The result extends past the end of the month.
func daysOfWeek(weekdays bits, firstDay time.Weekday) bits {
	const everyWeek = 1 | 1<<7 | 1<<14 | 1<<21 | 1<<28
	week := (weekdays>>firstDay | weekdays<<(7-firstDay)) & 0x7f // bit 0 is the 1st
	return week * everyWeek << 1
}

// nearestWeekday moves a day on a weekend to the nearer of Friday and Monday, but never out of its
// month.
func nearestWeekday(day, length int, firstDay time.Weekday) int {
	switch weekday := (int(firstDay) + day - 1) % 7; {
	case weekday == int(time.Saturday) && day == 1:
		return 3
	case weekday == int(time.Saturday):
		return day - 1
	case weekday == int(time.Sunday) && day == length:
		return day - 2
	case weekday == int(time.Sunday):
		return day + 1
	default:
		return day
	}
}

func daysIn(year int, month time.Month) int {
	return time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
}
