package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

func TestChangesOfSchedulesDoNotPutFiresOff(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var n atomic.Int64
		a := newApp(testapp.Counting("c", &n))
		s := a.Scheduler()
		testapp.Must[int64](t)(s.Create(ctx, a.DB, order{ID: "tick"}, "* * * * * *", "UTC"))
		fireSchedules(ctx, a, schedule.ProcessorConfig{})
		for range 160 { // 8 s
			<-time.After(50 * time.Millisecond)
			err := a.DB.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error {
				_, err := s.Upsert(ctx, tx, order{ID: "x"}, "@yearly", "UTC", schedule.Name("n"))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := a.Count("SELECT count(*) FROM consumer_messages"); got < 7 {
			t.Errorf("fires in 8 s: got %d, want one a second", got)
		}
	})
}

func TestALockedScheduleIsNoBusyLoop(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var n, statements atomic.Int64
	a := testapp.New(t, db, testapp.Counting("c", &n))
	testapp.Must[int64](t)(a.Scheduler().Create(t.Context(), db, order{}, "@yearly", "UTC"))
	makeDue(a, time.Second)
	tx := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
	defer tx.Rollback() //nolint:errcheck // ends the lock, whatever happened
	testapp.Must[int64](t)(first(tx.NewRaw("SELECT id FROM scheduled_messages FOR UPDATE")))
	a.DB = db.WithQueryHook(testapp.QueryHook(func(context.Context, string) { statements.Add(1) }))
	fireSchedules(t.Context(), a, schedule.ProcessorConfig{})
	testapp.Eventually(t, "it looks", func() bool { return statements.Load() > 2 })
	before := statements.Load()
	<-time.After(time.Second)
	if got := statements.Load() - before; got > 100 {
		t.Errorf("statements in a second while the row is locked: got %d, want a few", got)
	}
}

// first returns the number that a query selects.
func first(q *bun.RawQuery) (n int64, err error) {
	err = q.Scan(context.Background(), &n)
	return n, err
}

func TestARefusedScheduleIsNotPostponedOverAFire(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var n, locks atomic.Int64
	a := testapp.New(t, db, testapp.Counting("c", &n))
	s := a.Scheduler()
	testapp.Must[int64](t)(s.Create(t.Context(), db, order{ID: "1"}, "@yearly", "UTC"))
	makeDue(a, time.Second)
	refusing := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry, outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{
		func(bus.ProduceFunc) bus.ProduceFunc {
			return func(context.Context, *bus.Batch) error { return errors.New("the tenant service said 503") }
		}}}))
	plain := testdb.OpenPostgres(t, postgresDSN(t, db))
	other := *a
	other.DB = plain
	done := make(chan struct{})
	hooked := db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
		// The schedule, and then the look before it is postponed:
		// there another instance fires it.
		if strings.Contains(query, "SKIP LOCKED") && locks.Add(1) == 2 {
			fireSchedules(t.Context(), &other, schedule.ProcessorConfig{})
			testapp.Eventually(t, "the other instance fires", func() bool { return len(other.Pending()) == 1 })
			close(done)
		}
	}))
	p := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(hooked, a.Registry, refusing,
		schedule.ProcessorConfig{Logger: slog.New(slog.DiscardHandler)}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	<-done
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	got := rowsOf(t, s, db, schedule.Filter{})[0]
	if got.LastError != "" || got.NextFire.Before(time.Now()) || got.NextFire.Before(got.LastFire.Add(2*time.Minute)) &&
		got.NextFire.Minute() != 0 {
		t.Errorf("schedule: got %+v, want it as the other instance left it", got)
	}
}

// postgresDSN returns the data source name of an open test database.
func postgresDSN(t *testing.T, db *bun.DB) string {
	t.Helper()
	var name string
	testapp.OK(t, db.NewRaw("SELECT current_database()").Scan(t.Context(), &name))
	return testdb.PostgresDSNOf(t, name)
}

func TestAChainThatTimesOutDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &n))
		a.Producer = testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry, outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{
			bus.PerMessage(func(_ context.Context, m *bus.Message) error {
				if string(m.Payload) == `{"id":"2","n":0}` {
					return fmt.Errorf("ask the tenant service: %w", context.DeadlineExceeded)
				}
				return nil
			})}}))
		s := a.Scheduler()
		for i := range 5 {
			testapp.Must[int64](t)(s.Create(t.Context(), db, order{ID: fmt.Sprint(i)}, "@yearly", "UTC"))
		}
		makeDue(a, time.Second)
		fireSchedules(t.Context(), a, schedule.ProcessorConfig{Logger: slog.New(slog.DiscardHandler)})
		testapp.Eventually(t, "the others fire", func() bool { return len(a.Pending()) == 4 })
		testapp.Eventually(t, "the refused one says so", func() bool {
			list := rowsOf(t, s, db, schedule.Filter{})
			return strings.Contains(list[2].LastError, "tenant service")
		})
	})
}

func TestRunNowIsBesideTheFireTimes(t *testing.T) {
	t.Parallel()
	for _, skip := range []bool{false, true} {
		t.Run(fmt.Sprint("skip ", skip), func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var n atomic.Int64
				a := newApp(testapp.Counting("c", &n))
				s := a.Scheduler()
				id := testapp.Must[int64](t)(s.Create(ctx, a.DB, order{}, "@every 1h", "UTC"))
				before := rowsOf(t, s, a.DB, schedule.Filter{})[0]
				check := func(err error) {
					t.Helper()
					if err != nil {
						t.Fatal(err)
					}
				}
				fires := func(what string, want int) {
					t.Helper()
					if got := a.Count("SELECT count(*) FROM consumer_messages"); got != want {
						t.Errorf("%s: got %d fires, want %d", what, got, want)
					}
				}
				<-time.After(time.Hour - 2*time.Second)
				check(s.Trigger(ctx, a.DB, id))
				check(s.Trigger(ctx, a.DB, id))
				<-time.After(3 * time.Second) // nobody is there for the fire time
				fireSchedules(ctx, a, schedule.ProcessorConfig{Misfire: misfire(skip)})
				<-time.After(time.Second)
				fires("asked for just before a fire time", 2)
				after := rowsOf(t, s, a.DB, schedule.Filter{})[0]
				if !after.NextFire.Equal(before.NextFire.Add(time.Hour)) {
					t.Errorf("next fire: got %s, want %s: asking moves nothing", after.NextFire, before.NextFire.Add(time.Hour))
				}
				check(s.Pause(ctx, a.DB, id))
				check(s.Trigger(ctx, a.DB, id))
				<-time.After(2 * time.Hour)
				fires("asked for while paused", 3)
				check(s.Resume(ctx, a.DB, id))
				resumed := rowsOf(t, s, a.DB, schedule.Filter{})[0].NextFire
				<-time.After(time.Minute)
				check(s.Resume(ctx, a.DB, id)) // not paused any more: nothing changes
				if again := rowsOf(t, s, a.DB, schedule.Filter{})[0].NextFire; !again.Equal(resumed) {
					t.Errorf("resumed twice: got a next fire at %s, want %s still", again, resumed)
				}
			})
		})
	}
}

func TestScheduledProcessorsStopInTime(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var n atomic.Int64
	a := testapp.New(t, db, testapp.Counting("c", &n))
	sending := make(chan struct{})
	var once sync.Once
	var calls atomic.Int64
	slow := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry, outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{
		bus.PerMessage(func(ctx context.Context, _ *bus.Message) error {
			calls.Add(1)
			once.Do(func() { close(sending) })
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
			return ctx.Err()
		})}}))
	for i := range 40 {
		testapp.Must[int64](t)(a.Scheduler().Create(t.Context(), db, order{ID: fmt.Sprint(i)}, "@yearly", "UTC"))
	}
	makeDue(a, time.Second)
	p := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, a.Registry, slow, schedule.ProcessorConfig{}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	<-sending
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := calls.Load(); n == 40 {
		t.Error("stop: got the whole batch sent, want it cut short")
	}
	for _, row := range rowsOf(t, a.Scheduler(), db, schedule.Filter{}) {
		if row.LastError != "" || !row.LastFire.IsZero() {
			t.Fatalf("schedule: got %+v, want it untouched: a stop is no fault of its", row)
		}
	}
}

