package cron_test

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/schedule/cron"
)

func TestParseSyntax(t *testing.T) {
	t.Parallel()
	const z = " +00:00"
	tests := []struct {
		expr, from string
		want       []string // like from in UTC, one after the other
	}{
		// Six fields, five, and white space.
		{"15 30 4 * * *", "2024-01-01 00:00:00", []string{"2024-01-01 04:30:15", "2024-01-02 04:30:15"}},
		{"30 4 * * *", "2024-01-01 00:00:00", []string{"2024-01-01 04:30:00", "2024-01-02 04:30:00"}},
		{" \t30  4 *\t* *\n", "2024-01-01 00:00:00", []string{"2024-01-01 04:30:00"}},

		// Lists, ranges, steps.
		{"1,5,9 0 0 * * *", "2024-01-01 00:00:00",
			[]string{"2024-01-01 00:00:01", "2024-01-01 00:00:05", "2024-01-01 00:00:09", "2024-01-02 00:00:01"}},
		{"0 58-59 0 * * *", "2024-01-01 00:00:00", []string{"2024-01-01 00:58:00", "2024-01-01 00:59:00", "2024-01-02 00:58:00"}},
		{"0 0 23-01 * * *", "2024-01-01 00:30:00",
			[]string{"2024-01-01 01:00:00", "2024-01-01 23:00:00", "2024-01-02 00:00:00", "2024-01-02 01:00:00"}},
		{"0 50-10/10 0 * * *", "2024-01-01 00:00:00", []string{"2024-01-01 00:10:00", "2024-01-01 00:50:00", "2024-01-02 00:00:00"}},
		{"0 */25 0 * * *", "2024-01-01 00:00:00", []string{"2024-01-01 00:25:00", "2024-01-01 00:50:00", "2024-01-02 00:00:00"}},
		{"0 40/10 0 * * *", "2024-01-01 00:00:00", []string{"2024-01-01 00:40:00", "2024-01-01 00:50:00", "2024-01-02 00:40:00"}},
		{"0 5-40/15 0 * * *", "2024-01-01 00:00:00",
			[]string{"2024-01-01 00:05:00", "2024-01-01 00:20:00", "2024-01-01 00:35:00", "2024-01-02 00:05:00"}},
		{"0 57,20/20,32-34/2 0 * * *", "2024-01-01 00:00:00",
			[]string{"2024-01-01 00:20:00", "2024-01-01 00:32:00", "2024-01-01 00:34:00", "2024-01-01 00:40:00", "2024-01-01 00:57:00"}},
		{"0 0 0 30-2 * *", "2024-02-01 00:00:00",
			[]string{"2024-02-02 00:00:00", "2024-03-01 00:00:00", "2024-03-02 00:00:00", "2024-03-30 00:00:00"}},

		// Months and weekdays.
		{"0 0 0 1 NOV-feb *", "2024-02-01 00:00:00",
			[]string{"2024-11-01 00:00:00", "2024-12-01 00:00:00", "2025-01-01 00:00:00", "2025-02-01 00:00:00", "2025-11-01 00:00:00"}},
		{"0 0 0 1 Apr,8/3 *", "2024-02-01 00:00:00",
			[]string{"2024-04-01 00:00:00", "2024-08-01 00:00:00", "2024-11-01 00:00:00", "2025-04-01 00:00:00"}},
		{"0 0 0 * * FRI-mon", "2024-01-01 00:00:00",
			[]string{"2024-01-05 00:00:00", "2024-01-06 00:00:00", "2024-01-07 00:00:00", "2024-01-08 00:00:00", "2024-01-12 00:00:00"}},
		{"0 0 0 ? * 0", "2024-01-01 00:00:00", []string{"2024-01-07 00:00:00", "2024-01-14 00:00:00"}},
		{"0 0 0 ? * 7", "2024-01-01 00:00:00", []string{"2024-01-07 00:00:00", "2024-01-14 00:00:00"}},
		{"0 0 0 * * 6-7", "2024-01-01 00:00:00", []string{"2024-01-06 00:00:00", "2024-01-07 00:00:00", "2024-01-13 00:00:00"}},
		{"0 0 0 * * 7-1", "2024-01-01 00:00:00", []string{"2024-01-07 00:00:00", "2024-01-08 00:00:00", "2024-01-14 00:00:00"}},
		{"0 0 0 * * SAT-TUE/2", "2024-01-01 00:00:00", []string{"2024-01-06 00:00:00", "2024-01-08 00:00:00", "2024-01-13 00:00:00"}},
		{"0 0 0 * * */5", "2024-01-01 00:00:00", []string{"2024-01-05 00:00:00", "2024-01-07 00:00:00", "2024-01-12 00:00:00"}},

		// Both day fields must match.
		{"0 0 0 13 * FRI", "2024-01-01 00:00:00", []string{"2024-09-13 00:00:00", "2024-12-13 00:00:00", "2025-06-13 00:00:00"}},
		{"* * * ? * ?", "2024-01-01 00:00:00", []string{"2024-01-01 00:00:01", "2024-01-01 00:00:02"}},
		{"0 0 0 ?/10 * *", "2024-01-01 00:00:00", []string{"2024-01-11 00:00:00", "2024-01-21 00:00:00"}},
		{"0 0 0 ? 11 ?", "2024-11-29 00:00:00", []string{"2024-11-30 00:00:00", "2025-11-01 00:00:00"}},

		// L.
		{"0 0 0 L * *", "2024-02-01 00:00:00", []string{"2024-02-29 00:00:00", "2024-03-31 00:00:00", "2024-04-30 00:00:00"}},
		{"0 0 0 l-3 * *", "2023-02-01 00:00:00", []string{"2023-02-25 00:00:00", "2023-03-28 00:00:00"}},
		{"0 0 0 L-30 * *", "2024-02-01 00:00:00", []string{"2024-03-01 00:00:00", "2024-05-01 00:00:00"}},
		{"0 0 0 L 2 MON", "2024-01-01 00:00:00", []string{"2033-02-28 00:00:00", "2039-02-28 00:00:00"}},
		{"0 0 0 * * FRIL", "2024-01-01 00:00:00", []string{"2024-01-26 00:00:00", "2024-02-23 00:00:00", "2024-03-29 00:00:00"}},
		{"0 0 0 * * 6l", "2024-01-01 00:00:00", []string{"2024-01-27 00:00:00", "2024-02-24 00:00:00", "2024-03-30 00:00:00"}},
		{"0 0 0 * * 7L", "2024-01-01 00:00:00", []string{"2024-01-28 00:00:00", "2024-02-25 00:00:00", "2024-03-31 00:00:00"}},

		// W: April 2017 begins on a Saturday and ends on a Sunday.
		{"0 0 0 1W * *", "2017-03-31 00:00:00", []string{"2017-04-03 00:00:00", "2017-05-01 00:00:00"}},
		{"0 0 0 2W * *", "2017-03-31 00:00:00", []string{"2017-04-03 00:00:00", "2017-05-02 00:00:00"}},
		{"0 0 0 8w * *", "2017-03-31 00:00:00", []string{"2017-04-07 00:00:00", "2017-05-08 00:00:00"}},
		{"0 0 0 9W * *", "2017-03-31 00:00:00", []string{"2017-04-10 00:00:00", "2017-05-09 00:00:00"}},
		{"0 0 0 30W * *", "2017-04-01 00:00:00", []string{"2017-04-28 00:00:00", "2017-05-30 00:00:00"}},
		{"0 0 0 31W * *", "2017-04-01 00:00:00", []string{"2017-05-31 00:00:00", "2017-07-31 00:00:00"}},
		{"0 0 0 LW * *", "2017-04-01 00:00:00", []string{"2017-04-28 00:00:00", "2017-05-31 00:00:00"}},
		{"0 0 0 L-1W * *", "2016-02-01 00:00:00", []string{"2016-02-29 00:00:00", "2016-03-30 00:00:00"}},
		{"0 0 0 L-28W 2 *", "2020-02-01 00:00:00", []string{"2020-02-03 00:00:00", "2024-02-01 00:00:00"}},
		{"0 30 10 1W * *", "2017-04-03 12:00:00", []string{"2017-05-01 10:30:00"}},
		{"0 0 0 27W * 1#4", "2017-03-10 00:00:00", []string{"2017-03-27 00:00:00", "2017-08-28 00:00:00"}},

		// #.
		{"0 0 0 * * FRI#2", "2024-01-01 00:00:00", []string{"2024-01-12 00:00:00", "2024-02-09 00:00:00"}},
		{"0 0 0 * * 7#1", "2024-01-01 00:00:00", []string{"2024-01-07 00:00:00", "2024-02-04 00:00:00"}},
		{"0 0 0 * * tue#5", "2017-02-01 00:00:00", []string{"2017-05-30 00:00:00", "2017-08-29 00:00:00"}},

		// Macros.
		{"@yearly", "2024-02-03 04:05:06", []string{"2025-01-01 00:00:00", "2026-01-01 00:00:00"}},
		{"@annually", "2024-02-03 04:05:06", []string{"2025-01-01 00:00:00"}},
		{"@monthly", "2024-02-03 04:05:06", []string{"2024-03-01 00:00:00", "2024-04-01 00:00:00"}},
		{"@weekly", "2024-02-03 04:05:06", []string{"2024-02-04 00:00:00", "2024-02-11 00:00:00"}},
		{"@daily", "2024-02-03 04:05:06", []string{"2024-02-04 00:00:00", "2024-02-05 00:00:00"}},
		{"@Midnight", "2024-02-03 04:05:06", []string{"2024-02-04 00:00:00"}},
		{" @hourly ", "2024-02-03 04:05:06", []string{"2024-02-03 05:00:00", "2024-02-03 06:00:00"}},
		{"@every_minute", "2024-02-03 04:05:06", []string{"2024-02-03 04:06:00", "2024-02-03 04:07:00"}},
		{"@EVERY_SECOND", "2024-02-03 04:05:06", []string{"2024-02-03 04:05:07", "2024-02-03 04:05:08"}},
		{"@every  1.5h", "2024-02-03 04:05:06", []string{"2024-02-03 05:35:06", "2024-02-03 07:05:06"}},
	}
	for _, tt := range tests {
		t.Run(tt.expr, func(t *testing.T) {
			t.Parallel()
			for i := range tt.want {
				tt.want[i] += z
			}
			occurrences(t, tt.expr, "UTC", tt.from+z, tt.want...)
			if got := mustParse(t, tt.expr).String(); got != tt.expr {
				t.Errorf("String() = %q, want %q", got, tt.expr)
			}
		})
	}
}

