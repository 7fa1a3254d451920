package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// fireSchedules runs a schedule processor until the test ends.
func fireSchedules(ctx context.Context, a *app, config schedule.ProcessorConfig) {
	a.Helper()
	p, err := schedule.NewProcessor(a.DB, a.Registry, a.Producer, config)
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

// rowsOf is the first page of schedules.
func rowsOf(t *testing.T, s *schedule.Scheduler, db bun.IDB, filter schedule.Filter) []schedule.Schedule {
	t.Helper()
	rows, _, err := s.List(t.Context(), db, filter, admin.Page{})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// makeDue moves schedules into the past.
func makeDue(a *app, by time.Duration) {
	a.Helper()
	if a.DB.Dialect().Name().String() == "pg" {
		a.Exec("UPDATE scheduled_messages SET available_after = statement_timestamp() - ? * interval '1 microsecond'", by.Microseconds())
		return
	}
	a.Exec("UPDATE scheduled_messages SET available_after = "+testapp.NowOf(a.DB)+" - ?", by.Microseconds())
}

func TestScheduleWritesARowAndFires(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var one, two atomic.Int64
		a := testapp.New(t, db, testapp.Counting("one", &one), testapp.Counting("two", &two))
		s := a.Scheduler()
		id, err := s.Upsert(t.Context(), db, order{ID: "1"}, "0 0 12 * * MON", "Europe/Amsterdam",
			schedule.Tag("weekly"), schedule.Name("monday"), schedule.Header("tenant", "acme"))
		if err != nil {
			t.Fatal(err)
		}
		rows := rowsOf(t, s, db, schedule.Filter{Name: "monday"})
		amsterdam := testapp.Must[*time.Location](t)(time.LoadLocation("Europe/Amsterdam"))
		if len(rows) != 1 || rows[0].ID != id || rows[0].Tag != "weekly" || rows[0].PayloadType != "order.placed" ||
			string(rows[0].Payload) != `{"id":"1","n":0}` || rows[0].Headers["tenant"] != "acme" || rows[0].Paused || !rows[0].LastFire.IsZero() {
			t.Fatalf("row: got %+v", rows)
		}
		if next := rows[0].NextFire.In(amsterdam); next.Weekday() != time.Monday || next.Hour() != 12 || !next.After(time.Now()) ||
			next.After(time.Now().AddDate(0, 0, 8)) {
			t.Errorf("next fire: got %s, want next Monday at noon", next)
		}
		makeDue(a, time.Minute)
		fireSchedules(t.Context(), a, schedule.ProcessorConfig{})
		testapp.Eventually(t, "a message for each consumer", func() bool { return len(a.Pending()) == 2 })
		for _, m := range a.Pending() {
			if !strings.Contains(m.Headers, `"tenant":"acme"`) || m.Payload != `{"id":"1","n":0}` {
				t.Errorf("message: got %+v, want the schedule's payload and headers", m)
			}
		}
		after := rowsOf(t, s, db, schedule.Filter{})[0]
		if !after.NextFire.Equal(rows[0].NextFire) || after.LastFire.IsZero() {
			t.Errorf("after the fire: got %+v, want it advanced to %s", after, rows[0].NextFire)
		}
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "both consumers ran", func() bool { return one.Load() == 1 && two.Load() == 1 && a.Empty() })
		r.MustStop()
	})
}

func TestNamedSchedulesAreUpserts(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &n))
		s := a.Scheduler()
		save := func(expression string, payload order, tag string) (int64, schedule.Schedule) {
			id := testapp.Must[int64](t)(s.Upsert(t.Context(), db, payload, expression, "UTC", schedule.Name("boot"), schedule.Tag(tag)))
			return id, rowsOf(t, s, db, schedule.Filter{Name: "boot"})[0]
		}
		id, first := save("@every 1h", order{ID: "1"}, "a")
		testapp.OK(t, s.Pause(t.Context(), db, id))
		again, second := save("@every 1h", order{ID: "2"}, "b")
		if again != id || !second.NextFire.Equal(first.NextFire) || string(second.Payload) != `{"id":"2","n":0}` || second.Tag != "b" ||
			!second.Paused {
			t.Errorf("the same again: got %+v, want the same row with a new payload, still due at %s, still paused", second, first.NextFire)
		}
		if _, third := save("@every 2h", order{ID: "2"}, "b"); third.NextFire.Equal(first.NextFire) {
			t.Errorf("another expression: got %+v, want another next fire", third)
		}
		if n := len(rowsOf(t, s, db, schedule.Filter{})); n != 1 {
			t.Errorf("schedules: got %d, want 1", n)
		}
	})
}

