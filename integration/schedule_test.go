package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

func (a *app) scheduler() *schedule.Scheduler {
	a.Helper()
	s, err := schedule.NewScheduler(a.registry, schedule.SchedulerConfig{})
	if err != nil {
		a.Fatalf("scheduler: %v", err)
	}
	return s
}

// fireSchedules runs a schedule processor until the test ends.
func (a *app) fireSchedules(ctx context.Context, config schedule.ProcessorConfig) {
	a.Helper()
	p, err := schedule.NewProcessor(a.db, a.registry, a.producer, config)
	if err != nil {
		a.Fatalf("schedule processor: %v", err)
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	a.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			a.Errorf("schedule processor: %v", err)
		}
	})
}

// makeDue moves schedules into the past.
func (a *app) makeDue(by time.Duration) {
	a.Helper()
	if a.db.Dialect().Name().String() == "pg" {
		a.exec("UPDATE scheduled_messages SET available_after = statement_timestamp() - ? * interval '1 microsecond'", by.Microseconds())
		return
	}
	a.exec("UPDATE scheduled_messages SET available_after = "+nowOf(a.db)+" - ?", by.Microseconds())
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestScheduleWritesARowAndFires(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var one, two atomic.Int64
		a := newApp(t, db, counting("one", &one), counting("two", &two))
		s := a.scheduler()
		id, err := s.Schedule(t.Context(), db, order{ID: "1"}, "0 0 12 * * MON", "Europe/Amsterdam",
			schedule.Tag("weekly"), schedule.Name("monday"), schedule.Header("tenant", "acme"))
		if err != nil {
			t.Fatal(err)
		}
		rows := must[[]schedule.Schedule](t)(s.List(t.Context(), db, schedule.Filter{Name: "monday"}))
		amsterdam := must[*time.Location](t)(time.LoadLocation("Europe/Amsterdam"))
		if len(rows) != 1 || rows[0].ID != id || rows[0].Tag != "weekly" || rows[0].PayloadType != "order.placed" ||
			string(rows[0].Payload) != `{"id":"1","n":0}` || rows[0].Headers["tenant"] != "acme" || rows[0].Paused || !rows[0].LastFire.IsZero() {
			t.Fatalf("row: got %+v", rows)
		}
		if next := rows[0].NextFire.In(amsterdam); next.Weekday() != time.Monday || next.Hour() != 12 || !next.After(time.Now()) || next.After(time.Now().AddDate(0, 0, 8)) {
			t.Errorf("next fire: got %s, want next Monday at noon", next)
		}
		a.makeDue(time.Minute)
		a.fireSchedules(t.Context(), schedule.ProcessorConfig{})
		eventually(t, "a message for each consumer", func() bool { return len(a.pending()) == 2 })
		for _, m := range a.pending() {
			if !strings.Contains(m.Headers, `"tenant":"acme"`) || m.Payload != `{"id":"1","n":0}` {
				t.Errorf("message: got %+v, want the schedule's payload and headers", m)
			}
		}
		after := must[[]schedule.Schedule](t)(s.List(t.Context(), db, schedule.Filter{}))[0]
		if !after.NextFire.Equal(rows[0].NextFire) || after.LastFire.IsZero() {
			t.Errorf("after the fire: got %+v, want it advanced to %s", after, rows[0].NextFire)
		}
		r := a.start(fast())
		eventually(t, "both consumers ran", func() bool { return one.Load() == 1 && two.Load() == 1 && a.empty() })
		r.mustStop()
	})
}

func TestNamedSchedulesAreUpserts(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := newApp(t, db, counting("c", &n))
		s := a.scheduler()
		save := func(expression string, payload order, tag string) (int64, schedule.Schedule) {
			id, err := s.Schedule(t.Context(), db, payload, expression, "UTC", schedule.Name("boot"), schedule.Tag(tag))
			if err != nil {
				t.Fatal(err)
			}
			return id, must[[]schedule.Schedule](t)(s.List(t.Context(), db, schedule.Filter{Name: "boot"}))[0]
		}
		id, first := save("@every 1h", order{ID: "1"}, "a")
		if err := s.Pause(t.Context(), db, id); err != nil {
			t.Fatal(err)
		}
		again, second := save("@every 1h", order{ID: "2"}, "b")
		if again != id || !second.NextFire.Equal(first.NextFire) || string(second.Payload) != `{"id":"2","n":0}` || second.Tag != "b" || !second.Paused {
			t.Errorf("the same again: got %+v, want the same row with a new payload, still due at %s, still paused", second, first.NextFire)
		}
		if _, third := save("@every 2h", order{ID: "2"}, "b"); third.NextFire.Equal(first.NextFire) {
			t.Errorf("another expression: got %+v, want another next fire", third)
		}
		if n := len(must[[]schedule.Schedule](t)(s.List(t.Context(), db, schedule.Filter{}))); n != 1 {
			t.Errorf("schedules: got %d, want 1", n)
		}
	})
}

