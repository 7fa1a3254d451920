//go:build unix

package chaos_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// Bar 15, too: what is bounded over all processes stays so while workers are killed and stopped.

// barLimits has consumers share a limit of 5.
func barLimits(b *bar) {
	const limit, crew = 5, 4
	r := newRun(b, testdb.PostgresDSN(b), chaos.WorkerConfig{Plain: []string{"one"}, Tx: []string{"two"}, Limited: []string{"one", "two"}, Limit: limit, Lease: 2 * time.Second})
	for range crew {
		r.start(crew)
	}
	r.produce(pick(b, 1500, 6000, 30_000), func() time.Duration { return b.between(time.Millisecond, 8*time.Millisecond) })
	gone, kills, stops := r.disturb(pick(b, 8*time.Second, 20*time.Second, 2*time.Minute))
	r.eventually(4*time.Minute, "everything is settled", r.settled)
	r.stopAll()
	f := r.judge()
	most := r.ledger().Most([]string{"one", "two"}, gone)
	if most > limit || most < limit-1 {
		b.Errorf("runs at once: got %d, want %d", most, limit)
	}
	b.figure("%d kills, %d stops of more than a lease, %d messages: %d at once at most, of %d: %v", kills, stops, len(r.jobs)*2, most, limit, f)
}

// sharedKeys is how many jobs of each row of keys there are.
const sharedKeys = 16

// barPerKey has a consumer run 3 of a key at once.
func barPerKey(b *bar) {
	const perKey, crew = 3, 4
	r := newRun(b, testdb.PostgresDSN(b), chaos.WorkerConfig{Plain: []string{"one"}, Tx: []string{"two"}, Shared: []string{"one", "two"}, PerKey: perKey, Lease: 2 * time.Second})
	for range crew {
		r.start(crew)
	}
	r.produce(pick(b, 2000, 8000, 40_000), func() time.Duration { return b.between(time.Millisecond, 8*time.Millisecond) })
	gone, kills, stops := r.disturb(pick(b, 8*time.Second, 20*time.Second, 2*time.Minute))
	r.eventually(4*time.Minute, "everything is settled", r.settled)
	r.stopAll()
	f := r.judge()
	most, all := 0, r.ledger()
	for _, consumer := range []string{"one", "two"} {
		byKey := make(map[string]chaos.Ledger)
		for _, e := range all {
			byKey[r.keyOf(e.Job)] = append(byKey[r.keyOf(e.Job)], e)
		}
		for key, events := range byKey {
			n := events.Most([]string{consumer}, gone)
			if most = max(most, n); n > perKey {
				b.Errorf("runs of key %s at once: got %d of consumer %q, want at most %d", key, n, consumer, perKey)
			}
		}
	}
	if most < perKey {
		b.Errorf("runs of a key at once: got %d at most, want %d", most, perKey)
	}
	b.figure("%d kills, %d stops of more than a lease, %d messages: %d of a key at once at most, of %d: %v", kills, stops, len(r.jobs)*2, most, perKey, f)
}

// barRates has a consumer start 200 a second.
func barRates(b *bar) {
	const rate, crew = 200, 3
	r := newRun(b, testdb.PostgresDSN(b), chaos.WorkerConfig{Plain: []string{"one"}, Rated: []string{"one"}, Rate: rate, Lease: 2 * time.Second})
	for range crew {
		r.start(crew)
	}
	lasts := pick(b, 8*time.Second, 20*time.Second, 2*time.Minute)
	r.produce(rate*int(lasts/time.Second)*5/4, func() time.Duration { return b.between(0, 2*time.Millisecond) })
	_, kills, stops := r.disturb(lasts)
	r.eventually(4*time.Minute, "everything is settled", r.settled)
	r.stopAll()
	f := r.judge()
	excess, perSecond := r.ledger().Excess([]string{"one"}, rate, chaos.RateBurst)
	// What a claim has counted may wait for a worker, and come together with the next.
	if slack := rate * 0.2; excess > slack {
		b.Errorf("starts beyond the rate and its burst: got %.0f, want at most %.0f", excess, slack)
	}
	// A worker that is stopped in the middle of a claim holds up the others for a second.
	if perSecond < rate*0.7 || perSecond > rate*1.02 {
		b.Errorf("starts a second: got %.1f, want about %d", perSecond, rate)
	}
	b.figure("%d kills, %d stops of more than a lease, %d messages: %.1f starts a second of %d, %.0f beyond the burst of %d at most: %v",
		kills, stops, len(r.jobs), perSecond, rate, excess, chaos.RateBurst, f)
}

// disturb kills workers that are at work, and stops some for longer than a lease, for a while.
// Gone says since when which must not be counted any more.
func (r *run) disturb(lasts time.Duration) (gone map[string]time.Time, kills, stops int) {
	gone = make(map[string]time.Time)
	for stop := time.Now().Add(lasts); time.Now().Before(stop); {
		pause(r.between(300*time.Millisecond, time.Second))
		victim := r.atWork()
		w := r.workers[victim]
		if r.IntN(4) > 0 {
			kills++
			r.kill(victim)
			r.start(victim)
			continue
		}
		stops++
		gone[w.Name()] = time.Now()
		w.Signal(syscall.SIGSTOP)
		pause(r.config.Lease + r.between(500*time.Millisecond, 1500*time.Millisecond))
		w.Signal(syscall.SIGCONT)
	}
	for name, at := range r.killed {
		if _, stopped := gone[name]; !stopped {
			gone[name] = at
		}
	}
	return gone, kills, stops
}

func TestBoundsAreJudged(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	ledger := chaos.Ledger{
		{At: at(0), Kind: chaos.Started, Worker: "a", Consumer: "c", Job: 1},
		{At: at(10), Kind: chaos.Started, Worker: "b", Consumer: "c", Job: 2},
		{At: at(20), Kind: chaos.Finished, Worker: "a", Consumer: "c", Job: 1},
		{At: at(30), Kind: chaos.Started, Worker: "a", Consumer: "c", Job: 3},
		{At: at(1030), Kind: chaos.Started, Worker: "a", Consumer: "c", Job: 4},
	}
	if n := ledger.Most([]string{"c"}, nil); n != 3 {
		t.Errorf("Most: got %d, want 3", n)
	}
	if n := ledger.Most([]string{"c"}, map[string]time.Time{"b": at(15)}); n != 2 {
		t.Errorf("Most without one that is gone: got %d, want 2", n)
	}
	if excess, perSecond := ledger.Excess([]string{"c"}, 10, 1); excess < 1.6 || excess > 1.8 || perSecond < 2.9 || perSecond > 3 {
		t.Errorf("Excess: got %.2f, %.2f a second, want 1.7 and 2.91", excess, perSecond)
	}
}
