//go:build unix

package chaos_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
)

// disturbed is a run whose workers were killed, and stopped for longer than a lease.
type disturbed struct {
	*run
	gone         map[string]time.Time    // since when which must not be counted any more
	stood        map[string][]chaos.Span // who was stopped when
	kills, stops int
}

func disturbedRun(b *bar, dsn string, config chaos.WorkerConfig) *disturbed {
	b.Helper()
	return &disturbed{run: newRun(b, dsn, config), gone: make(map[string]time.Time), stood: make(map[string][]chaos.Span)}
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
