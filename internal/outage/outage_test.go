package outage_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
)

func logTo(w *strings.Builder) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// TestAnOutageIsQuiet: one line at once, then one every ten seconds, with the number of
// failures and the next try, and one when it is over.
func TestAnOutageIsQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		o := outage.New(logTo(&log), time.Second, nil)
		<-time.After(time.Minute)
		for range 100 * 60 {
			if !o.Failed("poll", driver.ErrBadConn) {
				t.Fatal("a lost connection: got no outage")
			}
			<-time.After(10 * time.Millisecond)
		}
		if o.Err() == nil || o.Stable() {
			t.Errorf("during the outage: got error %v, settled %v, want the error and false", o.Err(), o.Stable())
		}
		o.Recovered()
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 7 || !strings.Contains(lines[1], "more_since_last_line=999") ||
			!strings.Contains(lines[0], "next_try_within=3s") || !strings.Contains(lines[6], "answers again") {
			t.Errorf("lines: got %d, want 6 of the outage with their numbers and one of its end:\n%s", len(lines), log.String())
		}
	})
}

// TestATroubleIsOfOneOperation: nothing else learns of it.
func TestATroubleIsOfOneOperation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		o, long := outage.New(logTo(&log), time.Hour, nil), errors.New(strings.Repeat("x", 1<<20))
		<-time.After(time.Minute)
		for range 1000 {
			for _, what := range []string{"settle", "recover"} {
				if o.Failed(what, long, time.Minute) {
					t.Fatal("an error of the statement: got an outage")
				}
			}
			<-time.After(10 * time.Millisecond)
		}
		if o.Err() != nil || !o.Stable() {
			t.Errorf("got error %v, settled %v, want none and true", o.Err(), o.Stable())
		}
		if n, size := strings.Count(log.String(), "next_try_within=1m"), log.Len(); n != 20 || size > 20*9<<10 {
			t.Errorf("got %d lines in ten seconds, %d bytes, want one a second of each operation and at most 8 KiB of the error", n, size)
		}
	})
}

// TestADeadlineIsAskedAbout: a statement that came to no answer says nothing about the
// database, which is asked.
func TestADeadlineIsAskedAbout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := fmt.Errorf("poll: %w", context.DeadlineExceeded)
		for name, test := range map[string]struct {
			look func(context.Context) error
			want bool
		}{
			"nobody to ask":         {nil, true},
			"it answers":            {func(context.Context) error { return nil }, false},
			"it gives no answer":    {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, true},
			"its connection breaks": {func(context.Context) error { return driver.ErrBadConn }, true},
		} {
			var log strings.Builder
			o := outage.New(logTo(&log), 0, test.look)
			if got := o.Failed("poll", late); got != test.want || (o.Err() != nil) != test.want {
				t.Errorf("%s: got outage %v, error %v, want %v", name, got, o.Err(), test.want)
			}
		}
	})
}
