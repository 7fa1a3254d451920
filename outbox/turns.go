package outbox

import (
	"errors"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// errBehind gives a message back that comes behind one of its key which was not done.
var errBehind error = &bus.Verdict{Outcome: bus.Released, Err: errors.New("outbox: the message before it, of the same key, is not done")}

// turns has messages with keys of a group take turns: those of a key one after the other, for
// as long as each is done. The zero value is for messages without, and in any order. It belongs to the worker.
type turns struct {
	place  map[*task]int
	before map[*task]*task // the one before it, of its key
	left   map[*task]bool  // its chain has returned
}

func newTurns(tasks []*task) turns {
	if tasks[0].row.Lane == 0 || tasks[0].consumer.PerKey() > 0 {
		return turns{}
	}
	t := turns{place: make(map[*task]int), before: make(map[*task]*task), left: make(map[*task]bool)}
	last := make(map[int64]*task)
	for i, task := range tasks {
		t.place[task], t.before[task] = i, last[task.row.Lane]
		last[task.row.Lane] = task
	}
	return t
}

// leave notes that the chain of a message has returned.
func (t turns) leave(task *task) {
	if t.left != nil {
		t.left[task] = true
	}
}

// ready sorts those that have come to the innermost layer, and parts off those that wait for
// one which has not. Who comes behind one that is not done is sent back.
func (t turns) ready(waiting []*member) (ready, later []*member) {
	if t.place == nil {
		return waiting, nil
	}
	slices.SortFunc(waiting, func(a, b *member) int { return t.place[a.task] - t.place[b.task] })
	here := make(map[*task]bool)
	for _, m := range waiting {
		before := t.before[m.task]
		switch {
		case t.done(before), here[before]:
			ready = append(ready, m)
			here[m.task] = true
		case t.left[before]:
			m.outcome <- errBehind
		default:
			later = append(later, m)
		}
	}
	return ready, later
}

func (t turns) done(before *task) bool {
	return before == nil || before.committed || t.left[before] && before.passed
}

// come tells whether it is a message's turn: the one before it is done, or has been, in the
// same transaction.
func (t turns) come(task *task, inTx []*member) bool {
	before := t.before[task]
	return t.done(before) || slices.ContainsFunc(inTx, func(m *member) bool { return m.task == before })
}
