package outbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func TestAdminChangesWhatMatches(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"), testapp.Consumed("k", bus.Ordered(bus.BlockKey)))
		client, ctx := a.Admin(), t.Context()
		for range 20 {
			a.Produce(order{}, outbox.OrderingKey("a"))
		}
		if later, err := client.RescheduleWhere(ctx, db, time.Now().Add(time.Hour), admin.Chunk{Limit: 1000}); err != nil ||
			later.Changed != 40 || later.More {
			t.Fatalf("reschedule all: got %+v and %v, want 40", later, err)
		}
		count := func(f admin.Filter) int { return testapp.Must[int](t)(client.Count(ctx, db, f)) }
		a.Exec("UPDATE consumer_messages SET attempts = 1 WHERE id <= 30")
		for _, consumer := range []string{"c", "k"} { // in batches, up to what was seen
			filter := admin.Filter{Consumer: consumer, Retrying: true}
			want, changed, last := count(filter), 0, int64(0)
			for more, calls := true, 0; more; calls++ {
				result, err := client.RescheduleWhere(ctx, db, time.Now().Add(-time.Hour), admin.Chunk{Filter: filter, After: last, UpTo: 24, Limit: 5})
				if err != nil || calls > 10 || result.Changed > 5 || result.Last < last {
					t.Fatalf("reschedule: got %+v and %v in call %d", result, err, calls)
				}
				changed, last, more = changed+result.Changed, result.Last, result.More
			}
			if upTo := a.Count("SELECT count(*) FROM consumer_messages WHERE id <= 24 AND consumer_type = ?", consumer); changed != upTo ||
				changed >= want || last != 24 {
				t.Errorf("rescheduled: got %d up to %d, want %d of %d, up to 24", changed, last, upTo, want)
			}
		}
		if ready := count(admin.Filter{State: admin.Ready}); ready != 24 {
			t.Errorf("ready: got %d, want 24", ready)
		}
		result, err := client.CancelWhere(ctx, db, admin.Chunk{Filter: admin.Filter{State: admin.Delayed}, Limit: 1000})
		if err != nil || result.Changed != 16 || result.More || result.Last != 40 || count(admin.Filter{}) != 24 {
			t.Errorf("cancel: got %+v and %v, want the 16 that are delayed", result, err)
		}
		for name, b := range map[string]admin.Chunk{"no limit": {}, "too many": {Limit: 10_001}, "before all": {Limit: 1, After: -1},
			"up to nothing": {Limit: 1, UpTo: -1}, "a state that there is not": {Limit: 1, Filter: admin.Filter{State: "x"}}} {
			if result, err := client.CancelWhere(ctx, db, b); !errors.Is(err, bus.ErrInvalidOption) || result.Changed != 0 ||
				result.Last != b.After {
				t.Errorf("%s: got %+v and %v, want ErrInvalidOption", name, result, err)
			}
		}
		if _, err := client.RescheduleWhere(ctx, db, time.Time{}, admin.Chunk{Limit: 1}); !errors.Is(err, bus.ErrInvalidOption) {
			t.Errorf("the zero time: got %v, want ErrInvalidOption", err)
		}
		if count(admin.Filter{}) != 24 {
			t.Error("what was refused has changed something")
		}
	})
}

// TestAdminLeavesWhatIsClaimed: a bulk change goes past what a process holds, and tells which it is.
func TestAdminLeavesWhatIsClaimed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		started, release := make(chan struct{}, 10), make(chan struct{})
		a := testapp.New(t, db, testapp.Consumed("other"), bus.Consume("c", func(context.Context, refund) error {
			started <- struct{}{}
			<-release
			return nil
		}))
		a.Produce(refund{})
		a.Produce(refund{})
		r := a.Start(testapp.Fast())
		<-started
		<-started
		a.Produce(refund{}, outbox.Delay(time.Hour))
		result, err := a.Admin().CancelWhere(t.Context(), db, admin.Chunk{Limit: 100})
		if err != nil || result.Changed != 1 || len(result.Running) != 2 || result.More || result.Last != 3 {
			t.Errorf("cancel: got %+v and %v, want one changed and two running", result, err)
		}
		close(release)
		testapp.Eventually(t, "the others are done", a.Empty)
		r.MustStop()
	})
}

// TestAdminLooksAtAPartAtATime: a filter that matches little does not read the whole table in one call.
func TestAdminLooksAtAPartAtATime(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		a.Fill(60_000, "order.placed")
		nth := func(n int) int64 { // ids have gaps
			return int64(a.Count("SELECT id FROM consumer_messages ORDER BY id LIMIT 1 OFFSET ?", n-1))
		}
		a.Exec("UPDATE consumer_messages SET attempts = 1 WHERE id > ?", nth(59_990))
		part, all := nth(50_000), nth(60_000)
		b := admin.Chunk{Filter: admin.Filter{Retrying: true}, Limit: 100}
		first, err := a.Admin().CancelWhere(t.Context(), db, b)
		if err != nil || first.Changed != 0 || !first.More || first.Last != part {
			t.Errorf("the first part: got %+v and %v, want nothing up to 50,000, and more", first, err)
		}
		b.After = first.Last
		second, err := a.Admin().CancelWhere(t.Context(), db, b)
		if err != nil || second.Changed != 10 || second.More || second.Last != all {
			t.Errorf("the second part: got %+v and %v, want ten, and no more", second, err)
		}
	})
}
