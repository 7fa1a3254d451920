//go:build unix

package chaos_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
)

// Bar 15, too: what is bounded over all processes stays so while workers are killed and stopped.

// barLimits has consumers share a limit of 5.
func barLimits(b *bar) {
	const limit, crew = 5, 4
	r := newDisturbed(b, crew, chaos.WorkerConfig{Plain: []string{"one"}, Tx: []string{"two"}, Limited: []string{"one", "two"}, Limit: limit},
		pick(b, 1500, 6000, 30_000), 8*time.Millisecond, pick(b, 8*time.Second, 20*time.Second, 2*time.Minute))
	most := r.ledger().Most([]string{"one", "two"}, r.gone)
	if most > limit || most < limit-1 {
		b.Errorf("runs at once: got %d, want %d", most, limit)
	}
	b.figure("%s, %d messages: %d at once at most, of %d", r, len(r.jobs)*2, most, limit)
}

// sharedKeys is how many jobs of each row of keys there are.
const sharedKeys = 16

// barPerKey has a consumer run 3 of a key at once.
func barPerKey(b *bar) {
	const perKey, crew = 3, 4
	r := newDisturbed(b, crew, chaos.WorkerConfig{Plain: []string{"one"}, Tx: []string{"two"}, Shared: []string{"one", "two"}, PerKey: perKey},
		pick(b, 2000, 8000, 40_000), 8*time.Millisecond, pick(b, 8*time.Second, 20*time.Second, 2*time.Minute))
	most, all := 0, r.ledger()
	for _, consumer := range []string{"one", "two"} {
		byKey := make(map[string]chaos.Ledger)
		for _, e := range all {
			byKey[r.keyOf(e.Job)] = append(byKey[r.keyOf(e.Job)], e)
		}
		for key, events := range byKey {
			n := events.Most([]string{consumer}, r.gone)
			if most = max(most, n); n > perKey {
				b.Errorf("runs of key %s at once: got %d of consumer %q, want at most %d", key, n, consumer, perKey)
			}
		}
	}
	if most < perKey {
		b.Errorf("runs of a key at once: got %d at most, want %d", most, perKey)
	}
	b.figure("%s, %d messages: %d of a key at once at most, of %d", r, len(r.jobs)*2, most, perKey)
}

// barRates has a consumer start 200 a second.
func barRates(b *bar) {
	const rate, crew = 200, 3
	lasts := pick(b, 8*time.Second, 20*time.Second, 2*time.Minute)
	r := newDisturbed(b, crew, chaos.WorkerConfig{Plain: []string{"one"}, Rated: []string{"one"}, Rate: rate},
		rate*int(lasts/time.Second)*5/4, 2*time.Millisecond, lasts)
	excess, perSecond := r.ledger().Excess([]string{"one"}, rate, chaos.RateBurst)
	// What a claim has counted may wait for a worker, and come together with the next.
	if slack := rate * 0.2; excess > slack {
		b.Errorf("starts beyond the rate and its burst: got %.0f, want at most %.0f", excess, slack)
	}
	// A worker that is stopped in the middle of a claim holds up the others for a second.
	if perSecond < rate*0.7 || perSecond > rate*1.02 {
		b.Errorf("starts a second: got %.1f, want about %d", perSecond, rate)
	}
	b.figure("%s, %d messages: %.1f starts a second of %d, %.0f beyond the burst of %d at most", r, len(r.jobs), perSecond, rate,
		excess, chaos.RateBurst)
}

// disturbed is a run whose workers were killed, and stopped for longer than a lease.
type disturbed struct {
	*run
	gone         map[string]time.Time    // since when which must not be counted any more
	stood        map[string][]chaos.Span // who was stopped when
	kills, stops int
	found        chaos.Findings
}

func disturbedRun(b *bar, dsn string, config chaos.WorkerConfig) *disturbed {
	b.Helper()
	return &disturbed{run: newRun(b, dsn, config), gone: make(map[string]time.Time), stood: make(map[string][]chaos.Span)}
}

// newDisturbed has a crew do so many jobs, of up to a time each, and disturbs it for a while.
func newDisturbed(b *bar, crew int, config chaos.WorkerConfig, jobs int, takes, lasts time.Duration) *disturbed {
	config.Lease = 2 * time.Second
	r := disturbedRun(b, b.dsn(), config)
	r.crew(crew)
	r.produce(jobs, func() time.Duration { return b.between(0, takes) })
	r.disturb(time.Now().Add(lasts))
	r.eventually(4*time.Minute, "everything is settled", r.settled)
	r.stopAll()
	r.found = r.judge()
	return r
}

// String is what a figure says of it.
func (r *disturbed) String() string {
	return fmt.Sprintf("%d kills, %d stops of more than a lease, %v", r.kills, r.stops, r.found)
}

// disturb kills workers that are at work, and stops some, or does something else.
func (r *disturbed) disturb(stop time.Time, others ...func()) {
	for time.Now().Before(stop) {
		pause(r.between(200*time.Millisecond, time.Second))
		victim := r.atWork()
		switch what := r.IntN(4); {
		case what == 0:
			r.standStill(victim)
		case what <= len(others):
			others[what-1]()
		default:
			r.kills++
			r.kill(victim)
			r.start(victim)
		}
	}
	r.forget()
}

// standStill stops a worker for longer than a lease.
func (r *disturbed) standStill(victim int) {
	r.stops++
	w, from := r.workers[victim], time.Now()
	if _, again := r.gone[w.Name()]; !again {
		r.gone[w.Name()] = from
	}
	w.Signal(syscall.SIGSTOP)
	pause(r.config.Lease + r.between(500*time.Millisecond, 1500*time.Millisecond))
	w.Signal(syscall.SIGCONT)
	r.stood[w.Name()] = append(r.stood[w.Name()], chaos.Span{From: from, To: time.Now()})
}

// forget has the workers that were killed not be counted any more.
func (r *disturbed) forget() {
	for name, at := range r.killed {
		if _, stopped := r.gone[name]; !stopped {
			r.gone[name] = at
		}
	}
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
