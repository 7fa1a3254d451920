package ops

import "time"

// pace limits messages per second. It starts with one tick's worth, so a process that is killed
// repeatedly still makes progress. It saves up at most one second's worth, and one tick's after
// the rate drops, so that a lower rate applies at once.
type pace struct {
	last time.Time
	rate int64
	left float64
}

// now returns how many messages may pass.
func (p *pace) now(rate int64) int {
	now := time.Now()
	if p.last.IsZero() {
		p.last = now.Add(-tick)
	}
	p.left = min(p.left+now.Sub(p.last).Seconds()*float64(rate), max(float64(rate), 1))
	if rate < p.rate {
		p.left = min(p.left, float64(rate)*tick.Seconds())
	}
	p.last, p.rate = now, rate
	return int(p.left)
}

// passed counts n messages as used.
func (p *pace) passed(n int) { p.left -= float64(n) }