func TestSchedulesAreManaged(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &n), bus.Consume("r", func(context.Context, refund) error { return nil }))
		s, ctx := a.Scheduler(), t.Context()
		var ids []int64
		for i := range 4 {
			ids = append(ids, testapp.Must[int64](t)(s.Create(ctx, db, order{ID: fmt.Sprint(i)}, "@yearly", "UTC",
				schedule.Tag(fmt.Sprint("tag", i/2)))))
		}
		if n := testapp.Must[int](t)(s.DeleteByTag(ctx, db, "tag0")); n != 2 {
			t.Errorf("deleted by tag: got %d, want 2", n)
		}
		if err := s.DeleteByID(ctx, db, ids[2]); err != nil {
			t.Errorf("delete by id: %v", err)
		}
		id := ids[3]
		get := func() schedule.Schedule {
			return rowsOf(t, s, db, schedule.Filter{Tag: "tag1"})[0]
		}
		yearly := get().NextFire
		testapp.OK(t, errors.Join(s.UpdateSchedule(ctx, db, id, "@every 30m", "UTC"), s.UpdatePayload(ctx, db, id, refund{ID: "x"})))
		if got := get(); got.Expression != "@every 30m" || got.NextFire.Equal(yearly) || got.PayloadType != "order.refunded" ||
			string(got.Payload) != `{"id":"x"}` {
			t.Errorf("updated: got %+v", got)
		}
		testapp.OK(t, s.Pause(ctx, db, id))
		makeDue(a, time.Minute)
		fireSchedules(ctx, a, schedule.ProcessorConfig{PollInterval: 20 * time.Millisecond})
		other := testapp.Must[int64](t)(s.Create(ctx, db, order{ID: "other"}, "@yearly", "UTC"))
		testapp.OK(t, s.Trigger(ctx, db, other))
		testapp.Eventually(t, "the other fires", func() bool { return len(a.Pending()) == 1 })
		if got := a.Pending()[0].Payload; got != `{"id":"other","n":0}` {
			t.Errorf("fired: got %s, want not the paused one", got)
		}
		testapp.OK(t, s.Resume(ctx, db, id))
		if got := get(); got.Paused || !got.NextFire.After(time.Now().Add(20*time.Minute)) {
			t.Errorf("resumed: got %+v, want the next fire in 30 minutes", got)
		}
		for what, err := range map[string]error{"delete": s.DeleteByID(ctx, db, 9999), "pause": s.Pause(ctx, db, 9999),
			"resume":  s.Resume(ctx, db, 9999),
			"run now": s.Trigger(ctx, db, 9999), "run now 0": s.Trigger(ctx, db, 0), "update": s.UpdateSchedule(ctx, db, 9999, "@daily",
				"UTC"), "delete 0": s.DeleteByID(ctx, db, 0)} {
			if !errors.Is(err, schedule.ErrNotFound) {
				t.Errorf("%s of a missing schedule: got %v, want ErrNotFound", what, err)
			}
		}
	})
}