func TestParseKnowsEveryName(t *testing.T) {
	t.Parallel()
	from := time.Date(2023, 12, 31, 23, 0, 0, 0, time.UTC)
	for m := time.January; m <= time.December; m++ {
		expr := fmt.Sprintf("0 0 0 1 %s *", m.String()[:3])
		if next, err := mustParse(t, expr).Next(from, time.UTC); err != nil || next.Month() != m || next.Year() != 2024 {
			t.Errorf("%q: got %s, %v", expr, next, err)
		}
	}
	for d := time.Sunday; d <= time.Saturday; d++ {
		expr := fmt.Sprintf("0 0 0 * * %s", strings.ToLower(d.String()[:3]))
		if next, err := mustParse(t, expr).Next(from, time.UTC); err != nil || next.Weekday() != d || next.Sub(from) > 8*24*time.Hour {
			t.Errorf("%q: got %s, %v", expr, next, err)
		}
	}
}

func TestParseErrorsTellFieldValueAndAllowed(t *testing.T) {
	t.Parallel()
	const (
		dayOfMonth = "1-31 (or L, L-3, LW, 15W)"
		dayOfWeek  = "0-7 or SUN-SAT (or FRIL, FRI#2)"
		macros     = "@yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, " +
			"@every_minute, @every_second or @every with a duration"
		every  = "@every with whole seconds, at least 1s (@every 1h30m)"
		fields = "5 or 6 fields or a macro"
	)
	tests := []struct{ expr, field, value, allowed string }{
		{"61 * * * *", "minute", "61", "0-59"},
		{"60 * * * * *", "second", "60", "0-59"},
		{"* -1 * * * *", "minute", "-1", "0-59 in a list or range"},
		{"* +1 * * * *", "minute", "+1", "0-59"},
		{"* 1k * * * *", "minute", "1k", "0-59"},
		{"* 0x1 * * * *", "minute", "0x1", "0-59"},
		{"* 99999999999999999999 * * * *", "minute", "99999999999999999999", "0-59"},
		{"* 5,61 * * * *", "minute", "61", "0-59 in a list or range"},
		{"* 5,*/5 * * * *", "minute", "*", "0-59 in a list or range"},
		{"* *,5 * * * *", "minute", "*", "0-59 in a list or range"},
		{"* *-5 * * * *", "minute", "*", "0-59 in a list or range"},
		{"* , * * * *", "minute", ",", "0-59 in a list or range"},
		{"* 5- * * * *", "minute", "5-", "0-59 in a list or range"},
		{"* 5-6-7 * * * *", "minute", "6-7", "0-59 in a list or range"},
		{"* / * * * *", "minute", "/", "a step of 1-59"},
		{"* 5/ * * * *", "minute", "5/", "a step of 1-59"},
		{"* */0 * * * *", "minute", "*/0", "a step of 1-59"},
		{"* */60 * * * *", "minute", "*/60", "a step of 1-59"},
		{"* 1-9/2/2 * * * *", "minute", "1-9/2/2", "a step of 1-59"},
		{"* ?,1 * * * *", "minute", "?", "0-59 in a list or range"},
		{"? * * * * *", "second", "?", "0-59"},
		{"0 ?/20 * * * *", "minute", "?", "0-59 in a list or range"},
		{"0 12 * * ? *", "month", "?", "1-12 or JAN-DEC"}, // AWS's every day at 12:00
		{"* L * * * *", "minute", "L", "0-59"},
		{"* * 24 * * *", "hour", "24", "0-23"},
		{"* * 1/24 * * *", "hour", "1/24", "a step of 1-23"},
		{"* * 9-24 * * *", "hour", "24", "0-23 in a list or range"},
		{"* * * 0 * *", "day-of-month", "0", dayOfMonth},
		{"* * * 32 * *", "day-of-month", "32", dayOfMonth},
		{"* * * MON * *", "day-of-month", "MON", dayOfMonth},
		{"* * * ?,1 * *", "day-of-month", "?", "1-31 in a list or range"},
		{"* * * 1,L * *", "day-of-month", "L", "1-31 in a list or range"},
		{"* * * L-31 * *", "day-of-month", "L-31", "L-0 to L-30"},
		{"* * * L3 * *", "day-of-month", "L3", "L-0 to L-30"},
		{"* * * L- * *", "day-of-month", "L-", "L-0 to L-30"},
		{"* * * L,1 * *", "day-of-month", "L,1", "L-0 to L-30"},
		{"* * * W * *", "day-of-month", "W", "1W-31W or LW"},
		{"* * * 32W * *", "day-of-month", "32W", "1W-31W or LW"},
		{"* * * 1-2w * *", "day-of-month", "1-2w", "1W-31W or LW"},
		{"* * * 1,2W * *", "day-of-month", "1,2W", "1W-31W or LW"},
		{"* * * * 0 *", "month", "0", "1-12 or JAN-DEC"},
		{"* * * * 13 *", "month", "13", "1-12 or JAN-DEC"},
		{"* * * * JANUARY *", "month", "JANUARY", "1-12 or JAN-DEC"},
		{"* * * * MON *", "month", "MON", "1-12 or JAN-DEC"},
		{"* * * * ANF *", "month", "ANF", "1-12 or JAN-DEC"},
		{"* * * * JAN-13 *", "month", "13", "1-12 or JAN-DEC in a list or range"},
		{"* * * * * 8", "day-of-week", "8", dayOfWeek},
		{"* * * * * FRIDAY", "day-of-week", "FRIDAY", dayOfWeek},
		{"* * * * * UNM", "day-of-week", "UNM", dayOfWeek},
		{"* * * * * L", "day-of-week", "L", "one weekday, 0-7 or SUN-SAT, before # or L"},
		{"* * * * * 8L", "day-of-week", "8L", "one weekday, 0-7 or SUN-SAT, before # or L"},
		{"* * * * * 1,FRIL", "day-of-week", "1,FRIL", "one weekday, 0-7 or SUN-SAT, before # or L"},
		{"* * * * * 1-5#2", "day-of-week", "1-5#2", "one weekday, 0-7 or SUN-SAT, before # or L"},
		{"* * * * * FRI#0", "day-of-week", "FRI#0", "#1 to #5"},
		{"* * * * * FRI#6", "day-of-week", "FRI#6", "#1 to #5"},
		{"* * * * * FRI#2,MON", "day-of-week", "FRI#2,MON", "#1 to #5"},
		{"* * * * * FRI/8", "day-of-week", "FRI/8", "a step of 1-7"},

		{"", "", "", fields},
		{"   ", "", "   ", fields},
		{"* * * *", "", "* * * *", fields},
		{"* * * * * * *", "", "* * * * * * *", fields},
		{"TZ=UTC", "", "TZ=UTC", "an expression without TZ= (pass the time zone separately)"},
		{"TZ=UTC 0 9 * * *", "", "TZ=UTC 0 9 * * *", "an expression without TZ= (pass the time zone separately)"},
		{"CRON_TZ=UTC 0 9 * * *", "", "CRON_TZ=UTC 0 9 * * *", "an expression without CRON_TZ= (pass the time zone separately)"},
		{"@hourly * * *", "", "@hourly * * *", macros},
		{"@", "", "@", macros},
		{"@fortnightly", "", "@fortnightly", macros},
		{"@every", "", "@every", every},
		{"@every 1h 30m", "", "@every 1h 30m", every},
		{"@every_day", "", "@every_day", macros},
		{"@every soon", "", "@every soon", every},
		{"@every 0s", "", "@every 0s", every},
		{"@every -1h", "", "@every -1h", every},
		{"@every 999ms", "", "@every 999ms", every},
		{"@every 1500ms", "", "@every 1500ms", every},
		{"@every 2562048h", "", "@every 2562048h", every},
		{"0\u00a00 0 * * *", "", "0\u00a00 0 * * *", "ASCII text"},
		{"0 0 0 * * \u017fUN", "", "0 0 0 * * \u017fUN", "ASCII text"},
		{"\xff\xfe", "", "\xff\xfe", "ASCII text"},
	}
	for _, tt := range tests {
		t.Run(tt.expr, func(t *testing.T) {
			t.Parallel()
			e, err := cron.Parse(tt.expr)
			var got *cron.ParseError
			if !errors.As(err, &got) {
				t.Fatalf("Parse(%q) = %v, %v, want a *ParseError", tt.expr, e, err)
			}
			if want := (cron.ParseError{Expr: tt.expr, Field: tt.field, Value: tt.value, Allowed: tt.allowed}); *got != want {
				t.Errorf("got  %+v\nwant %+v", *got, want)
			}
			if e != (cron.Expression{}) {
				t.Errorf("got the expression %v besides the error", e)
			}
		})
	}
}

