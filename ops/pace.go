package ops

import "time"

// pace lets so many messages pass in a second, beginning with those of a tick: who is killed again and
// again shall get on, too. Of what has not passed it keeps a second's worth, and where it becomes slower a
// tick's, so that it brakes at once.
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

// passed notes that so many have.
func (p *pace) passed(n int) { p.left -= float64(n) }
