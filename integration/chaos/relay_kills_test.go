//go:build unix

package chaos_test

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// Bar 14, kills: relays and receivers are killed at every point at which somebody knows what
// another does not know yet. Nothing is lost, nothing is done twice, and the broker has twice only
// what was in flight.

func barRelayKills(b *bar) {
	r := newBroker(b, 1, chaos.RelayStream)
	r.sender(testdb.PostgresDSN(b))
	r.receiver(testdb.PostgresDSN(b))
	r.killAtPoints(pick(b, 10, 30, 30), pick(b, 2000, 40_000, 40_000))
	last := time.Now()
	r.settle()
	took := time.Since(last)
	f := r.judge(true)
	inFlight := r.from.inFlight()
	twice := r.storedAll(len(r.from.jobs), inFlight)
	if n := r.to.inFlight(); f.to.Duplicates > n {
		b.Errorf("duplicates: got %d, want at most the %d in flight at the kills", f.to.Duplicates, n)
	}
	b.figure("%d kills, %d messages of 2 consumers: %v; the broker has %d twice, %d were in flight; settled in %.1fs",
		len(r.from.killed)+len(r.to.killed), len(r.from.jobs), f.to, twice, inFlight, took.Seconds())
	r.to.shared()
}

// killAtPoints kills so many workers, at one point after the other, while so many jobs at least
// are produced. One more worker of each service goes on meanwhile.
func (r *relayed) killAtPoints(times, jobs int) {
	r.Helper()
	points := slices.Concat(chaos.SenderPoints(), chaos.ReceiverPoints())
	r.from.start(0)
	r.to.start(0)
	for i := range times {
		point, side := points[i%len(points)], r.from
		if slices.Contains(chaos.ReceiverPoints(), point) {
			side = r.to
		}
		produced := 0
		side.killAt(side.config, point, 0, func() {
			if waiting := r.from.pending() + r.to.pending(); waiting < pick(r.bar, 500, 2000, 2000) {
				n := max(jobs/times/5, 20)
				r.from.produce(n, func() time.Duration { return r.between(0, 4*time.Millisecond) })
				produced += n
			}
		})
		most := pick(r.bar, 500, 2000, 2000) // or the next one waits for what piles up here
		r.eventually(time.Minute, "the crews keep up", func() bool { return r.from.pending()+r.to.pending() < most })
		if rest := jobs/times - produced; rest > 0 {
			r.from.produce(rest, func() time.Duration { return r.between(0, 4*time.Millisecond) })
		}
	}
}
