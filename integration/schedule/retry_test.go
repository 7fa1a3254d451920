package schedule_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// refusing is an application with a produce layer that fails while down, and a consumer that keeps its scheduled times.
type refusing struct {
	*app
	down  atomic.Bool
	mu    sync.Mutex
	times []time.Time
}

func newRefusing(t *testing.T, db *bun.DB) *refusing {
	x := &refusing{}
	x.app = testapp.New(t, db, bus.Consume("c", func(ctx context.Context, _ order) error {
		at, _ := schedule.ScheduledTimeFromContext(ctx)
		x.mu.Lock()
		defer x.mu.Unlock()
		x.times = append(x.times, at)
		return nil
	}))
	x.Producer = testapp.Must[*outbox.Producer](t)(outbox.NewProducer(x.Registry, outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{
		func(next bus.ProduceFunc) bus.ProduceFunc {
			return func(ctx context.Context, b *bus.Batch) error {
				if x.down.Load() {
					return errors.New("the tenant service said 503")
				}
				return next(ctx, b)
			}
		}}}))
	return x
}

func (x *refusing) got() []time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]time.Time(nil), x.times...)
}

func quiet() schedule.ProcessorConfig {
	return schedule.ProcessorConfig{Logger: slog.New(slog.DiscardHandler), PollInterval: 20 * time.Millisecond}
}

// setTimes sets when the only schedule is due and has last fired.
func (x *refusing) setTimes(due, fired time.Time) {
	x.Helper()
	if x.DB.Dialect().Name().String() == "pg" {
		x.Exec("UPDATE scheduled_messages SET available_after = ?, last_fired_at = ?", due, fired)
		return
	}
	x.Exec("UPDATE scheduled_messages SET available_after = ?, last_fired_at = ?", due.UnixMicro(), fired.UnixMicro())
}

func (x *refusing) failed(s *schedule.Scheduler) func() bool {
	return func() bool { return rowsOf(x.T, s, x.DB, schedule.Filter{})[0].LastError != "" }
}

// again has a schedule that was postponed tried at once.
func (x *refusing) again() { x.Exec("UPDATE scheduled_messages SET retry_at = NULL") }

// TestADeployAfterAFailureKeepsTheScheduledTime: a schedule cannot fire, and is written again by the boot of a release that can.
// The next fire is for the time at which it was due.
// Promise: schedule-once
func TestADeployAfterAFailureKeepsTheScheduledTime(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		for what, mend := range map[string]func(s *schedule.Scheduler, id int64) error{
			"Upsert": func(s *schedule.Scheduler, _ int64) error {
				return testapp.Second(s.Upsert(t.Context(), db, order{ID: "2"}, "@hourly", "UTC", schedule.Name("n")))
			},
			"UpdatePayload": func(s *schedule.Scheduler, id int64) error {
				return s.UpdatePayload(t.Context(), db, id, order{ID: "2"})
			},
		} {
			x := newRefusing(t, db)
			x.Exec("DELETE FROM scheduled_messages")
			s := x.Scheduler()
			id := testapp.Must[int64](t)(s.Upsert(t.Context(), db, order{ID: "1"}, "@hourly", "UTC", schedule.Name("n")))
			due := time.Now().UTC().Truncate(time.Hour)
			x.setTimes(due, due.Add(-time.Hour))
			x.down.Store(true)
			ctx, stop := context.WithCancel(t.Context())
			fireSchedules(ctx, x.app, quiet())
			testapp.Eventually(t, "it has failed", x.failed(s))
			x.down.Store(false)
			if err := mend(s, id); err != nil {
				t.Fatal(err)
			}
			x.again()
			p := x.Start(testapp.Fast())
			testapp.Eventually(t, "it has run", func() bool { return len(x.got()) == 1 })
			p.MustStop()
			stop()
			if got := x.got()[0]; !got.Equal(due) {
				t.Errorf("%s: got a run for %s, want %s, when it was due", what, got, due)
			}
		}
	})
}

// TestAFailureAfterAPauseKeepsTheScheduledTime: the first fire after a pause fails, and a minute later it does not. It is for the
// time at which it was due, and not for one of the pause.
func TestAFailureAfterAPauseKeepsTheScheduledTime(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		x := newRefusing(t, db)
		s := x.Scheduler()
		id := testapp.Must[int64](t)(s.Upsert(t.Context(), db, order{ID: "1"}, "@hourly", "UTC", schedule.Name("n")))
		due := time.Now().UTC().Truncate(time.Hour)
		x.setTimes(due, due.Add(-10*time.Hour))
		if err := s.Pause(t.Context(), db, id); err != nil {
			t.Fatal(err)
		}
		if err := s.Resume(t.Context(), db, id); err != nil {
			t.Fatal(err)
		}
		x.setTimes(due, due.Add(-10*time.Hour)) // the hour has come
		x.down.Store(true)
		fireSchedules(t.Context(), x.app, quiet())
		testapp.Eventually(t, "it has failed", x.failed(s))
		x.down.Store(false)
		x.again()
		x.Start(testapp.Fast())
		testapp.Eventually(t, "it has run", func() bool { return len(x.got()) == 1 })
		if got := x.got()[0]; !got.Equal(due) {
			t.Errorf("got a run for %s, want %s, when it was due", got, due)
		}
	})
}

