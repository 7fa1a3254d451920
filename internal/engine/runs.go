package engine

import (
	"slices"
	"time"
)

// size returns how many messages a task stands for.
func (t *task) size() int { return 1 + len(t.others) }

// together reports whether a task shares transactions or calls with the others taken with it. If
// not, they are of its lane, and it may be alone to probe a circuit.
func (t *task) together() bool {
	return len(t.others) > 0 && (t.row.Lane == 0 || t.consumer.group > 1 && t.groupable() && !t.probe)
}

// without removes matching messages from a run. It returns the rest of the run and the removed
// ones.
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

// runInOrder runs messages of one key one after the other, while each is done. It releases the
// others, which stay behind.
func (w *worker) runInOrder(t *task) {
	began := time.Now()
	waiting := append([]*task{t}, t.others...)
	n := len(waiting)
	defer func() { // also when a middleware ends this goroutine
		for _, m := range waiting {
			w.run.notStarted(m)
		}
		w.run.dispatcher.queue.paced(t.consumer, n-len(waiting), time.Since(began))
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

// notStarted releases a message that was claimed and has not begun.
func (r *run) notStarted(t *task) {
	if t.stopped.Load() {
		r.settled(t, errStopped)
		return
	}
	r.settled(t, errUnstarted)
}