func TestABadScheduleDoesNotDelayOthers(t *testing.T) {
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
				a := testapp.New(t, db, testapp.Counting("c", &n))
				producer, err := outbox.NewProducer(a.Registry, outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{
					bus.PerMessage(func(_ context.Context, m *bus.Message) error {
						if strings.Contains(string(m.Payload), "refuse") {
							return errors.New("the chain refuses")
						}
						return nil
					})}})
				if err != nil {
					t.Fatal(err)
				}
				a.Producer = producer
				s := a.Scheduler()
				for i := range 5 {
					tag := "good"
					if i == 2 {
						tag = "bad"
					}
					testapp.Must[int64](t)(s.Create(t.Context(), db, order{ID: fmt.Sprint(i)}, "@yearly", "UTC", schedule.Tag(tag)))
				}
				a.Exec(test.spoil)
				makeDue(a, time.Second)
				fireSchedules(t.Context(), a, schedule.ProcessorConfig{})
				good := 4
				if test.want == "" {
					good = 5
				}
				testapp.Eventually(t, "the good ones fire", func() bool { return len(a.Pending()) == good })
				testapp.Eventually(t, "the bad one is marked", func() bool {
					bad := rowsOf(t, s, db, schedule.Filter{Tag: "bad"})[0]
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
	a := testapp.New(t, testdb.SQLite(t), testapp.Counting("c", &n))
	s, ctx, db := a.Scheduler(), t.Context(), a.DB
	tests := []struct {
		name string
		err  error
		want error
	}{
		{"expression", testapp.Second(s.Create(ctx, db, order{}, "61 * * * * *", "UTC")), schedule.ErrExpression},
		{"never", testapp.Second(s.Create(ctx, db, order{}, "0 0 0 30 2 *", "UTC")), schedule.ErrExpression},
		{"zone", testapp.Second(s.Create(ctx, db, order{}, "@daily", "Nowhere")), schedule.ErrExpression},
		{"no zone", testapp.Second(s.Create(ctx, db, order{}, "@daily", "")), schedule.ErrExpression},
		{"no consumer", testapp.Second(s.Create(ctx, db, refund{}, "@daily", "UTC")), bus.ErrNoConsumer},
		{"pointer", testapp.Second(s.Create(ctx, db, &order{}, "@daily", "UTC")), bus.ErrInvalidPayload},
		{"name", testapp.Second(s.Upsert(ctx, db, order{}, "@daily", "UTC", schedule.Name("\x00"))), bus.ErrInvalidText},
		{"tag", testapp.Second(s.Create(ctx, db, order{}, "@daily", "UTC", schedule.Tag(strings.Repeat("t", 256)))), bus.ErrTooLarge},
		{"header", testapp.Second(s.Create(ctx, db, order{}, "@daily", "UTC", schedule.Header("", "v"))), bus.ErrInvalidOption},
		{
			"header of the library", testapp.Second(s.Create(ctx, db, order{}, "@daily", "UTC", schedule.Header("asyncmonolith-schema", "7"))),
			bus.ErrInvalidOption,
		},
		{"nil option", testapp.Second(s.Create(ctx, db, order{}, "@daily", "UTC", nil)), bus.ErrInvalidOption},
		{"empty name", testapp.Second(s.Upsert(ctx, db, order{}, "@daily", "UTC", schedule.Name(""))), bus.ErrInvalidOption},
		{"empty tag of a schedule", testapp.Second(s.Create(ctx, db, order{}, "@daily", "UTC", schedule.Tag(""))), bus.ErrInvalidOption},
		{"another mistake beside a payload", testapp.Second(s.Create(ctx, db, refund{}, "61 * * * * *", "UTC")), schedule.ErrExpression},
		{"empty tag", testapp.Second(s.DeleteByTag(ctx, db, "")), bus.ErrInvalidOption},
		{"updated expression", s.UpdateSchedule(ctx, db, 1, "x", "UTC"), schedule.ErrExpression},
		{"updated payload", s.UpdatePayload(ctx, db, 1, refund{}), bus.ErrNoConsumer},
	}
	for _, test := range tests {
		if !errors.Is(test.err, test.want) || !strings.HasPrefix(test.err.Error(), "schedule: ") {
			t.Errorf("%s: got %v, want %v", test.name, test.err, test.want)
		}
	}
	if testapp.Second(s.Create(ctx, nil, order{}, "@daily", "UTC")) == nil ||
		testapp.Third(s.List(ctx, (*bun.DB)(nil), schedule.Filter{}, admin.Page{})) == nil {
		t.Error("a nil database handle: got no error")
	}
	if _, err := schedule.NewProcessor(db, a.Registry, a.Producer, schedule.ProcessorConfig{Concurrency: 2}); err == nil {
		t.Error("two loops on SQLite: got no error")
	}
}

// Promise: schedule-once
func TestFiveInstancesFireEachTimeOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { return nil }))
		s := a.Scheduler()
		for i := range 4 {
			testapp.Must[int64](t)(s.Create(t.Context(), db, order{ID: fmt.Sprint(i)}, "* * * * * *", "UTC"))
		}
		for range 5 {
			fireSchedules(t.Context(), a, schedule.ProcessorConfig{})
		}
		testapp.Eventually(t, "several fires", func() bool { return len(a.Pending()) >= 16 })
		type fire struct{ payload, headers string }
		fired := make(map[fire]int)
		for _, row := range a.Pending() {
			if !strings.Contains(row.Headers, "asyncmonolith-fired-for") {
				t.Errorf("got headers %s, want the time that fired", row.Headers)
			}
			fired[fire{row.Payload, row.Headers}]++
		}
		for f, n := range fired {
			if n > 1 {
				t.Errorf("%s fired %d times for %s, want once", f.payload, n, f.headers)
			}
		}
	})
}

