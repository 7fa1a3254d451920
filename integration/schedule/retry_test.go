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

func pauseAndResume(x *refusing, s *schedule.Scheduler, id int64) error {
	return errors.Join(s.Pause(x.Context(), x.DB, id), s.Resume(x.Context(), x.DB, id))
}

// TestAFailedFireKeepsItsScheduledTime: an hourly schedule cannot fire, something happens to it, and then it can. It fires for the
// time at which it was due, and for no older one.
// Promise: schedule-once
func TestAFailedFireKeepsItsScheduledTime(t *testing.T) {
	t.Parallel()
	year := func(ago int) time.Time { return time.Date(time.Now().UTC().Year()-ago, 1, 1, 0, 0, 0, 0, time.UTC) } // no other begins soon
	for name, test := range map[string]struct {
		due, fired time.Time
		config     schedule.ProcessorConfig
		before     func(x *refusing, s *schedule.Scheduler, id int64) error
		after      func(x *refusing, s *schedule.Scheduler, id int64) error
		triggered  bool
	}{
		"after an upsert of the next release": {due: year(0), fired: year(1), config: quiet(),
			after: func(x *refusing, s *schedule.Scheduler, _ int64) error {
				return testapp.Second(s.Upsert(x.Context(), x.DB, order{ID: "2"}, "@yearly", "UTC", schedule.Name("n")))
			}},
		"after a new payload": {due: year(0), fired: year(1), config: quiet(),
			after: func(x *refusing, s *schedule.Scheduler, id int64) error {
				return s.UpdatePayload(x.Context(), x.DB, id, order{ID: "2"})
			}},
		"which is the first after a pause": {due: year(0), fired: year(10), config: quiet(), before: pauseAndResume},
		"where misfires are skipped": {due: year(0), fired: year(10),
			config: schedule.ProcessorConfig{Logger: quiet().Logger, PollInterval: quiet().PollInterval, Misfire: schedule.Skip}},
		"unless it passed during a pause": {due: year(9), fired: year(10), config: quiet(),
			after: func(x *refusing, s *schedule.Scheduler, id int64) error {
				err := pauseAndResume(x, s, id)
				x.setTimes(year(0), year(10)) // the next year has come
				return err
			}},
		"beside a trigger that failed as well": {due: year(0), fired: year(1), config: quiet(), triggered: true,
			after: func(x *refusing, s *schedule.Scheduler, id int64) error { return s.Trigger(x.Context(), x.DB, id) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				x := newRefusing(t, db)
				s := x.Scheduler()
				id := testapp.Must[int64](t)(s.Upsert(t.Context(), db, order{ID: "1"}, "@yearly", "UTC", schedule.Name("n")))
				if test.before != nil {
					testapp.OK(t, test.before(x, s, id))
				}
				x.setTimes(test.due, test.fired)
				x.down.Store(true)
				fireSchedules(t.Context(), x.app, test.config)
				testapp.Eventually(t, "it has failed", x.failed(s))
				if test.after != nil {
					testapp.OK(t, test.after(x, s, id))
				}
				want := []time.Time{year(0)}
				testapp.Eventually(t, "the trigger has failed", func() bool {
					fires := rowsOf(t, s, db, schedule.Filter{})[0].Recent
					triggered := slices.IndexFunc(fires, func(f schedule.Fire) bool { return f.Due.After(test.due) && f.Error != "" })
					if test.triggered && triggered >= 0 {
						want = append(want, fires[triggered].Due)
					}
					return !test.triggered || triggered >= 0
				})
				x.down.Store(false)
				x.again()
				x.Start(testapp.Fast())
				testapp.Eventually(t, "it has run", func() bool { return len(x.got()) == len(want) && x.Empty() })
				got := x.got()
				slices.SortFunc(got, time.Time.Compare)
				if !slices.EqualFunc(got, want, time.Time.Equal) {
					t.Errorf("got runs for %s, want %s", got, want)
				}
			})
		})
	}
}
