package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// listed returns the schedules by name.
func listed(a *app) map[string]schedule.Schedule {
	a.Helper()
	byName := make(map[string]schedule.Schedule)
	for _, s := range rowsOf(a.T, a.Scheduler(), a.DB, schedule.Filter{}) {
		byName[s.Name] = s
	}
	return byName
}

func TestSyncWritesWhatIsDeclaredAndDropsTheRest(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &n))
		s, ctx := a.Scheduler(), t.Context()
		testapp.Must[int64](t)(s.Upsert(ctx, db, order{}, "@yearly", "UTC", schedule.Name("elsewhere"), schedule.Tag("other")))
		testapp.Must[int64](t)(s.Create(ctx, db, order{}, "@yearly", "UTC", schedule.Tag("shop")))
		set := []schedule.Spec{
			{Name: "b", Payload: order{ID: "b"}, Expression: "@yearly", Zone: "UTC"},
			{Name: "a", Payload: order{ID: "a"}, Expression: "@yearly", Zone: "UTC", Headers: map[string]string{"tenant": "acme"}},
		}
		testapp.OK(t, s.Sync(ctx, db, "shop", set...))
		first := listed(a)
		if len(first) != 3 || first["a"].Tag != "shop" || first["a"].Headers["tenant"] != "acme" ||
			string(first["b"].Payload) != `{"id":"b","n":0}` {
			t.Errorf("schedules: got %+v, want those declared and that of another tag", first)
		}
		testapp.OK(t, s.Sync(ctx, db, "shop", set[1], schedule.Spec{Name: "c", Payload: order{}, Expression: "@daily", Zone: "UTC"}))
		second := listed(a)
		_, dropped := second["b"]
		if len(second) != 3 || dropped || second["a"].ID != first["a"].ID || second["c"].Tag != "shop" {
			t.Errorf("schedules of the next release: got %+v, want a kept, b gone and c new", second)
		}
		err := s.Sync(ctx, db, "shop", set[0], set[0], schedule.Spec{Name: "d", Payload: refund{}, Expression: "x", Zone: "UTC"},
			schedule.Spec{Payload: order{}, Expression: "@daily", Zone: "UTC"})
		for _, want := range []string{`schedule 1 "b": `, "declared twice", `schedule 2 "d": `, `no consumer`, `"x"`, `schedule 3 "": `,
			"the name is empty"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("bad sets: got %v, want it to say %s", err, want)
			}
		}
		if err := s.Sync(ctx, db, "", set...); !errors.Is(err, bus.ErrInvalidOption) || len(listed(a)) != 3 {
			t.Errorf("no tag: got %v, want ErrInvalidOption and nothing changed", err)
		}
		if err := s.Sync(ctx, db, "shop"); err != nil || len(listed(a)) != 1 {
			t.Errorf("an empty set: got %v and %v, want only that of the other tag left", err, listed(a))
		}
	})
}

// TestSyncsOfTwoReleasesDoNotDeadlock starts many instances of both at once.
func TestSyncsOfTwoReleasesDoNotDeadlock(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &n))
		s := a.Scheduler()
		errs := make(chan error, 24)
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for range 3 {
					var set []schedule.Spec
					for j := range 10 { // each release has others that the other one drops
						set = append(set, schedule.Spec{Name: fmt.Sprint("s", (j*3+i%2*7)%20), Payload: order{}, Expression: "@yearly", Zone: "UTC"})
					}
					errs <- s.Sync(context.WithoutCancel(t.Context()), db, "shop", set...)
				}
			})
		}
		all.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
		if got := len(listed(a)); got != 10 {
			t.Errorf("schedules: got %d, want the set of one release", got)
		}
	})
}

