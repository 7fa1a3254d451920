package cron_test

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/asyncmonolith/asyncmonolith-go/schedule/cron"
)

const layout = "2006-01-02 15:04:05 -07:00"

func mustParse(t testing.TB, expr string) cron.Expression {
	t.Helper()
	e, err := cron.Parse(expr)
	if err != nil {
		t.Fatalf("Parse(%q): %v", expr, err)
	}
	return e
}

func mustLoad(t testing.TB, zone string) *time.Location {
	t.Helper()
	loc, err := cron.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func mustTime(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(layout, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// occurrences checks that, from an instant on, an expression fires at exactly
// these instants, one after the other, and shows them with these offsets.
func occurrences(t *testing.T, expr, zone, from string, want ...string) {
	t.Helper()
	e, loc := mustParse(t, expr), mustLoad(t, zone)
	at := mustTime(t, from)
	for _, w := range want {
		next, err := e.Next(at, loc)
		if err != nil {
			t.Fatalf("%q after %s: %v, want %s", expr, at, err, w)
		}
		if got := next.Format(layout); got != w {
			t.Fatalf("%q in %s after %s: got %s, want %s", expr, zone, at.In(loc).Format(layout), got, w)
		}
		if !next.After(at) || next.Location() != loc {
			t.Fatalf("%q after %s: got %s, which is not later or not in %s", expr, at, next, zone)
		}
		at = next
	}
}

func TestNextFollowsCronosAcrossTransitions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, zone, expr, from string
		want                   []string
	}{
		// The table of reference/ecosystem.md, section 5.
		{
			"a fixed time in the spring gap fires when the gap ends",
			"America/New_York", "0 30 2 * * *", "2016-03-12 12:00:00 -05:00",
			[]string{"2016-03-13 03:00:00 -04:00", "2016-03-14 02:30:00 -04:00"},
		},
		{
			"a fixed time in the autumn overlap fires once, in the first pass",
			"America/New_York", "0 30 1 * * *", "2016-11-05 12:00:00 -04:00",
			[]string{"2016-11-06 01:30:00 -04:00", "2016-11-07 01:30:00 -05:00"},
		},
		{
			"an hourly expression fires in both passes of the overlap",
			"America/New_York", "0 0 * * * *", "2016-11-06 00:30:00 -04:00",
			[]string{"2016-11-06 01:00:00 -04:00", "2016-11-06 01:00:00 -05:00", "2016-11-06 02:00:00 -05:00"},
		},
		{
			"every 30 minutes fires in both passes of the overlap",
			"America/New_York", "0 */30 * * * *", "2016-11-06 00:59:59 -04:00",
			[]string{
				"2016-11-06 01:00:00 -04:00", "2016-11-06 01:30:00 -04:00",
				"2016-11-06 01:00:00 -05:00", "2016-11-06 01:30:00 -05:00",
				"2016-11-06 02:00:00 -05:00",
			},
		},
		{
			"midnight in a gap at midnight fires at one o'clock",
			"America/Sao_Paulo", "0 0 0 * * *", "2018-11-03 12:00:00 -03:00",
			[]string{"2018-11-04 01:00:00 -02:00", "2018-11-05 00:00:00 -02:00"},
		},
		{
			"a gap of 30 minutes ends half past",
			"Australia/Lord_Howe", "0 15 2 * * *", "2017-09-30 12:00:00 +10:30",
			[]string{"2017-10-01 02:30:00 +11:00", "2017-10-02 02:15:00 +11:00"},
		},

		// Gaps.
		{
			"several fixed times in one gap fire once",
			"America/New_York", "0 0,15,30,45 2 * * *", "2016-03-12 23:00:00 -05:00",
			[]string{"2016-03-13 03:00:00 -04:00", "2016-03-14 02:00:00 -04:00"},
		},
		{
			"a time in the gap does not double the one at its end",
			"America/New_York", "0 30 2,3 * * *", "2016-03-12 23:00:00 -05:00",
			[]string{"2016-03-13 03:00:00 -04:00", "2016-03-13 03:30:00 -04:00", "2016-03-14 02:30:00 -04:00"},
		},
		{
			"a time at the end of the gap absorbs the ones inside",
			"America/New_York", "0 0 2,3 * * *", "2016-03-12 23:00:00 -05:00",
			[]string{"2016-03-13 03:00:00 -04:00", "2016-03-14 02:00:00 -04:00"},
		},
		{
			"an interval that would have fired in the gap fires at its end",
			"America/New_York", "0 1-58 */2 * * *", "2016-03-13 01:59:00 -05:00",
			[]string{"2016-03-13 03:00:00 -04:00", "2016-03-13 04:01:00 -04:00"},
		},
		{
			"half past each hour fires at the end of the gap and half an hour later",
			"America/New_York", "0 30 * * 3 SUN#2", "2016-03-13 01:30:00 -05:00",
			[]string{"2016-03-13 03:00:00 -04:00", "2016-03-13 03:30:00 -04:00"},
		},
		{
			"an instant after the gap is not fired at again from there",
			"America/New_York", "0 30 2 * * *", "2016-03-13 03:00:00 -04:00",
			[]string{"2016-03-14 02:30:00 -04:00"},
		},
		{
			"a gap at midnight takes the last day of the month with it",
			"Asia/Amman", "0 30 0 L * *", "2017-03-30 23:59:59 +02:00",
			[]string{"2017-03-31 01:00:00 +03:00", "2017-04-30 00:30:00 +03:00"},
		},
		{
			"the times of a missing day fire once, when the next begins",
			"Pacific/Apia", "0 0 8,20 * * *", "2011-12-29 12:00:00 -10:00",
			[]string{"2011-12-29 20:00:00 -10:00", "2011-12-31 00:00:00 +14:00", "2011-12-31 08:00:00 +14:00"},
		},
		{
			"a date that a zone leaves out fires at the first instant after it",
			"Pacific/Apia", "0 0 12 30 12 *", "2011-06-01 00:00:00 -11:00",
			[]string{"2011-12-31 00:00:00 +14:00", "2012-12-30 12:00:00 +14:00"},
		},
		{
			"two hours may be missing",
			"Antarctica/Troll", "0 30 1,2 * * *", "2024-03-30 12:00:00 +00:00",
			[]string{"2024-03-31 03:00:00 +02:00", "2024-04-01 01:30:00 +02:00"},
		},

		// Overlaps.
		{
			"a list of fixed times fires in the first pass only",
			"America/New_York", "0 0,30 1 * * *", "2016-11-06 00:00:00 -04:00",
			[]string{"2016-11-06 01:00:00 -04:00", "2016-11-06 01:30:00 -04:00", "2016-11-07 01:00:00 -05:00"},
		},
		{
			"fixed times have nothing in the second pass, wherever one starts in it",
			"America/New_York", "59 59 1 * * *", "2016-11-06 01:00:00 -05:00",
			[]string{"2016-11-07 01:59:59 -05:00"},
		},
		{
			"the end of the overlap is not part of it",
			"America/New_York", "0 0 2 * * *", "2016-11-06 01:45:00 -04:00",
			[]string{"2016-11-06 02:00:00 -05:00", "2016-11-07 02:00:00 -05:00"},
		},
		{
			"stars in the day fields do not make an interval",
			"America/New_York", "0 0,30 1 6/1 1-12 0/1", "2016-11-06 01:20:00 -04:00",
			[]string{"2016-11-06 01:30:00 -04:00", "2016-11-07 01:00:00 -05:00"},
		},
		{
			"a range of minutes makes an interval",
			"America/New_York", "0 58-59 1 * * *", "2016-11-06 00:00:00 -04:00",
			[]string{
				"2016-11-06 01:58:00 -04:00", "2016-11-06 01:59:00 -04:00",
				"2016-11-06 01:58:00 -05:00", "2016-11-06 01:59:00 -05:00",
				"2016-11-07 01:58:00 -05:00",
			},
		},
		{
			"a step in the seconds makes an interval",
			"America/New_York", "*/30 0 1 * * *", "2016-11-06 01:00:00 -04:00",
			[]string{
				"2016-11-06 01:00:30 -04:00", "2016-11-06 01:00:00 -05:00",
				"2016-11-06 01:00:30 -05:00", "2016-11-07 01:00:00 -05:00",
			},
		},
		{
			"an overlap of 30 minutes repeats half an hour",
			"Australia/Lord_Howe", "0 */30 * * * *", "2017-04-02 01:00:00 +11:00",
			[]string{"2017-04-02 01:30:00 +11:00", "2017-04-02 01:30:00 +10:30", "2017-04-02 02:00:00 +10:30"},
		},
		{
			"an overlap before midnight repeats an hour of the day before",
			"America/Santiago", "0 30 23 * * *", "2017-05-13 23:59:59 -03:00",
			[]string{"2017-05-14 23:30:00 -04:00"},
		},
		{
			"an interval returns to the day before with the clock",
			"America/Sao_Paulo", "0 30 23 * * SAT/7", "2018-02-17 12:00:00 -02:00",
			[]string{"2018-02-17 23:30:00 -02:00", "2018-02-24 23:30:00 -03:00"},
		},
		{
			"the pass with the later offset is the second one, also if it is called standard",
			"Africa/Casablanca", "0 30 2 * * *", "2024-03-09 12:00:00 +01:00",
			[]string{"2024-03-10 02:30:00 +01:00", "2024-03-11 02:30:00 +00:00"},
		},
		{
			"winter time that counts as daylight saving is an overlap like any other",
			"Europe/Dublin", "0 30 1 * * *", "2023-10-28 12:00:00 +01:00",
			[]string{"2023-10-29 01:30:00 +01:00", "2023-10-30 01:30:00 +00:00"},
		},

		// Where Go's ZoneBounds is wrong (golang.org/issue/81583).
		{
			"31 December of a leap year beyond the table of transitions is an ordinary day",
			"America/New_York", "0 0 */12 * * *", "2096-12-30 18:00:00 -05:00",
			[]string{"2096-12-31 00:00:00 -05:00", "2096-12-31 12:00:00 -05:00", "2097-01-01 00:00:00 -05:00"},
		},
		{
			"summer time begins as usual in the year after that day",
			"America/New_York", "0 0 12 1 7 *", "2096-12-31 12:00:00 -05:00",
			[]string{"2097-07-01 12:00:00 -04:00"},
		},
		{
			"the overlap in front of that day is not gone back to",
			"America/New_York", "0 30 * 1 * *", "2096-12-31 12:00:00 -05:00",
			[]string{"2097-01-01 00:30:00 -05:00", "2097-01-01 01:30:00 -05:00"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			occurrences(t, tt.expr, tt.zone, tt.from, tt.want...)
		})
	}
}

func TestNextOfEveryIsElapsedTime(t *testing.T) {
	t.Parallel()
	occurrences(t, "@every 1h30m", "America/New_York", "2016-03-13 01:00:00 -05:00",
		"2016-03-13 03:30:00 -04:00", "2016-03-13 05:00:00 -04:00")
	occurrences(t, "@every 1h30m", "America/New_York", "2016-11-06 01:00:00 -04:00",
		"2016-11-06 01:30:00 -05:00", "2016-11-06 03:00:00 -05:00")

	from := time.Date(2024, 5, 1, 10, 0, 0, 123, time.UTC)
	next, err := mustParse(t, "@EVERY 90s").Next(from, time.UTC)
	if want := from.Add(90 * time.Second); err != nil || !next.Equal(want) {
		t.Errorf("@EVERY 90s after %s: got %s, %v, want %s", from, next, err, want)
	}
}

func TestLoadLocation(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"UTC", "Europe/Amsterdam", "Australia/Lord_Howe"} {
		if loc, err := cron.LoadLocation(name); err != nil || loc.String() != name {
			t.Errorf("LoadLocation(%q) = %v, %v", name, loc, err)
		}
	}
	tests := []struct{ name, want string }{
		{"", `cron: time zone "": an IANA name such as "Europe/Amsterdam" or "UTC" is allowed`},
		{"Local", `cron: time zone "Local": an IANA name such as "Europe/Amsterdam" or "UTC" is allowed, since Local differs from machine to machine`},
		{"europe/amsterdam", `cron: time zone "europe/amsterdam" is unknown: an IANA name such as "Europe/Amsterdam" or "UTC" is allowed, spelled like this`},
	}
	for _, tt := range tests {
		if _, err := cron.LoadLocation(tt.name); err == nil || err.Error() != tt.want {
			t.Errorf("LoadLocation(%q): got %v, want %s", tt.name, err, tt.want)
		}
	}
	for _, name := range []string{"../etc/passwd", "localtime", "posixrules", "right/Europe/Paris", "posix/Europe/Paris",
		"Europe//Paris", "./Europe/Paris"} {
		if loc, err := cron.LoadLocation(name); err == nil {
			t.Errorf("LoadLocation(%q): got %v, want an error", name, loc)
		}
	}
}
