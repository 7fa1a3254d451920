package older_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestKeysAreNotSeen: an older processor runs what has no key, and leaves the others to a newer
// one, as they are.
func TestKeysAreNotSeen(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		var runs journal
		consumers := []bus.Consumer{runs.consume("ordered", bus.Ordered(bus.ParkKey))}
		names := []string{"ordered"}
		if d.driver != "mysql" {
			names = append(names, "per-key", "fair", "rated")
			consumers = append(consumers, runs.consume("per-key", bus.PerKey(2)), runs.consume("fair", bus.Fair()),
				runs.consume("rated", bus.RatePerKey(1000, time.Second, 10)))
		}
		n, p := newNewer(t, d, &runs, consumers...), startOlder(t, d, names...)
		n.produce([]int{1, 2, 3}, outbox.Key("k"))
		before := n.Pending()
		p.do(command{Do: "produce", Jobs: []job{{N: 4}}})
		wantNumbers(t, "the older program ran", p.drain(), slices.Repeat([]int{4}, len(names))...)
		if after := n.Pending(); !slices.Equal(before, after) || p.do(command{Do: "list"}) != 0 {
			t.Errorf("messages with keys: got %v, want them as they were, and unlisted: %v", after, before)
		}
		p.do(command{Do: "produce", Jobs: []job{{N: 5}}})
		n.drain("ordered")
		for _, name := range names {
			got := runs.of(name)
			slices.Sort(got)
			wantNumbers(t, name+" in the newer program", got, 1, 2, 3, 5)
		}
		got := slices.DeleteFunc(runs.of("ordered"), func(n int) bool { return n == 5 }) // which has no key
		wantNumbers(t, "in order", got, 1, 2, 3)
	}, everywhere()...)
}

// TestOrderIsTakenBack by an older program from a newer one that has vanished: each message of the
// run is said to have crashed, and the order stays.
func TestOrderIsTakenBack(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		var runs journal
		n, p := newNewer(t, d, &runs, runs.consume("c", bus.Ordered(bus.ParkKey))), startOlder(t, d, "c")
		n.produce([]int{1, 2, 3}, outbox.Key("k"))
		lanes := store.Lanes{Source: store.Source{Name: "c", Names: []string{"c"}, Payloads: []string{"job"}}, Parks: true, Run: 10}
		s := testapp.Must[*store.Store](t)(store.For(d.db.Dialect().Name(), bus.Tables{}))
		claim := testapp.Must[store.Claim](t)(s.Claim(t.Context(), d.db, store.ClaimRequest{Owner: "vanished", Lease: -time.Minute, Limit: 10, MaxBytes: 1 << 20, Lanes: &lanes}))
		if len(claim.Messages) != 3 {
			t.Fatalf("got %d messages claimed, want 3", len(claim.Messages))
		}
		wantNumbers(t, "the older program ran", p.drain())
		if n.Count("SELECT count(*) FROM message_claims") != 0 || n.Count("SELECT count(*) FROM consumer_messages WHERE crashes = -9999") != 3 {
			t.Errorf("got %+v, want all of them taken back, with a crash", n.Pending())
		}
		wantNumbers(t, "the newer program ran", n.drain("c"), 1, 2, 3)
	}, everywhere()...)
}

// TestRequeuedKeysAreForgotten: a message with a key that an older program requeues is one
// without, and does not park its key any more.
func TestRequeuedKeysAreForgotten(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		runs := journal{outcome: func(_ context.Context, j job) error {
			if j.N == 1 {
				return bus.Permanent(errors.New("no luck"))
			}
			return nil
		}}
		n, p := newNewer(t, d, &runs, runs.consume("c", bus.Ordered(bus.ParkKey))), startOlder(t, d, "c")
		n.produce([]int{1, 2}, outbox.Key("k"))
		wantNumbers(t, "while the key is parked", n.drain("c"))
		if requeued := p.do(command{Do: "requeue"}); requeued != 1 {
			t.Fatalf("got %d requeued, want 1", requeued)
		}
		wantNumbers(t, "the newer program ran", n.drain("c"), 2)
		if n.Count("SELECT count(*) FROM poisoned_messages") != 1 { // it ran as well, and failed again
			t.Errorf("got %+v poisoned, want 1", n.Poisoned())
		}
		p.do(command{Do: "requeue"})
		wantNumbers(t, "the older program ran", p.drain(), 1)
		if !n.Empty() {
			t.Errorf("got %+v left, want nothing", n.Pending())
		}
	}, everywhere()...)
}

// TestOlderAdminAndKeys: an older program may cancel a message with a key that waits, and those
// behind it go on.
func TestOlderAdminAndKeys(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		var runs journal
		n, p := newNewer(t, d, &runs, runs.consume("c", bus.Ordered(bus.ParkKey))), startOlder(t, d, "c")
		n.produce([]int{1, 2}, outbox.Key("k"))
		if cancelled := p.do(command{Do: "cancel", IDs: n.ids()[:1]}); cancelled != 1 {
			t.Fatalf("got %d cancelled, want 1", cancelled)
		}
		wantNumbers(t, "the newer program ran", n.drain("c"), 2)
	}, everywhere()...)
}

// TestOlderAdminMeetsARun: an older program does not know what keeps a message with a key from
// being claimed, so one that it cancels may run all the same.
func TestOlderAdminMeetsARun(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		began, release := make(chan struct{}), make(chan struct{})
		runs := journal{outcome: func(context.Context, job) error { close(began); <-release; return nil }}
		n, p := newNewer(t, d, &runs, runs.consume("c", bus.Ordered(bus.ParkKey))), startOlder(t, d, "c")
		n.produce([]int{1}, outbox.Key("k"))
		if cancelled := p.do(command{Do: "begin to cancel", IDs: n.ids()}); cancelled != 1 {
			t.Fatalf("got %d cancelled, want 1", cancelled)
		}
		ran := make(chan error, 1)
		go func() { ran <- testapp.Second(n.processor.Step(t.Context())) }()
		select {
		case <-began:
		case err := <-ran:
			t.Fatalf("got %v and no run, want one", err)
		}
		p.do(command{Do: "commit"})
		close(release)
		if err := <-ran; err != nil || !n.Empty() {
			t.Errorf("got %v and %+v left, want nothing", err, n.Pending())
		}
		wantNumbers(t, "the newer program ran", runs.of("c"), 1)
	}, "postgres")
}

// TestOlderRunNowOfAKey does nothing where keys run in any order: what they go by is not moved.
func TestOlderRunNowOfAKey(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		var runs journal
		n, p := newNewer(t, d, &runs, runs.consume("c", bus.PerKey(2))), startOlder(t, d, "c")
		n.produce([]int{1}, outbox.Key("k"), outbox.Delay(time.Hour))
		p.do(command{Do: "run now", IDs: n.ids()})
		wantNumbers(t, "after the older program's call", n.drain("c"))
		if _, err := n.Admin().RunNow(t.Context(), d.db, n.ids()...); err != nil {
			t.Fatal(err)
		}
		wantNumbers(t, "after the newer program's", n.drain("c"), 1)
	}, notMariaDB()...)
}
