package outbox_test

import (
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestMatchingMessagesAreListedInParts, and only up to a given id.
func TestMatchingMessagesAreListedInParts(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"), testapp.Consumed("k", bus.Ordered(bus.BlockKey)))
		for range 20 {
			a.Produce(order{}, outbox.OrderingKey("a"))
		}
		a.Exec("UPDATE consumer_messages SET attempts = 1 WHERE id <= 30")
		st := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{}))
		for _, consumer := range []string{"c", "k"} {
			filter := store.PendingFilter{Consumer: consumer, Retrying: true}
			found, last := 0, int64(0)
			for more, calls := true, 0; more; calls++ {
				var ids []int64
				var err error
				before := last
				if ids, last, more, err = st.Pending.Matching(t.Context(), db, filter, last, 24, 5); err != nil || calls > 10 ||
					len(ids) > 5 || last < before {
					t.Fatalf("matching: got %v up to %d and %v in call %d", ids, last, err, calls)
				}
				found += len(ids)
			}
			if want := a.Count("SELECT count(*) FROM consumer_messages WHERE id <= 24 AND consumer_type = ?", consumer); found != want ||
				last != 24 {
				t.Errorf("matching: got %d up to %d, want %d up to 24", found, last, want)
			}
		}
	})
}

// TestMatchingLooksAtAPartAtATime: a filter that matches little does not read the whole table in one call.
func TestMatchingLooksAtAPartAtATime(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		a.Fill(60_000, "order.placed")
		nth := func(n int) int64 { // ids have gaps
			return int64(a.Count("SELECT id FROM consumer_messages ORDER BY id LIMIT 1 OFFSET ?", n-1))
		}
		a.Exec("UPDATE consumer_messages SET attempts = 1 WHERE id > ?", nth(59_990))
		part, all := nth(50_000), nth(60_000)
		st := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{}))
		filter := store.PendingFilter{Retrying: true}
		ids, last, more, err := st.Pending.Matching(t.Context(), db, filter, 0, 0, 100)
		if err != nil || len(ids) != 0 || !more || last != part {
			t.Errorf("the first part: got %v up to %d, more %t and %v, want nothing up to 50,000, and more", ids, last, more, err)
		}
		ids, last, more, err = st.Pending.Matching(t.Context(), db, filter, last, 0, 100)
		if err != nil || len(ids) != 10 || more || last != all {
			t.Errorf("the second part: got %v up to %d, more %t and %v, want ten, and no more", ids, last, more, err)
		}
	})
}
