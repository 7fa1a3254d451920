package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

const (
	// maxGroup keeps a transaction below 64 subtransactions: from there PostgreSQL looks them up on
	// disk.
	maxGroup = 50
	// groupPatience is how long one transaction of a group starts handlers.
	groupPatience = 250 * time.Millisecond
)

type groupKey struct{}

// GroupCommit has a consumer made by ConsumeTx share its transactions: see outbox.GroupCommit.
func GroupCommit(n int) bus.ConsumerOption {
	return func(c *bus.ConsumerConfig) { access.SetValue(c, groupKey{}, n) }
}

// groupOf returns how many messages of a consumer may run together, in one transaction or one call.
func groupOf(c bus.Consumer, settings bus.ConsumerConfig) (int, error) {
	n, ok := access.Value(&settings, groupKey{}).(int)
	switch {
	case !ok:
		return max(settings.BatchSize, 1), nil
	case settings.BatchSize > 0:
		return 1, fmt.Errorf("outbox: consumer %q: GroupCommit is for consumers of single messages: a batch has one transaction anyway", c.Name())
	case n < 1 || n > maxGroup:
		return 1, fmt.Errorf("outbox: consumer %q: GroupCommit %d: 1 to %d are allowed", c.Name(), n, maxGroup)
	case !isTransactional(settings):
		return 1, fmt.Errorf("outbox: consumer %q: GroupCommit is for consumers made by ConsumeTx", c.Name())
	}
	return n, nil
}

// transact runs the handlers of waiting members in one transaction and answers each. It returns
// those for which there was no time.
func (g *group) transact(waiting []*member) (rest []*member) {
	if len(waiting) == 1 {
		g.oneByOne(waiting)
		return nil
	}
	shared := &sharedTx{consumerTx: g.worker.executor.transactor.newConsumerTx(waiting[0].ctx)}
	defer shared.close()
	ids, err := shared.begin(tasksOf(waiting))
	if err != nil {
		g.unstarted(waiting, err)
		return nil
	}
	held, others := g.split(waiting, ids) // the rows of the others may only be locked
	rest = shared.consume(g, held)
	g.settle(shared)
	g.oneByOne(append(others, shared.conflicted...))
	return rest
}

// settle ends the transaction and answers its members.
func (g *group) settle(s *sharedTx) {
	err := s.err
	switch {
	case s.abandoned: // see interrupt
	case err != nil || len(s.done) == 0:
		s.rollback()
	default:
		err = s.commit(tasksOf(s.done))
	}
	switch {
	case err == nil:
		for _, m := range s.done {
			m.task.committed = true
			m.wakeups.Send(s.transactor.registry)
			m.outcome <- nil
		}
	case s.abandoned:
		answer(s.done, err)
	default: // one of them may be to blame, even for a connection that is lost
		repeat(s.done, err)
		g.oneByOne(s.done)
	}
	for _, m := range s.failed {
		m.outcome <- m.failure
	}
}

// oneByOne runs each member in a transaction of its own.
func (g *group) oneByOne(members []*member) {
	for _, m := range members {
		switch {
		case g.tooLate(m):
		case !g.order.mayRun(m.task, nil):
			m.outcome <- behind(m.task)
		default:
			m.outcome <- g.worker.executor.transactor.runInTx(m.ctx, m.task, m.message.Payload)
		}
	}
}

// tooLate answers a member that must not start any more: its context has ended, it would have too
// little left of its timeout, or the circuit has opened since it was taken.
func (g *group) tooLate(m *member) bool {
	_, open := m.task.consumer.circuit.NextProbe()
	err := context.Cause(m.ctx)
	if err == nil && !m.task.lease.live(time.Now()) {
		err = bus.ErrLeaseLost
	}
	if waited := time.Since(m.since); err == nil && waited > m.task.consumer.settings.Timeout/2 {
		err = fmt.Errorf("the other messages of the group took %s", waited.Round(time.Millisecond))
	}
	switch {
	case m.task.stopped.Load():
		m.outcome <- errStopped
	case err == nil && open && !m.task.probe:
		m.outcome <- errUnstarted
	case err == nil:
		return false
	case err == bus.ErrStopping, err == bus.ErrLeaseLost:
		m.outcome <- &bus.OutcomeError{Outcome: bus.Released, Err: err}
	default:
		g.unstarted([]*member{m}, fmt.Errorf("wait for the other messages of the group: %w", err))
	}
	return true
}

