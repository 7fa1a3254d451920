package schedule_test

import (
	"errors"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
	"github.com/asyncmonolith/asyncmonolith-go/schedule/cron"
)

func TestNext(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		expression, zone, after string
		want                    []string
	}{
		"a gap fires after it": {"30 2 * * *", "Europe/Amsterdam", "2026-03-28T00:00:00Z",
			[]string{"2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"}},
		"an overlap fires fixed times once": {"30 2 * * *", "Europe/Amsterdam", "2026-10-24T00:00:00Z",
			[]string{"2026-10-24T02:30:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		"an overlap fires intervals twice": {"30 * * * *", "Europe/Amsterdam", "2026-10-25T00:00:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:30:00+01:00"}},
		"elapsed time": {"@every 90m", "UTC", "2026-01-01T00:00:00Z",
			[]string{"2026-01-01T01:30:00Z", "2026-01-01T03:00:00Z", "2026-01-01T04:30:00Z"}},
		"after is left out": {"@daily", "UTC", "2026-01-01T00:00:00Z",
			[]string{"2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z"}},
		"the calendar ends": {"@yearly", "UTC", "9997-06-01T00:00:00Z", []string{"9998-01-01T00:00:00Z", "9999-01-01T00:00:00Z"}},
	} {
		after, err := time.Parse(time.RFC3339, test.after)
		if err != nil {
			t.Fatal(err)
		}
		got, err := schedule.Next(test.expression, test.zone, after, 3)
		if err != nil || len(got) != len(test.want) {
			t.Errorf("%s: got %v and error %v, want %v", name, got, err, test.want)
			continue
		}
		for i, at := range got {
			if text := at.Format(time.RFC3339); text != test.want[i] {
				t.Errorf("%s: fire %d: got %s, want %s", name, i, text, test.want[i])
			}
		}
	}
}

func TestNextRefusesBadInput(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		expression, zone string
		n                int
		want             error
	}{
		"no fires":             {"@daily", "UTC", 0, bus.ErrInvalidOption},
		"a negative number":    {"@daily", "UTC", -1, bus.ErrInvalidOption},
		"too many":             {"@daily", "UTC", 1001, bus.ErrInvalidOption},
		"no expression":        {"whenever", "UTC", 1, schedule.ErrExpression},
		"no zone":              {"@daily", "Mars/Olympus", 1, schedule.ErrExpression},
		"one that never fires": {"0 0 30 2 *", "UTC", 1, cron.ErrNeverFires},
	} {
		if got, err := schedule.Next(test.expression, test.zone, time.Now(), test.n); !errors.Is(err, test.want) || got != nil {
			t.Errorf("%s: got %v and %v, want %v", name, got, err, test.want)
		}
	}
}

// TestNextTakesNoLongerThanASecond: what is rare has much to be looked through.
func TestNextTakesNoLongerThanASecond(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{"* * * * * *", "0 0 0 29 2 MON#5", "59 59 23 29 2 7", "0 0 0 LW 2 *", "0 30 2 29 2 *",
		"@every 1s", "0 0 0 30 2 *"} {
		begun := time.Now()
		fires, _ := schedule.Next(expression, "America/Sao_Paulo", time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC), 1000)
		if took := time.Since(begun); took > 1500*time.Millisecond { // the last one of them may be on its way
			t.Errorf("%s: got %d fires after %s, want no more than a second", expression, len(fires), took)
		}
	}
}
