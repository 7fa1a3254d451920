package cron_test

import (
	"errors"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/schedule/cron"
)

func FuzzParse(f *testing.F) {
	zones := []string{
		"UTC", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Africa/Casablanca",
		"Asia/Kathmandu", "Pacific/Apia", "Asia/Tehran", "Antarctica/Troll", "Europe/Dublin",
	}
	locs := make([]*time.Location, len(zones))
	for i, zone := range zones {
		locs[i] = mustLoad(f, zone)
	}
	for i, expr := range []string{
		"0 30 2 * * *", "30 1 * * *", "*/30 * * * * ?", "0 0 23-01 ? JAN-mar FRI-MON", "5-40/5,50 10/5 * L-3W * 1#2",
		"0 0 0 29 2 MON", "0 0 0 30 2 *", "0 0 0 15W * 7L", "@daily", "@every 1h30m", "@every 1ns", "61 * * * *",
		"TZ=UTC", "", "@", "* * * * * * *", "* */0 * * *", ",", "1-", "\x00", "L W # ? L W",
	} {
		f.Add(expr, int64(1478415600+i*86400), uint32(i), byte(i))
	}
	f.Fuzz(func(t *testing.T, expr string, unix int64, nanos uint32, zone byte) {
		e, err := cron.Parse(expr)
		if err != nil {
			var parseErr *cron.ParseError
			if !errors.As(err, &parseErr) && !errors.Is(err, cron.ErrNeverFires) {
				t.Fatalf("Parse(%q): an error of no known type: %v", expr, err)
			}
			if parseErr != nil && (parseErr.Expr != expr || parseErr.Allowed == "") {
				t.Fatalf("Parse(%q): an error about something else: %+v", expr, parseErr)
			}
			return
		}
		if again, err := cron.Parse(e.String()); err != nil || again != e || e.String() != expr {
			t.Fatalf("Parse(%q) prints as %q, and that parses as %v, %v", expr, e, again, err)
		}

		loc := locs[int(zone)%len(locs)]
		from := time.Unix(unix, int64(nanos))
		for range 3 {
			next, err := e.Next(from, loc)
			if errors.Is(err, cron.ErrNeverFires) {
				if from.Year() >= 2000 && from.Year() < 9900 {
					t.Fatalf("%q after %s in %s: %v, but it parsed", expr, from.UTC(), loc, err)
				}
				return
			}
			if err != nil || !next.After(from) || next.Location() != loc {
				t.Fatalf("%q after %s in %s: got %s, %v", expr, from.UTC(), loc, next, err)
			}
			from = next
		}
	})
}
