//go:build unix

package chaos_test

import (
	"math"
	"syscall"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
)

// Bar 7: a worker is told to stop with a hundred consumers in flight, which take
// from a tenth of a second to a minute. What has finished never runs again, what
// has not is there for others at once and has lost nothing.

const drainTimeout = 3 * time.Second

func barSigterm(b *bar) {
	r := newRun(b, b.dsn(), chaos.WorkerConfig{Plain: []string{"one"}, Tx: []string{"two"}, Handler: 108, Drain: drainTimeout})
	rounds := pick(b, 1, 3, 20)
	var slowest, claimable time.Duration
	stopped := 0
	for range rounds {
		exit, free, left := r.sigterm(false)
		slowest, claimable, stopped = max(slowest, exit), max(claimable, free), stopped+left
	}
	hurried, free, left := r.sigterm(true)
	claimable = max(claimable, free)
	f := r.judge()
	for run, n := range r.ledger().Count(chaos.Finished) {
		if n != 1 {
			b.Errorf("%v finished: got %d times, want once", run, n)
		}
	}
	b.within("exit", slowest, drainTimeout+time.Second)
	b.within("exit after a second signal", hurried, time.Second)
	b.within("claimable", claimable, time.Second)
	b.figure("%d rounds of SIGTERM with 100 in flight and 8 transactional: exit in %.2fs at most (goal ≤ %s), %d unfinished ones claimable in %.2fs at most (goal ≤ 1s), finished ones rerun %d, attempts and crashes unchanged",
		rounds, slowest.Seconds(), drainTimeout+time.Second, stopped, claimable.Seconds(), f.Duplicates)
	b.figure("a second SIGTERM with %d unfinished: exit in %.2fs (goal ≤ 1s)", left, hurried.Seconds())
}

// sigterm is one round. It returns how long the worker took to exit, counted from
// its last signal, how long until the first look at what it left found all of it
// claimable, and how much that was.
func (r *run) sigterm(twice bool) (exit, claimable time.Duration, left int) {
	r.Helper()
	// As many take a tenth of a second to a second as take six seconds to sixty.
	r.produce(100, func() time.Duration {
		return time.Duration(float64(100*time.Millisecond) * math.Pow(600, r.Float64()))
	})
	before := len(r.ledger())
	w := r.start(0)
	r.eventually(time.Minute, "100 consumers are in flight", func() bool {
		started := 0
		for _, e := range r.ledger()[before:] {
			if e.Kind == chaos.Started && e.Consumer == "one" {
				started++
			}
		}
		return started == 100
	})
	if twice {
		w.Signal(syscall.SIGTERM)
		pause(500 * time.Millisecond)
	}
	report, exit, err := w.Stop()
	if err != nil || report.Err != "" {
		r.Errorf("stop: got %v and %q, want a clean drain", err, report.Err)
	}
	r.workers = nil
	now := of(r.bar, "clock_timestamp()", mariaNow)
	left = r.pending()
	claimable = r.eventually(10*time.Second, "all that is left is claimable", func() bool {
		return r.count("SELECT count(*) FROM message_claims") == 0 &&
			r.count("SELECT count(*) FROM consumer_messages WHERE available_after > "+now) == 0
	})
	if changed := r.count("SELECT count(*) FROM consumer_messages WHERE attempts > 0 OR crashes > 0 OR errors IS NOT NULL"); changed > 0 {
		r.Errorf("messages with attempts or crashes: got %d, want none", changed)
	}
	if left == 0 || left == 200 {
		r.Errorf("unfinished: got %d of 200, want some and not all", left)
	}
	// The rest need not take its time again: that some other worker runs it is enough.
	r.exec("UPDATE consumer_messages SET payload = " + r.with("takes", "0"))
	r.start(0)
	r.eventually(time.Minute, "the next worker settles the rest", r.settled)
	r.stopAll()
	return exit, claimable, left
}