func TestSchedulesFireOnTime(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var fires testapp.Moments
		a := newApp(bus.Consume("c", func(context.Context, order) error { fires.Add(); return nil }))
		begun := time.Now() // midnight UTC
		testapp.OK(t, testapp.Second(a.Scheduler().Create(ctx, a.DB, order{}, "0 30 * * * *", "UTC")))
		fireSchedules(ctx, a, schedule.ProcessorConfig{PollInterval: time.Hour})
		r := a.StartWith(ctx, outbox.ProcessorConfig{PollInterval: 10 * time.Minute})
		testapp.Poll(t, "four fires", 24*time.Hour, time.Minute, func() bool { return fires.Len() == 4 })
		r.MustStop()
		for i := range 4 {
			want := time.Duration(i)*time.Hour + 30*time.Minute
			if got := fires.At(i).Sub(begun); got < want || got > want+time.Second {
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
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var fires testapp.Moments
				a := newApp(bus.Consume("c", func(context.Context, order) error { fires.Add(); return nil }))
				testapp.OK(t, testapp.Second(a.Scheduler().Create(ctx, a.DB, order{}, "0 0 * * * *", "UTC")))
				<-time.After(5*time.Hour + 30*time.Minute) // nobody is there
				fireSchedules(ctx, a, schedule.ProcessorConfig{Misfire: misfire(test.skip), PollInterval: time.Hour})
				r := a.StartWith(ctx, outbox.ProcessorConfig{PollInterval: 10 * time.Minute})
				<-time.After(45 * time.Minute) // until a quarter past the next hour
				r.MustStop()
				if got := fires.Len(); got != test.want {
					t.Errorf("fires: got %d, want %d", got, test.want)
				}
			})
		})
	}
}

// TestFiresSkipWhatOverlaps: with SkipOverlap one message for each consumer waits, however often the schedule fires, and
// the next fire after it was consumed makes another.
func TestFiresSkipWhatOverlaps(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &n), testapp.Counting("d", &n))
		s, ctx := a.Scheduler(), t.Context()
		set := []schedule.Spec{
			{Name: "plain", Payload: order{ID: "plain"}, Expression: "@yearly", Zone: "UTC"},
			{Name: "single", Payload: order{ID: "single"}, Expression: "@yearly", Zone: "UTC", Headers: map[string]string{"tenant": "acme"},
				SkipOverlap: true},
		}
		testapp.OK(t, s.Sync(ctx, db, "shop", set...))
		p := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, a.Registry, a.Producer, schedule.ProcessorConfig{}))
		fire := func() {
			makeDue(a, time.Second)
			testapp.OK(t, testapp.Second(p.FireDue(ctx)))
		}
		pending := func(id string) int {
			return a.Count("SELECT COUNT(*) FROM consumer_messages WHERE payload LIKE '%" + id + "%'")
		}
		for range 3 {
			fire()
		}
		if plain, single := pending("plain"), pending("single"); plain != 6 || single != 2 {
			t.Errorf("after three fires: got %d and %d messages, want 6 of the plain schedule and 2 of the other", plain, single)
		}
		if row := listed(a)["single"]; !row.SkipOverlap || len(row.Headers) != 1 {
			t.Errorf("listed: got %+v, want SkipOverlap and the header that was declared", row)
		}
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "all are consumed", func() bool { return n.Load() == 8 && pending("") == 0 })
		r.MustStop()
		fire()
		if single := pending("single"); single != 2 {
			t.Errorf("fired again: got %d messages, want 2", single)
		}
	})
}

func misfire(skip bool) schedule.Misfire {
	if skip {
		return schedule.Skip
	}
	return schedule.FireOnce
}

// TestAChangeOfAZonesRulesMovesTheNextFire: a schedule was written with other rules of its zone, or by a clock that was set back
// since. The next boot sets its next fire time anew. It keeps one that is due, one that is an occurrence, and that of @every.
func TestAChangeOfAZonesRulesMovesTheNextFire(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		s, ctx := a.Scheduler(), t.Context()
		write := func(expression string) schedule.Schedule {
			t.Helper()
			id := testapp.Must[int64](t)(s.Upsert(ctx, db, order{}, expression, "Europe/Amsterdam", schedule.Name(expression)))
			return testapp.Must[schedule.Schedule](t)(s.Get(ctx, db, id))
		}
		const july, every = "0 0 12 1 7 *", "@every 10000h"
		for _, c := range []struct {
			expression string
			by         time.Duration // what its next fire time is off by
			kept       bool
		}{
			{july, 0, true}, {july, -time.Hour, false}, {july, time.Hour, false}, {july, -20000 * time.Hour, true},
			{every, 0, true}, {every, -time.Hour, true}, {every, time.Hour, false}, {every, -20000 * time.Hour, true},
		} {
			a.Exec("DELETE FROM scheduled_messages")
			first := write(c.expression)
			at := first.NextFire.Add(c.by)
			x := refusing{app: a}
			x.setTimes(at, at.Add(-30000*time.Hour))
			again := write(c.expression)
			if c.kept && !again.NextFire.Equal(at) || !c.kept && again.NextFire.Sub(first.NextFire).Abs() > time.Minute {
				t.Errorf("%s, set to %s: got %s, %t to keep it, else %s", c.expression, at, again.NextFire, c.kept, first.NextFire)
			}
		}
	})
}