func TestSchedulesAreManaged(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := newApp(t, db, counting("c", &n), bus.Consume("r", func(context.Context, refund) error { return nil }))
		s, ctx := a.scheduler(), t.Context()
		var ids []int64
		for i := range 4 {
			ids = append(ids, must[int64](t)(s.ScheduleAnother(ctx, db, order{ID: fmt.Sprint(i)}, "@yearly", "UTC", schedule.Tag(fmt.Sprint("tag", i/2)))))
		}
		if n := must[int](t)(s.DeleteByTag(ctx, db, "tag0")); n != 2 {
			t.Errorf("deleted by tag: got %d, want 2", n)
		}
		if err := s.DeleteByID(ctx, db, ids[2]); err != nil {
			t.Errorf("delete by id: %v", err)
		}
		id := ids[3]
		get := func() schedule.Schedule {
			return must[[]schedule.Schedule](t)(s.List(ctx, db, schedule.Filter{Tag: "tag1"}))[0]
		}
		yearly := get().NextFire
		if err := errors.Join(s.UpdateSchedule(ctx, db, id, "@every 30m", "UTC"), s.UpdatePayload(ctx, db, id, refund{ID: "x"})); err != nil {
			t.Fatal(err)
		}
		if got := get(); got.Expression != "@every 30m" || got.NextFire.Equal(yearly) || got.PayloadType != "order.refunded" || string(got.Payload) != `{"id":"x"}` {
			t.Errorf("updated: got %+v", got)
		}
		if err := s.Pause(ctx, db, id); err != nil {
			t.Fatal(err)
		}
		a.makeDue(time.Minute)
		a.fireSchedules(ctx, schedule.ProcessorConfig{PollInterval: 20 * time.Millisecond})
		other := must[int64](t)(s.ScheduleAnother(ctx, db, order{ID: "other"}, "@yearly", "UTC"))
		if err := s.RunNow(ctx, db, other); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the other fires", func() bool { return len(a.pending()) == 1 })
		if got := a.pending()[0].Payload; got != `{"id":"other","n":0}` {
			t.Errorf("fired: got %s, want not the paused one", got)
		}
		if err := s.Resume(ctx, db, id); err != nil {
			t.Fatal(err)
		}
		if got := get(); got.Paused || !got.NextFire.After(time.Now().Add(20*time.Minute)) {
			t.Errorf("resumed: got %+v, want the next fire in 30 minutes", got)
		}
		for what, err := range map[string]error{"delete": s.DeleteByID(ctx, db, 9999), "pause": s.Pause(ctx, db, 9999), "resume": s.Resume(ctx, db, 9999),
			"run now": s.RunNow(ctx, db, 9999), "run now 0": s.RunNow(ctx, db, 0), "update": s.UpdateSchedule(ctx, db, 9999, "@daily", "UTC"), "delete 0": s.DeleteByID(ctx, db, 0)} {
			if !errors.Is(err, schedule.ErrNotFound) {
				t.Errorf("%s of a missing schedule: got %v, want ErrNotFound", what, err)
			}
		}
	})
}

func TestScheduleIsTransactional(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := newApp(t, db, counting("c", &n))
		no := errors.New("no")
		err := db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			if _, err := a.scheduler().ScheduleAnother(ctx, tx, order{}, "@daily", "UTC"); err != nil {
				return err
			}
			return no
		})
		if !errors.Is(err, no) || a.count("SELECT count(*) FROM scheduled_messages") != 0 {
			t.Errorf("got %v and %d rows, want a rollback", err, a.count("SELECT count(*) FROM scheduled_messages"))
		}
	})
}

func TestBadScheduleHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ spoil, want string }{
		"unknown zone":             {"UPDATE scheduled_messages SET cron_timezone = 'Mars/Olympus' WHERE tag = 'bad'", "Mars/Olympus"},
		"unparsable expression":    {"UPDATE scheduled_messages SET cron_expression = 'whenever' WHERE tag = 'bad'", "whenever"},
		"undecodable payload":      {`UPDATE scheduled_messages SET payload = '{"id":' WHERE tag = 'bad'`, "malformed JSON"},
		"refused by the chain":     {`UPDATE scheduled_messages SET payload = '{"id":"refuse"}' WHERE tag = 'bad'`, "the chain refuses"},
		"unreadable headers alone": {"UPDATE scheduled_messages SET headers = 'x' WHERE tag = 'bad'", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				var n atomic.Int64
				a := newApp(t, db, counting("c", &n))
				producer, err := outbox.NewProducer(a.registry, outbox.ProducerConfig{Layers: []bus.SendMiddleware{
					bus.EachMessage(func(_ context.Context, m *bus.Message) error {
						if strings.Contains(string(m.Payload), "refuse") {
							return errors.New("the chain refuses")
						}
						return nil
					})}})
				if err != nil {
					t.Fatal(err)
				}
				a.producer = producer
				s := a.scheduler()
				for i := range 5 {
					tag := "good"
					if i == 2 {
						tag = "bad"
					}
					must[int64](t)(s.ScheduleAnother(t.Context(), db, order{ID: fmt.Sprint(i)}, "@yearly", "UTC", schedule.Tag(tag)))
				}
				a.exec(test.spoil)
				a.makeDue(time.Second)
				a.fireSchedules(t.Context(), schedule.ProcessorConfig{})
				good := 4
				if test.want == "" {
					good = 5
				}
				eventually(t, "the good ones fire", func() bool { return len(a.pending()) == good })
				eventually(t, "the bad one is marked", func() bool {
					bad := must[[]schedule.Schedule](t)(s.List(t.Context(), db, schedule.Filter{Tag: "bad"}))[0]
					return test.want == "" && bad.LastError == "" ||
						test.want != "" && strings.Contains(bad.LastError, test.want) && bad.NextFire.After(time.Now().Add(30*time.Second))
				})
			})
		})
	}
}

func TestScheduleRefusesBadInput(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	a := newApp(t, testdb.SQLite(t), counting("c", &n))
	s, ctx, db := a.scheduler(), t.Context(), a.db
	tests := []struct {
		name string
		err  error
		want error
	}{
		{"expression", second(s.ScheduleAnother(ctx, db, order{}, "61 * * * * *", "UTC")), schedule.ErrExpression},
		{"never", second(s.ScheduleAnother(ctx, db, order{}, "0 0 0 30 2 *", "UTC")), schedule.ErrExpression},
		{"zone", second(s.ScheduleAnother(ctx, db, order{}, "@daily", "Nowhere")), schedule.ErrExpression},
		{"no zone", second(s.ScheduleAnother(ctx, db, order{}, "@daily", "")), schedule.ErrExpression},
		{"no consumer", second(s.ScheduleAnother(ctx, db, refund{}, "@daily", "UTC")), bus.ErrNoConsumer},
		{"pointer", second(s.ScheduleAnother(ctx, db, &order{}, "@daily", "UTC")), bus.ErrBadPayload},
		{"name", second(s.Schedule(ctx, db, order{}, "@daily", "UTC", schedule.Name("\x00"))), bus.ErrBadText},
		{"tag", second(s.ScheduleAnother(ctx, db, order{}, "@daily", "UTC", schedule.Tag(strings.Repeat("t", 256)))), bus.ErrTooLarge},
		{"header", second(s.ScheduleAnother(ctx, db, order{}, "@daily", "UTC", schedule.Header("", "v"))), bus.ErrBadOption},
		{"nil option", second(s.ScheduleAnother(ctx, db, order{}, "@daily", "UTC", nil)), bus.ErrBadOption},
		{"empty name", second(s.Schedule(ctx, db, order{}, "@daily", "UTC", schedule.Name(""))), bus.ErrBadOption},
		{"empty tag of a schedule", second(s.ScheduleAnother(ctx, db, order{}, "@daily", "UTC", schedule.Tag(""))), bus.ErrBadOption},
		{"another mistake beside a payload", second(s.ScheduleAnother(ctx, db, refund{}, "61 * * * * *", "UTC")), schedule.ErrExpression},
		{"empty tag", second(s.DeleteByTag(ctx, db, "")), bus.ErrBadOption},
		{"updated expression", s.UpdateSchedule(ctx, db, 1, "x", "UTC"), schedule.ErrExpression},
		{"updated payload", s.UpdatePayload(ctx, db, 1, refund{}), bus.ErrNoConsumer},
	}
	for _, test := range tests {
		if !errors.Is(test.err, test.want) || !strings.HasPrefix(test.err.Error(), "schedule: ") {
			t.Errorf("%s: got %v, want %v", test.name, test.err, test.want)
		}
	}
	if second(s.ScheduleAnother(ctx, nil, order{}, "@daily", "UTC")) == nil || second(s.List(ctx, (*bun.DB)(nil), schedule.Filter{})) == nil {
		t.Error("a nil database handle: got no error")
	}
	if _, err := schedule.NewProcessor(db, a.registry, a.producer, schedule.ProcessorConfig{Loops: 2}); err == nil {
		t.Error("two loops on SQLite: got no error")
	}
}

