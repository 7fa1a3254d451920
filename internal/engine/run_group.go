package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Members at the innermost layer wait gatherPatience for the next of their group, and mostGathered in
// all, but no longer than a quarter of their timeout. Layers that query a database, one message of a key
// after the other, must not tear a batch apart.
const (
	gatherPatience = 100 * time.Millisecond
	mostGathered   = time.Second
)

// group is the messages that one worker took at once to share transactions or calls. Each runs its
// chain on a goroutine of its own up to the innermost layer. There it waits until the worker has
// run its handler and its transaction has ended.
type group struct {
	worker *worker
	joined chan *member  // arrived at the innermost layer
	left   chan *task    // returned from the chain
	over   chan struct{} // closed when the group waits for no more messages
	err    error         // for members that still wait then
	order  keyOrder      // of messages with keys
	inside int           // chains that have not returned or not begun
	chains sync.WaitGroup
}

// member is one message at the innermost layer of its chain.
type member struct {
	task    *task
	ctx     context.Context
	message *bus.Message // with the payload that the handler gets
	since   time.Time
	wakeups *txn.Wakeups // of messages that the handler produced
	failure error        // of its handler
	outcome chan error
}

// join has the worker run the handler, and waits for the outcome.
func (g *group) join(ctx context.Context, t *task, message *bus.Message) error {
	m := &member{task: t, ctx: ctx, message: message, since: time.Now(), outcome: make(chan error, 1)}
	select {
	case g.joined <- m:
	case <-g.over:
	}
	select {
	case err := <-m.outcome:
		return err
	case <-g.over:
	}
	select {
	case err := <-m.outcome:
		return err
	default:
		return g.err
	}
}

// runGroup runs the messages of a group.
func (w *worker) runGroup(tasks []*task) {
	w.current.Store(tasks[0])
	defer w.current.Store(nil)
	g := &group{
		worker: w, joined: make(chan *member, len(tasks)), left: make(chan *task, len(tasks)), over: make(chan struct{}),
		order: newKeyOrder(tasks),
	}
	defer g.chains.Wait()
	for _, t := range tasks {
		t.worker, t.group = w, g
		g.inside++
		if g.order.before(t) == nil {
			g.start(t)
		}
	}
	g.run()
}

// start starts the chain of a message.
func (g *group) start(t *task) {
	g.order.start(t)
	g.chains.Add(1)
	g.worker.executor.pool.do(func() {
		defer g.chains.Done()
		defer func() { g.left <- t }()
		g.worker.executor.runChain(t)
	})
}

// startNext starts the chain of the message behind one that has arrived or is done.
func (g *group) startNext(t *task) {
	if next := g.order.next(t); next != nil {
		g.start(next)
	}
}

// leave notes that the chain of a message has returned. The next one of its key begins, or all
// behind it are released.
func (g *group) leave(t *task) {
	g.order.leave(t)
	g.inside--
	if t.passed {
		g.startNext(t)
		return
	}
	g.releaseBehind(t)
}

// releaseBehind releases the messages behind t that have not begun.
func (g *group) releaseBehind(t *task) {
	for next := g.order.next(t); next != nil; next = g.order.next(next) {
		g.order.start(next)
		g.inside--
		g.worker.executor.recorder.notStarted(next)
	}
}

func (g *group) consumer() *consumer { return g.worker.current.Load().consumer }

// run serves members as they arrive until all have left. Only the application's query hooks can
// panic or end the goroutine here. Every member then gets that as if it had happened in its chain.
func (g *group) run() {
	g.err = isolate.ErrGoexit
	defer func() {
		if value := recover(); value != nil {
			g.err = &isolate.Panicked{PanicError: isolate.NewPanic(value)}
		}
		close(g.over)
		for t := range g.order {
			g.releaseBehind(t)
		}
	}()
	var waiting []*member
	for g.inside > 0 {
		waiting = g.gather(waiting)
		ready, later := g.order.ready(slices.DeleteFunc(waiting, g.tooLate))
		if len(ready) > 0 {
			ready = g.serve(ready)
		}
		waiting = append(ready, later...)
	}
}

// serve runs the handlers of members, answers those whose messages are settled, and returns the
// others.
func (g *group) serve(members []*member) (rest []*member) {
	if g.consumer().settings.BatchSize > 0 {
		return g.consume(members)
	}
	return g.transact(members)
}

// gather waits until every message inside a chain has arrived, or until it is late for those that
// have.
func (g *group) gather(waiting []*member) []*member {
	most := min(mostGathered, g.consumer().settings.Timeout/4)
	timer := time.NewTimer(min(gatherPatience, most))
	defer timer.Stop()
	began := time.Now()
	for len(waiting) < g.inside {
		var late <-chan time.Time
		if len(waiting) > 0 {
			late = timer.C
		}
		select {
		case m := <-g.joined:
			if len(waiting) == 0 {
				began = time.Now()
			}
			waiting = append(waiting, m)
			timer.Reset(max(min(gatherPatience, most-time.Since(began)), 0))
			g.startNext(m.task)
		case t := <-g.left:
			g.leave(t)
		case <-late:
			return waiting
		}
	}
	return waiting
}