func TestUpdatesCountFromWhenTheyHoldTheRow(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var n atomic.Int64
	a := testapp.New(t, db, testapp.Counting("c", &n))
	s := a.Scheduler()
	id := testapp.Must[int64](t)(s.Upsert(t.Context(), db, order{}, "@yearly", "UTC", schedule.Name("n")))
	for what, change := range map[string]func() error{
		"update": func() error {
			return s.UpdateSchedule(context.WithoutCancel(t.Context()), db, id, "* * * * * *", "UTC")
		},
		"replace": func() error {
			_, err := s.Upsert(context.WithoutCancel(t.Context()), db, order{}, "* * * * * ?", "UTC", schedule.Name("n"))
			return err
		},
	} {
		tx := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil)) // somebody fires it
		testapp.Must[int64](t)(first(tx.NewRaw("SELECT id FROM scheduled_messages FOR UPDATE")))
		changed := make(chan error)
		go func() { changed <- change() }()
		testapp.Eventually(t, "it waits for the row", func() bool {
			return a.Count("SELECT count(*) FROM pg_locks l JOIN pg_stat_activity s USING (pid) WHERE NOT granted AND datname = current_database()") > 0
		})
		<-time.After(1200 * time.Millisecond)
		var fired time.Time
		testapp.OK(t, tx.NewRaw("SELECT clock_timestamp()").Scan(t.Context(), &fired))
		testapp.OK(t, errors.Join(tx.Commit(), <-changed))
		if next := rowsOf(t, s, db, schedule.Filter{})[0].NextFire; !next.After(fired) {
			t.Errorf("%s: got a next fire at %s, want one after %s, which the fire before it was for", what, next, fired)
		}
	}
}

// TestAFireAndItsNextTimeAreOneCommit looks at what others can see whenever a
// schedule is about to be moved on: not its message.
// Promise: schedule-once
func TestAFireAndItsNextTimeAreOneCommit(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var n, moved atomic.Int64
	a := testapp.New(t, db, testapp.Counting("c", &n))
	testapp.Must[int64](t)(a.Scheduler().Create(t.Context(), db, order{}, "@yearly", "UTC"))
	makeDue(a, time.Second)
	firing := *a
	firing.DB = db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
		if strings.HasPrefix(query, "UPDATE") && strings.Contains(query, "available_after") {
			if moved.Add(1); a.Count("SELECT count(*) FROM consumer_messages") > 0 {
				t.Error("the schedule is moved on when its message is committed already")
			}
		}
	}))
	fireSchedules(t.Context(), &firing, schedule.ProcessorConfig{})
	testapp.Eventually(t, "it fires", func() bool { return a.Count("SELECT count(*) FROM consumer_messages") == 1 })
	if moved.Load() != 1 {
		t.Errorf("times that it was moved on: got %d, want 1", moved.Load())
	}
}

// TestEveryChangeWakes looks at what the processors of this process are told.
func TestEveryChangeWakes(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var n atomic.Int64
	a, poisoned := testapp.NewPoisoned(t, db, 4, testapp.Counting("c", &n))
	s := a.Scheduler()
	var woken []wakeup.Wake
	defer access.Wakeups(a.Registry).Listen(func(w wakeup.Wake) { woken = append(woken, w) })()
	requeued := int64(0)
	for what, do := range map[string]func(db bun.IDB) error{
		"schedule": func(db bun.IDB) error {
			return testapp.Second(s.Create(t.Context(), db, order{}, "@yearly", "UTC"))
		},
		"requeue": func(db bun.IDB) error { requeued++; return testapp.Second(poisoned.Requeue(t.Context(), db, requeued)) },
	} {
		tx := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
		for handle, expected := range map[bun.IDB]bool{db: false, tx: true, &tx: true} {
			woken = nil
			testapp.OK(t, do(handle))
			if len(woken) != 1 || woken[0].Expected != expected || woken[0].Schedules != (what == "schedule") {
				t.Errorf("%s through %T: got %+v, want one wake-up, expected %t", what, handle, woken, expected)
			}
		}
		testapp.OK(t, tx.Rollback())
	}
}