func second[T any](_ T, err error) error { return err }

func TestFiveInstancesFireEachTimeOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db, bus.Consume("c", func(context.Context, order) error { return nil }))
		s := a.scheduler()
		for i := range 4 {
			must[int64](t)(s.ScheduleAnother(t.Context(), db, order{ID: fmt.Sprint(i)}, "* * * * * *", "UTC"))
		}
		for range 5 {
			a.fireSchedules(t.Context(), schedule.ProcessorConfig{})
		}
		eventually(t, "several fires", func() bool { return len(a.pending()) >= 16 })
		times := a.count("SELECT count(*) FROM (SELECT DISTINCT payload, created_at FROM consumer_messages) x")
		if n := len(a.pending()); times != n {
			t.Errorf("fires: got %d messages at %d times, want each once", n, times)
		}
		perSecond := "SELECT COALESCE(MAX(n), 0) FROM (SELECT count(*) AS n FROM consumer_messages GROUP BY payload, " + a.wholeSecond("created_at") + ") x"
		if most := a.count(perSecond); most > 1 {
			t.Errorf("a schedule fired %d times in one second, want once", most)
		}
	})
}

// wholeSecond is an instant's second, as SQL.
func (a *app) wholeSecond(column string) string {
	if a.db.Dialect().Name().String() == "pg" {
		return "date_trunc('second', " + column + ")"
	}
	if a.db.Dialect().Name() == dialect.MySQL { // where a division has a fraction
		return column + " DIV 1000000"
	}
	return column + " / 1000000"
}

func TestSchedulesFireOnTime(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var fires moments
		a := newApp(bus.Consume("c", func(context.Context, order) error { fires.add(); return nil }))
		begun := time.Now() // midnight UTC
		if _, err := a.scheduler().ScheduleAnother(ctx, a.db, order{}, "0 30 * * * *", "UTC"); err != nil {
			t.Fatal(err)
		}
		a.fireSchedules(ctx, schedule.ProcessorConfig{PollInterval: time.Hour})
		r := a.startWith(ctx, outbox.ProcessorConfig{PollInterval: 10 * time.Minute})
		poll(t, "four fires", 24*time.Hour, time.Minute, func() bool { return fires.len() == 4 })
		r.mustStop()
		for i := range 4 {
			want := time.Duration(i)*time.Hour + 30*time.Minute
			if got := fires.at(i).Sub(begun); got < want || got > want+time.Second {
				t.Errorf("fire %d: got %s, want %s", i, got, want)
			}
		}
	})
}

func TestOneCatchUpAfterDowntime(t *testing.T) {
	for _, test := range []struct {
		name string
		skip bool
		want int
	}{{"catch up", false, 2}, {"skip", true, 1}} {
		t.Run(test.name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var fires moments
				a := newApp(bus.Consume("c", func(context.Context, order) error { fires.add(); return nil }))
				if _, err := a.scheduler().ScheduleAnother(ctx, a.db, order{}, "0 0 * * * *", "UTC"); err != nil {
					t.Fatal(err)
				}
				<-time.After(5*time.Hour + 30*time.Minute) // nobody is there
				a.fireSchedules(ctx, schedule.ProcessorConfig{SkipMissed: test.skip, PollInterval: time.Hour})
				r := a.startWith(ctx, outbox.ProcessorConfig{PollInterval: 10 * time.Minute})
				<-time.After(45 * time.Minute) // until a quarter past the next hour
				r.mustStop()
				if got := fires.len(); got != test.want {
					t.Errorf("fires: got %d, want %d", got, test.want)
				}
			})
		})
	}
}
