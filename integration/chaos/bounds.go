package chaos

import (
	"slices"
	"time"
)

// Most is how many runs of the consumers were under way at once at most, in all workers that
// were not to be counted any more from the given times on, since they were killed or stopped.
func (l Ledger) Most(consumers []string, without map[string]time.Time) (most int) {
	running := make(map[Run]map[string]bool) // by whom
	counted := func(worker string, at time.Time) bool {
		gone, ok := without[worker]
		return !ok || at.Before(gone)
	}
	for _, e := range l {
		if !slices.Contains(consumers, e.Consumer) {
			continue
		}
		run := Run{e.Consumer, e.Job}
		if running[run] == nil {
			running[run] = make(map[string]bool)
		}
		if e.Kind != Started {
			if delete(running[run], e.Worker); len(running[run]) == 0 {
				delete(running, run)
			}
			continue
		}
		running[run][e.Worker] = true
		n := 0
		for _, workers := range running {
			for worker := range workers {
				if counted(worker, e.At) {
					n++
				}
			}
		}
		most = max(most, n)
	}
	return most
}

// Excess is by how many the starts of the consumers exceed, in any stretch of time, so many a
// second and a burst; and how many there were a second from the first to the last.
func (l Ledger) Excess(consumers []string, rate float64, burst int) (excess, perSecond float64) {
	var starts []time.Time
	for _, e := range l {
		if e.Kind == Started && slices.Contains(consumers, e.Consumer) {
			starts = append(starts, e.At)
		}
	}
	if len(starts) < 2 {
		return 0, 0
	}
	// Each start fills a bucket by one, which leaks at the rate: what is in it beyond the burst
	// is the excess of the worst stretch that ends here.
	level := 0.0
	for i, at := range starts {
		if i > 0 {
			level = max(level-rate*at.Sub(starts[i-1]).Seconds(), 0)
		}
		level++
		excess = max(excess, level-float64(burst))
	}
	return excess, float64(len(starts)-1) / starts[len(starts)-1].Sub(starts[0]).Seconds()
}