func TestParseErrorReads(t *testing.T) {
	t.Parallel()
	tests := []struct{ expr, want string }{
		{"61 * * * *", `cron: minute field "61": 0-59 is allowed`},
		{"* * * * FOO", `cron: day-of-week field "FOO": 0-7 or SUN-SAT (or FRIL, FRI#2) is allowed`},
		{"* * * *", `cron: expression "* * * *": 5 or 6 fields or a macro is allowed`},
	}
	for _, tt := range tests {
		if _, err := cron.Parse(tt.expr); err == nil || err.Error() != tt.want {
			t.Errorf("Parse(%q): got %v, want %s", tt.expr, err, tt.want)
		}
	}
}

func TestParseBoundsTexts(t *testing.T) {
	t.Parallel()
	every := make([]string, 60)
	for i := range every {
		every[i] = strconv.Itoa(i)
	}
	long := strings.Join(every, ",") + " " + strings.Join(every, ",") + " * * * *"
	if _, err := cron.Parse(long + strings.Repeat(" ", 1024-len(long))); err != nil {
		t.Errorf("1024 bytes: got %v, want them read", err)
	}
	huge := strings.Repeat("1,", 10<<20) + "1 * * * * *"
	_, err := cron.Parse(huge)
	parse, ok := errors.AsType[*cron.ParseError](err)
	if !ok || len(err.Error()) > 300 || len(parse.Expr) > 300 || !strings.Contains(err.Error(), "up to 1024 bytes") {
		t.Errorf("20 MB: got %.300v, want a short ParseError that says what is allowed", err)
	}
	if _, err := cron.LoadLocation(strings.Repeat("Europe/", 1<<20)); err == nil || len(err.Error()) > 300 ||
		!strings.Contains(err.Error(), "up to 255 bytes") {
		t.Errorf("a zone of 7 MB: got %.300v, want a short error that says what is allowed", err)
	}
}

