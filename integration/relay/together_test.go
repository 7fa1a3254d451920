package relay_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// TestTwoProcessesReceiveTheSame: both are given everything, in batches that overlap, and each
// order has one effect.
func TestTwoProcessesReceiveTheSame(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const n = 600
		b := newBroker()
		ship := effects(t, db, "ship")
		var services []*service
		var subs []*subscription
		for i := range 3 {
			sub := b.subscribe()
			sub.batch = 30 + 7*i
			services, subs = append(services, receives(t, db, inbox.NewReceiver("from-shop", sub, inbox.Accept[order]()), ship)), append(subs, sub)
		}
		for _, s := range services {
			s.run()
		}
		services[0].Start(testapp.Fast())
		var wg sync.WaitGroup
		for part := range 3 {
			wg.Go(func() {
				for i := part; i < n; i += 3 {
					b.put(event(fmt.Sprint(i), order{ID: fmt.Sprint(i)}))
				}
			})
		}
		wg.Wait()
		for _, sub := range subs {
			testapp.Eventually(t, "all is acknowledged", func() bool { return sub.acked.Load() == n })
		}
		testapp.Eventually(t, "all is consumed", services[0].Empty)
		if w := wrong(services[0].app, n, "ship"); w != 0 {
			t.Errorf("effects other than one: got %d, want 0", w)
		}
		var fresh int64
		for _, s := range services {
			fresh += s.stats().Accepted
		}
		if fresh != n {
			t.Errorf("new: got %d of all processes, want %d", fresh, n)
		}
	})
}

// TestAnInboxThatIsAway: while its table cannot be written all goes back; then all is taken over.
func TestAnInboxThatIsAway(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const n = 90
		b := newBroker()
		for i := range n {
			b.put(event(fmt.Sprint(i), order{ID: fmt.Sprint(i)}))
		}
		for _, table := range []string{"inbox_messages", "consumer_messages"} {
			sub := b.subscribe()
			s := receives(t, db, inbox.NewReceiver("from-"+table, sub, inbox.Accept[order]()), testapp.Consumed("ship"))
			s.run()
			testapp.Eventually(t, "all is acknowledged", func() bool { return sub.acked.Load() == n })
			s.Exec("ALTER TABLE " + table + " RENAME TO away")
			b.put(event(table, order{ID: table}))
			testapp.Eventually(t, "it goes back", func() bool { return sub.given.Load() > 0 })
			if acked := sub.acked.Load(); acked != n {
				t.Errorf("acknowledged: got %d, want %d", acked, n)
			}
			s.Exec("ALTER TABLE away RENAME TO " + table)
			testapp.Eventually(t, "it is taken over", func() bool {
				st := s.stats()
				return sub.acked.Load() == n+1 && st.Accepted == n+1 &&
					st.Paused == ""
			})
			s.stop()
			b = newBroker()
			for i := range n {
				b.put(event(fmt.Sprint(i), order{ID: fmt.Sprint(i)}))
			}
		}
	})
}
