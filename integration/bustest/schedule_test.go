package bustest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

func mustSchedule(t testing.TB, k *bustest.Kit, db bun.IDB, payload bus.Payload, expression string, options ...schedule.Option) int64 {
	t.Helper()
	id := testapp.Must[int64](t)(k.Scheduler.Create(k.Context(), db, payload, expression, "UTC", options...))
	return id
}

func TestSchedulesFireAtTheirTimes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var at []string
		k := bustest.KitConfig{Start: start().Add(time.Minute)}.NewKit(t, db,
			bus.Consume("report", func(ctx context.Context, o OrderPlaced) error {
				m, _ := bus.MessageFromContext(ctx)
				at = append(at, o.ID+" "+m.CreatedAt.Format("15:04:05"))
				return nil
			}))
		mustSchedule(t, k, db, OrderPlaced{"hourly"}, "0 0 * * * *")
		mustSchedule(t, k, db, OrderPlaced{"half past"}, "0 30 * * * *")
		k.Advance(29*time.Minute - time.Microsecond)
		equal(t, "a microsecond early", consumersOf(k.DrainUntilIdle()), nil)
		k.Advance(time.Microsecond)
		bustest.RequireProduced(t, k, func(o OrderPlaced) bool { return o.ID == "half past" })
		k.Advance(2 * time.Hour)
		if !k.Now().Equal(start().Add(150 * time.Minute)) {
			t.Errorf("now: got %s, want 6:30", k.Now())
		}
		k.DrainUntilIdle()
		equal(t, "fires", at, []string{"half past 04:30:00", "hourly 05:00:00", "half past 05:30:00", "hourly 06:00:00", "half past 06:30:00"})
		got := bustest.RequireScheduled(t, k, func(o OrderPlaced) bool { return o.ID == "hourly" })
		if !got.LastFire.Equal(start().Add(2*time.Hour)) || !got.NextFire.Equal(start().Add(3*time.Hour)) || got.LastError != "" {
			t.Errorf("schedule: got %+v, want it fired at 6:00 and due at 7:00", got)
		}
	})
}

func TestDueSchedulesFireBeforeMessagesRun(t *testing.T) {
	t.Parallel()
	db := sqlite(t)
	var ran []string
	k := bustest.NewKit(t, db, noting("report", &ran))
	id := mustSchedule(t, k, db, OrderPlaced{"1"}, "@yearly")
	for _, run := range []func(){func() { k.ProcessNext() }, func() { k.ProcessNext("report") }, func() { k.DrainUntilIdle() }} {
		testapp.OK(t, k.Scheduler.Trigger(k.Context(), db, id))
		run()
	}
	equal(t, "ran", ran, []string{"1", "1", "1"})
	testapp.OK(t, k.Scheduler.Pause(k.Context(), db, id))
	k.Advance(10 * 366 * 24 * time.Hour)
	equal(t, "paused for ten years", consumersOf(k.DrainUntilIdle()), nil)
}

func TestAdvanceHasALimit(t *testing.T) {
	t.Parallel()
	db := sqlite(t)
	var ran []string
	wantFailure(t, func(t testing.TB) {
		k := bustest.KitConfig{Limit: 5}.NewKit(t, db, noting("report", &ran))
		mustSchedule(t, k, db, OrderPlaced{"1"}, "@every 1s")
		k.Advance(5 * time.Second)
		k.Advance(time.Minute)
	}, "bustest: Advance(1m0s): got 6 schedules fired by ", "want at most 5 (KitConfig.Limit)")
	wantFailure(t, func(t testing.TB) { bustest.NewKit(t, db, noting("report", &ran)).Advance(-time.Second) },
		"bustest: Advance(-1s): 0 or more is allowed")
}

func TestRequireScheduledSaysWhatThereIs(t *testing.T) {
	t.Parallel()
	db := sqlite(t)
	var ran []string
	k := bustest.NewKit(t, db, noting("report", &ran))
	if _, err := k.Scheduler.Upsert(k.Context(), db, OrderPlaced{"1"}, "@daily", "UTC", schedule.Name("report"), schedule.Tag("daily"),
		schedule.Header("tenant", "acme")); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, func(t testing.TB) {
		bustest.RequireScheduled(t, k, func(o OrderPlaced) bool { return o.ID == "2" })
	}, `bustest: RequireScheduled[bustest_test.OrderPlaced]: got none that matches, want one; schedules: order.placed {"id":"1"} at "@daily" UTC`)
	got := bustest.RequireScheduled[OrderPlaced](t, k, nil)
	if got.Name != "report" || got.Tag != "daily" || got.Headers["tenant"] != "acme" {
		t.Errorf("schedule: got %+v, want its name, tag and header", got)
	}
}

func TestAScheduleThatCannotFireDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	db := sqlite(t)
	var ran []string
	k := bustest.NewKit(t, db, noting("report", &ran))
	bad := mustSchedule(t, k, db, OrderPlaced{"bad"}, "@every 1m")
	mustSchedule(t, k, db, OrderPlaced{"good"}, "@every 1m")
	testapp.OK(t, testapp.Second(db.NewRaw("UPDATE scheduled_messages SET cron_timezone = 'Nowhere' WHERE id = ?", bad).Exec(t.Context())))
	k.Advance(2 * time.Minute)
	k.DrainUntilIdle()
	equal(t, "ran", ran, []string{"good", "good"})
}

// TestKitShowsWhatWaitsAndWhatIsPoisoned uses the kit's own tools, by its clock.
func TestKitShowsWhatWaitsAndWhatIsPoisoned(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		k := bustest.NewKit(t, db, bus.Consume("c", func(context.Context, OrderPlaced) error { return bus.Permanent(errors.New("no luck")) }))
		k.Produce(OrderPlaced{ID: "1"}, outbox.Delay(time.Hour))
		list, _, err := k.Admin.List(k.Context(), db, admin.Filter{State: admin.Delayed}, admin.Page{})
		if err != nil || len(list) != 1 || !list[0].AvailableAt.Equal(k.Now().Add(time.Hour)) {
			t.Fatalf("waiting: got %+v, %v, want one that is due in an hour of the kit's", list, err)
		}
		testapp.OK(t, testapp.Second(k.Admin.RunNow(k.Context(), db, list[0].ID)))
		k.DrainUntilIdle()
		if n, err := k.Poison.Count(k.Context(), db, poison.Filter{}); err != nil || n != 1 {
			t.Errorf("poisoned: got %d, %v, want one", n, err)
		}
	})
}