func TestParseRefusesWhatNeverFires(t *testing.T) {
	t.Parallel()
	for _, expr := range []string{
		"0 0 0 30 2 *",
		"0 0 30 2 *",
		"* * * 30,31 FEB *",
		"0 0 0 31 4,6,9,11 *",
		"0 0 0 31W 2-2 *",
		"0 0 0 L-29 2 *",
		"0 0 0 15W * SAT",
		"0 0 0 1-7 * MON#2",
		"0 0 0 1-20 * FRIL",
	} {
		e, err := cron.Parse(expr)
		if !errors.Is(err, cron.ErrNeverFires) || e != (cron.Expression{}) {
			t.Errorf("Parse(%q) = %v, %v, want ErrNeverFires", expr, e, err)
		}
	}
	const want = `cron: expression never fires: "0 0 0 30 2 *"`
	if _, err := cron.Parse("0 0 0 30 2 *"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestNextFindsTheRarestDays(t *testing.T) {
	t.Parallel()
	occurrences(t, "0 0 0 29 2 *", "UTC", "2096-03-01 00:00:00 +00:00", "2104-02-29 00:00:00 +00:00")
	occurrences(t, "0 0 0 29 2 MON", "UTC", "2024-01-01 00:00:00 +00:00",
		"2044-02-29 00:00:00 +00:00", "2072-02-29 00:00:00 +00:00", "2112-02-29 00:00:00 +00:00")
	occurrences(t, "* * * 29 2 MON", "America/New_York", "2072-02-29 23:59:59 -05:00", "2112-02-29 00:00:00 -05:00")
}

func TestNextEndsWithTheYear9999(t *testing.T) {
	t.Parallel()
	e, every := mustParse(t, "@yearly"), mustParse(t, "@every 24h")
	for _, tt := range []struct {
		expr cron.Expression
		from time.Time
	}{
		{cron.Expression{}, time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)},
		{e, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
		{e, time.Date(99999, 1, 1, 0, 0, 0, 0, time.UTC)},
		{e, time.Unix(math.MaxInt64-1<<40, 0)},
		{every, time.Date(9999, 12, 31, 12, 0, 0, 0, time.UTC)},
		{every, time.Unix(math.MaxInt64-1<<40, 0)},
	} {
		if next, err := tt.expr.Next(tt.from, time.UTC); !errors.Is(err, cron.ErrNeverFires) || !next.IsZero() {
			t.Errorf("%q after %s: got %s, %v, want ErrNeverFires", tt.expr, tt.from, next, err)
		}
	}

	occurrences(t, "@yearly", "UTC", "9998-06-01 00:00:00 +00:00", "9999-01-01 00:00:00 +00:00")
	for _, from := range []time.Time{{}, time.Unix(math.MinInt64, 0), time.Date(-9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
		next, err := mustParse(t, "* * * * * *").Next(from, time.UTC)
		if want := (time.Time{}).Add(time.Second); err != nil || !next.Equal(want) {
			t.Errorf("the first second after %s: got %s, %v, want %s", from, next, err, want)
		}
	}
}

func TestNextTakesAnyInstantAndZone(t *testing.T) {
	t.Parallel()
	e := mustParse(t, "0 0 7 * * *")
	want := time.Date(2024, 5, 2, 7, 0, 0, 0, time.UTC)
	for _, from := range []time.Time{
		time.Date(2024, 5, 1, 7, 0, 0, 0, time.UTC),
		time.Date(2024, 5, 1, 7, 0, 0, 1, time.UTC),
		time.Date(2024, 5, 2, 6, 59, 59, 999999999, time.UTC),
		time.Date(2024, 5, 2, 8, 59, 59, 0, time.FixedZone("", 2*60*60)),
	} {
		if next, err := e.Next(from, nil); err != nil || next != want {
			t.Errorf("after %s in no zone: got %s, %v, want %s", from, next, err, want)
		}
	}
	kathmandu := mustLoad(t, "Asia/Kathmandu")
	if next, err := e.Next(want, kathmandu); err != nil || next.Format(layout) != "2024-05-03 07:00:00 +05:45" {
		t.Errorf("got %s, %v", next, err)
	}
	fixed := time.FixedZone("", -(3*60*60 + 7*60 + 13))
	if next, err := e.Next(want, fixed); err != nil || !next.Equal(time.Date(2024, 5, 2, 10, 7, 13, 0, time.UTC)) {
		t.Errorf("got %s, %v", next, err)
	}
}

func TestExpressionsAreComparable(t *testing.T) {
	t.Parallel()
	daily, again, midnight := mustParse(t, "@daily"), mustParse(t, "@daily"), mustParse(t, "0 0 * * *")
	if daily != again || daily == midnight {
		t.Error("expressions must be equal if and only if their texts are")
	}
}
