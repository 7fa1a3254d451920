package engine

import (
	"errors"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// errBehind releases a message that comes behind one of its key that is not done.
var errBehind error = &bus.OutcomeError{Outcome: bus.Released, Err: errors.New("outbox: the message before it, of the same key, is not done")}

// behind returns the outcome error of a message that comes behind one that is not done.
func behind(t *task) error {
	if t.stopped.Load() {
		return errStopped
	}
	return errBehind
}

// turns orders the messages of a group whose keys have an order: those of one key run one after the
// other, while each is done. It is nil for groups without such messages. Only the worker uses the
// fields that change.
type turns map[*task]*turn

type turn struct {
	place        int
	before, next *task         // of its key
	settled      chan struct{} // closed once its outcome is known
	started      bool          // its chain
	left         bool          // its chain has returned
}

func newTurns(tasks []*task) turns {
	inOrder := func(t *task) bool { return t.row.Lane != 0 && t.consumer.KeyConcurrency() == 0 }
	if !slices.ContainsFunc(tasks, inOrder) {
		return nil
	}
	t := make(turns, len(tasks))
	last := make(map[int64]*task)
	for i, task := range tasks {
		t[task] = &turn{place: i, settled: make(chan struct{})}
		if !inOrder(task) {
			continue
		}
		if before := last[task.row.Lane]; before != nil {
			t[task].before, t[before].next = before, task
		}
		last[task.row.Lane] = task
	}
	return t
}

// before returns the message of the same key before a task.
func (t turns) before(task *task) *task {
	if turn := t[task]; turn != nil {
		return turn.before
	}
	return nil
}

// next returns the message of the same key behind a task, unless it has started.
func (t turns) next(task *task) *task {
	if turn := t[task]; turn != nil && turn.next != nil && !t[turn.next].started {
		return turn.next
	}
	return nil
}

// start notes that the chain of a message begins. It begins once the message before has reached the
// innermost layer or is over: earlier it could keep that one from getting there.
func (t turns) start(task *task) {
	if turn := t[task]; turn != nil {
		turn.started = true
	}
}

// leave notes that the chain of a message has returned.
func (t turns) leave(task *task) {
	if turn := t[task]; turn != nil {
		turn.left = true
	}
}

// over notes that the outcome of a message is known.
func (t turns) over(task *task) {
	if turn := t[task]; turn != nil {
		close(turn.settled)
	}
}

// inTurn waits for the outcome of the message before a task. It returns err, or errBehind if that
// message is not done: layers above the call they shared may have failed it.
func (t turns) inTurn(task *task, err error) error {
	before := t.before(task)
	if before == nil {
		return err
	}
	if <-t[before].settled; before.passed {
		return err
	}
	return behind(task)
}

// ready separates members that may run from those that wait for one that has not arrived. It
// releases members behind a message that is not done.
func (t turns) ready(waiting []*member) (ready, later []*member) {
	if t == nil {
		return waiting, nil
	}
	slices.SortFunc(waiting, func(a, b *member) int { return t[a.task].place - t[b.task].place })
	here := make(map[*task]bool)
	for _, m := range waiting {
		before := t.before(m.task)
		switch {
		case t.done(before), here[before]:
			ready = append(ready, m)
			here[m.task] = true
		case t[before].left:
			m.outcome <- behind(m.task)
		default:
			later = append(later, m)
		}
	}
	return ready, later
}

func (t turns) done(before *task) bool {
	return before == nil || before.committed || t[before].left && before.passed
}

// come reports whether it is a message's turn: the one before it is done, or is in the same
// transaction.
func (t turns) come(task *task, inTx []*member) bool {
	before := t.before(task)
	return t.done(before) || slices.ContainsFunc(inTx, func(m *member) bool { return m.task == before })
}

// answers releases the messages of a call that come behind one that is not done.
func (t turns) answers(members []*member, errs []error) []error {
	if t == nil {
		return errs
	}
	failed := make(map[*task]bool)
	for i, m := range members {
		if failed[t.before(m.task)] {
			errs[i] = behind(m.task)
		}
		if errs[i] != nil && bus.OutcomeOf(errs[i]).Outcome != bus.Discarded {
			failed[m.task] = true
		}
	}
	return errs
}