func TestAScheduleNeedsANameOrToBeOneMore(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	a := testapp.New(t, testdb.SQLite(t), testapp.Counting("c", &n))
	_, err := a.Scheduler().Upsert(t.Context(), a.DB, order{}, "@daily", "UTC")
	if !errors.Is(err, bus.ErrInvalidOption) || !strings.Contains(err.Error(), "Create") {
		t.Errorf("without a name: got %v, want ErrInvalidOption that says what else there is", err)
	}
	if _, err := a.Scheduler().Create(t.Context(), a.DB, order{}, "@daily", "UTC", schedule.Name("n")); !errors.Is(err, bus.ErrInvalidOption) {
		t.Errorf("another with a name: got %v, want ErrInvalidOption", err)
	}
	if got := len(listed(a)); got != 0 {
		t.Errorf("schedules: got %d, want none", got)
	}
}

// TestConsumersKnowWhichInstantWasFiredFor fires late, and by hand.
func TestConsumersKnowWhichInstantWasFiredFor(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		fired := make(chan time.Time, 10)
		a := testapp.New(t, db, bus.Consume("c", func(ctx context.Context, o order) error {
			at, ok := schedule.ScheduledTimeFromContext(ctx)
			if ok != (o.ID == "scheduled") {
				return fmt.Errorf("order %q: fired for %s, %t", o.ID, at, ok)
			}
			if ok {
				fired <- at
			}
			return nil
		}))
		s := a.Scheduler()
		id := testapp.Must[int64](t)(s.Create(t.Context(), db, order{ID: "scheduled"}, "@yearly", "UTC", schedule.Header("tenant", "acme")))
		makeDue(a, 90*time.Minute)
		due := rowsOf(t, s, db, schedule.Filter{})[0].NextFire
		a.Start(testapp.Fast())
		fireSchedules(t.Context(), a, schedule.ProcessorConfig{})
		if got := <-fired; !got.Equal(due) || got.Location() != time.UTC {
			t.Errorf("fired for: got %s, want %s", got, due)
		}
		before := rowsOf(t, s, db, schedule.Filter{})[0].LastFire
		testapp.OK(t, s.Trigger(t.Context(), db, id))
		if got := <-fired; got.Before(before) || got.After(before.Add(time.Minute)) {
			t.Errorf("fired by hand for: got %s, want the time of asking, after %s", got, before)
		}
		a.Produce(order{ID: "plain"})
		testapp.Eventually(t, "all are consumed", a.Empty)
		if got := len(a.Poisoned()); got != 0 {
			t.Errorf("poisoned: got %d, want none", got)
		}
	})
}

// TestSetsDoNotTakeNamesFromEachOther syncs two that both declare a name.
func TestSetsDoNotTakeNamesFromEachOther(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &n))
		cleanup := schedule.Spec{Name: "cleanup", Payload: order{}, Expression: "@daily", Zone: "UTC"}
		testapp.OK(t, a.Scheduler().Sync(t.Context(), db, "team-a", cleanup))
		if err := a.Scheduler().Sync(t.Context(), db, "team-b", cleanup); !errors.Is(err, bus.ErrInvalidOption) ||
			!strings.Contains(err.Error(), "team-a") {
			t.Errorf("a name of another set: got %v, want ErrInvalidOption that names the set", err)
		}
		if got := listed(a); len(got) != 1 {
			t.Errorf("schedules: got %v, want that of the first set", got)
		}
	})
}

// TestAScheduleWithFullHeadersFires has no room for the instant.
func TestAScheduleWithFullHeadersFires(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	a := testapp.New(t, testdb.SQLite(t), testapp.Counting("c", &n))
	testapp.Must[int64](t)(a.Scheduler().Create(t.Context(), a.DB, order{}, "@yearly", "UTC",
		schedule.Header("k", strings.Repeat("v", limits.Headers-1))))
	makeDue(a, time.Second)
	fireSchedules(t.Context(), a, schedule.ProcessorConfig{})
	testapp.Eventually(t, "it fires", func() bool { return len(a.Pending()) == 1 })
}
