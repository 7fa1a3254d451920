package engine

import (
	"errors"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// errBehind releases a message that comes behind one of its key that is not done.
var errBehind error = &bus.OutcomeError{
	Outcome: bus.Released, Err: errors.New("outbox: an earlier message of the same key is not done"),
}

// behind returns the outcome error of a message that comes behind one that is not done.
func behind(t *task) error {
	if t.stopped.Load() {
		return errStopped
	}
	return errBehind
}

// keyOrder orders the messages of a group whose keys have an order: those of one key run one after
// the other, while each is done. It is nil for groups without such messages. Only the worker uses
// the fields that change.
type keyOrder map[*task]*keyPlace

type keyPlace struct {
	index        int
	before, next *task         // of its key
	settled      chan struct{} // closed once its outcome is known
	started      bool          // its chain
	returned     bool          // its chain has returned
}

func newKeyOrder(tasks []*task) keyOrder {
	inOrder := func(t *task) bool { return t.row.Lane != 0 && t.consumer.keyConcurrency() == 0 }
	if !slices.ContainsFunc(tasks, inOrder) {
		return nil
	}
	o := make(keyOrder, len(tasks))
	last := make(map[int64]*task)
	for i, task := range tasks {
		o[task] = &keyPlace{index: i, settled: make(chan struct{})}
		if !inOrder(task) {
			continue
		}
		if before := last[task.row.Lane]; before != nil {
			o[task].before, o[before].next = before, task
		}
		last[task.row.Lane] = task
	}
	return o
}

// before returns the message of the same key before a task.
func (o keyOrder) before(task *task) *task {
	if place := o[task]; place != nil {
		return place.before
	}
	return nil
}

// next returns the message of the same key behind a task, unless it has started.
func (o keyOrder) next(task *task) *task {
	if place := o[task]; place != nil && place.next != nil && !o[place.next].started {
		return place.next
	}
	return nil
}

// start notes that the chain of a message begins. It begins once the message before has reached the
// innermost layer or is over: earlier it could keep that one from getting there.
func (o keyOrder) start(task *task) {
	if place := o[task]; place != nil {
		place.started = true
	}
}

// leave notes that the chain of a message has returned.
func (o keyOrder) leave(task *task) {
	if place := o[task]; place != nil {
		place.returned = true
	}
}

// over notes that the outcome of a message is known.
func (o keyOrder) over(task *task) {
	if place := o[task]; place != nil {
		close(place.settled)
	}
}

// awaitBefore waits for the outcome of the message before a task. It returns err, or errBehind if
// that message is not done: layers above the call they shared may have failed it.
func (o keyOrder) awaitBefore(task *task, err error) error {
	before := o.before(task)
	if before == nil {
		return err
	}
	if <-o[before].settled; before.passed {
		return err
	}
	return behind(task)
}

// ready separates members that may run from those that wait for one that has not arrived. It
// releases members behind a message that is not done.
func (o keyOrder) ready(waiting []*member) (ready, later []*member) {
	if o == nil {
		return waiting, nil
	}
	slices.SortFunc(waiting, func(a, b *member) int { return o[a.task].index - o[b.task].index })
	here := make(map[*task]bool)
	for _, m := range waiting {
		before := o.before(m.task)
		switch {
		case o.done(before), here[before]:
			ready = append(ready, m)
			here[m.task] = true
		case o[before].returned:
			m.outcome <- behind(m.task)
		default:
			later = append(later, m)
		}
	}
	return ready, later
}

func (o keyOrder) done(before *task) bool {
	return before == nil || before.committed || o[before].returned && before.passed
}

// mayRun reports whether a message may run: the one before it is done, or is in the same
// transaction.
func (o keyOrder) mayRun(task *task, inTx []*member) bool {
	before := o.before(task)
	return o.done(before) || slices.ContainsFunc(inTx, func(m *member) bool { return m.task == before })
}

// releaseBehind releases the messages of a call that come behind one that is not done.
func (o keyOrder) releaseBehind(members []*member, errs []error) []error {
	if o == nil {
		return errs
	}
	failed := make(map[*task]bool)
	for i, m := range members {
		if failed[o.before(m.task)] {
			errs[i] = behind(m.task)
		}
		if errs[i] != nil && bus.OutcomeOf(errs[i]).Outcome != bus.Discarded {
			failed[m.task] = true
		}
	}
	return errs
}
