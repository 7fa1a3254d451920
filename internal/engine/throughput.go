package engine

import "time"

// throughput counts events of the last second in eighths.
type throughput struct {
	counts [8]int
	at     int64 // the eighth counted last, in eighths of a second
}

func eighths(t time.Time) int64 { return t.UnixMilli() / 125 }

func (t *throughput) add(now time.Time, n int) {
	t.forget(now)
	t.counts[eighths(now)%8] += n
}

func (t *throughput) lastSecond(now time.Time) int {
	t.forget(now)
	sum := 0
	for _, n := range t.counts {
		sum += n
	}
	return sum
}

func (t *throughput) forget(now time.Time) {
	eighth := eighths(now)
	if eighth < t.at { // the clock was set back
		*t = throughput{}
	}
	for i := max(t.at+1, eighth-7); i <= eighth; i++ {
		t.counts[i%8] = 0
	}
	t.at = max(t.at, eighth)
}