// TestSkipAfterAFailureFiresForNoOlderTime: a schedule whose last fire is ten hours ago, and which could not fire, is not late by that.
func TestSkipAfterAFailureFiresForNoOlderTime(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		x := newRefusing(t, db)
		s := x.Scheduler()
		testapp.Must[int64](t)(s.Upsert(t.Context(), db, order{ID: "1"}, "@hourly", "UTC", schedule.Name("n")))
		hour := time.Now().UTC().Truncate(time.Hour)
		x.setTimes(hour, hour.Add(-10*time.Hour))
		x.down.Store(true)
		config := quiet()
		config.Misfire = schedule.Skip
		fireSchedules(t.Context(), x.app, config)
		testapp.Eventually(t, "it has failed", x.failed(s))
		x.down.Store(false)
		x.again()
		x.Start(testapp.Fast())
		testapp.Eventually(t, "it is over", func() bool { return !x.failed(s)() && x.Empty() })
		for _, got := range x.got() {
			if got.Before(hour) {
				t.Errorf("got a run for %s, ten hours ago, want it skipped", got)
			}
		}
	})
}

// TestAPauseAfterAFailureSkipsTheScheduledTime: a schedule fails once, is paused for the night and resumed. The next fire is for
// its own time.
func TestAPauseAfterAFailureSkipsTheScheduledTime(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		x := newRefusing(t, db)
		s := x.Scheduler()
		id := testapp.Must[int64](t)(s.Upsert(t.Context(), db, order{ID: "1"}, "@hourly", "UTC", schedule.Name("n")))
		hour := time.Now().UTC().Truncate(time.Hour)
		x.setTimes(hour.Add(-9*time.Hour), hour.Add(-10*time.Hour))
		x.down.Store(true)
		fireSchedules(t.Context(), x.app, quiet())
		testapp.Eventually(t, "it has failed", x.failed(s))
		if err := errors.Join(s.Pause(t.Context(), db, id), s.Resume(t.Context(), db, id)); err != nil { // hours later
			t.Fatal(err)
		}
		x.down.Store(false)
		x.setTimes(hour, hour.Add(-10*time.Hour)) // the next hour has come
		x.Start(testapp.Fast())
		testapp.Eventually(t, "it has run", func() bool { return len(x.got()) == 1 })
		if got := x.got()[0]; !got.Equal(hour) {
			t.Errorf("got a run for %s, which passed while it was paused, want %s", got, hour)
		}
	})
}

// TestATriggerAfterAFailureKeepsTheScheduledTime: a schedule cannot fire, and then it is triggered. It runs for the time of the
// trigger, also if that failed, and for the time at which it was due.
func TestATriggerAfterAFailureKeepsTheScheduledTime(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		x := newRefusing(t, db)
		s := x.Scheduler()
		id := testapp.Must[int64](t)(s.Upsert(t.Context(), db, order{ID: "1"}, "@hourly", "UTC", schedule.Name("n")))
		due := time.Now().UTC().Truncate(time.Hour)
		x.setTimes(due, due.Add(-time.Hour))
		x.down.Store(true)
		fireSchedules(t.Context(), x.app, quiet())
		testapp.Eventually(t, "it has failed", x.failed(s))
		if err := s.Trigger(t.Context(), db, id); err != nil {
			t.Fatal(err)
		}
		var asked time.Time // when it was triggered
		testapp.Eventually(t, "both have failed", func() bool {
			fires := rowsOf(t, s, db, schedule.Filter{})[0].Recent
			triggered := slices.IndexFunc(fires, func(f schedule.Fire) bool { return f.Due.After(due) && f.Error != "" })
			if triggered >= 0 {
				asked = fires[triggered].Due
			}
			return triggered >= 0
		})
		x.down.Store(false)
		x.again()
		x.Start(testapp.Fast())
		testapp.Eventually(t, "both have run", func() bool { return len(x.got()) == 2 })
		got := x.got()
		slices.SortFunc(got, time.Time.Compare)
		if !got[0].Equal(due) || !got[1].Equal(asked) {
			t.Errorf("got runs for %s, want %s, when it was due, and %s, when it was triggered", got, due, asked)
		}
	})
}