// unstarted answers members whose handlers have not begun.
func (g *group) unstarted(members []*member, err error) {
	for _, m := range members {
		m.outcome <- g.worker.executor.transactor.uncounted.outcome(m.task, &fault{unstarted, err})
	}
}

func answer(members []*member, err error) {
	for _, m := range members {
		m.outcome <- err
	}
}

func tasksOf(members []*member) []*task {
	return store.Each(members, func(m *member) *task { return m.task })
}

// sharedTx is one transaction of a group.
type sharedTx struct {
	*consumerTx
	marked     bool // the savepoint covers what done has written
	done       []*member
	failed     []*member
	conflicted []*member // lost a conflict and run again separately
	err        error     // why it cannot be committed

	abandoned bool // by the worker: a handler may still use it
}

// consume runs the handlers until the time is up or the transaction is broken. It returns the
// members that did not run.
func (s *sharedTx) consume(g *group, members []*member) (rest []*member) {
	begun := time.Now()
	for i, m := range members {
		if i > 0 && time.Since(begun) > groupPatience {
			return members[i:]
		}
		if !s.mark() {
			s.done = append(s.done, members[i:]...) // they end like the others
			return nil
		}
		if g.tooLate(m) {
			continue
		}
		if !g.order.mayRun(m.task, s.done) {
			m.outcome <- behind(m.task)
			continue
		}
		if m.failure = s.call(m); m.failure == nil {
			s.done, s.marked = append(s.done, m), false
			continue
		}
		s.sort(m)
		if !s.undo(m.failure) {
			return members[i+1:]
		}
	}
	return nil
}

func (s *sharedTx) call(m *member) error {
	ctx, wakeups := txn.WithWakeups(context.WithValue(m.ctx, txKey{}, s.tx.Tx))
	m.wakeups = wakeups
	if err := m.task.worker.invoke(ctx, m.task, m.message.Payload); err != nil {
		return s.blame(m.ctx, err)
	}
	return nil
}

// sort decides the outcome of a member whose handler has failed.
func (s *sharedTx) sort(m *member) {
	f, ok := m.failure.(*fault)
	switch {
	case ok && f.of == conflict:
		m.ctx = txn.WithRepeat(m.ctx)
		s.conflicted = append(s.conflicted, m)
		return
	case ok:
		m.failure = s.transactor.uncounted.outcome(m.task, f)
	}
	s.failed = append(s.failed, m)
}

// mark sets the savepoint. It returns false if the transaction is broken, by the database or by a
// handler that hid an error.
func (s *sharedTx) mark() bool {
	if s.marked {
		return true
	}
	ctx, cancel := context.WithTimeout(s.ctx, statementTimeout)
	defer cancel()
	if err := s.transactor.store.Claims.Savepoint(ctx, s.tx.Tx); err != nil {
		s.err = fmt.Errorf("savepoint: %w", err)
		return false
	}
	s.marked = true
	return true
}

// undo rolls back what a handler has written. It returns false if the others' work is lost, too.
func (s *sharedTx) undo(failure error) bool {
	if errors.Is(failure, bus.ErrAbandoned) {
		s.interrupt()
		// Release them if the interrupt failed: releasing writes nothing to their rows, which are
		// still locked.
		s.abandoned, s.err = true, &bus.OutcomeError{Outcome: bus.Released, Err: errNeighbour}
		return false
	}
	ctx, cancel := context.WithTimeout(s.ctx, statementTimeout)
	defer cancel()
	if err := s.transactor.store.Claims.Undo(ctx, s.tx.Tx); err != nil {
		s.err = fmt.Errorf("undo: %w", err)
		return false
	}
	return true
}

// errNeighbour is why a message of a group runs again although it did not fail.
var errNeighbour = errors.New("outbox: another message of the group was abandoned in the shared transaction")
