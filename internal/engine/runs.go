package engine

import (
	"slices"
	"time"
)

// size is how many messages a task stands for.
func (t *task) size() int { return 1 + len(t.others) }

// together reports whether the others that were taken with a task share transactions or calls with
// it. Else they are of its lane, and it may be alone to probe a circuit.
func (t *task) together() bool {
	return len(t.others) > 0 && (t.row.Lane == 0 || t.consumer.group > 1 && t.groupable() && !t.probe)
}

// without takes the messages that match out of a run, and returns what is left of it.
func (t *task) without(match func(*task) bool) (left *task, out []*task) {
	var kept []*task
	for _, m := range append([]*task{t}, t.others...) {
		if match(m) {
			out = append(out, m)
		} else {
			kept = append(kept, m)
		}
	}
	if len(out) == 0 {
		return t, nil
	}
	t.others = nil
	if len(kept) == 0 {
		return nil, out
	}
	kept[0].others = slices.Clone(kept[1:])
	return kept[0], out
}

// runInOrder runs messages of one key, one after the other, for as long as each is done. The
// others are given back, and stay behind it.
func (w *worker) runInOrder(t *task) {
	began := time.Now()
	waiting := append([]*task{t}, t.others...)
	n := len(waiting)
	defer func() { // also when a middleware ends this goroutine
		for _, m := range waiting {
			w.run.notStarted(m)
		}
		w.run.dispatcher.paced(t.consumer, n-len(waiting), time.Since(began))
	}()
	for len(waiting) > 0 {
		m := waiting[0]
		waiting = waiting[1:]
		m.others = waiting
		w.process(m)
		if now := time.Now(); !m.passed || w.run.stopping.Load() || now.Sub(began) > maxRun || !w.run.ledger.live(m.lease, now) {
			return
		}
	}
}

// notStarted gives a message back that was claimed, and has not begun.
func (r *run) notStarted(t *task) {
	if t.stopped.Load() {
		r.settled(t, errStopped)
		return
	}
	r.settled(t, errUnstarted)
}

// paced notes how long the messages of a run took.
func (d *dispatcher) paced(c *consumer, n int, took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.ran(n, took)
}
