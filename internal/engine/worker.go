package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
)

// worker runs messages one after the other. The chain runs on its goroutine, the consumer's
// function on another one. A function that never returns, or ends its goroutine, costs neither the
// worker nor the chain, which gets an ordinary error.
type worker struct {
	executor *executor
	isolate  isolate.Runner[call]
	deadline atomic.Int64 // when to abandon the current call: ns since executor.started, 0 for never
	call     atomic.Uint64
	abandon  chan uint64 // the number of the call to abandon
	current  atomic.Pointer[task]
	calling  atomic.Pointer[stoppable] // the context of the call
	seen     sighting
	stuck    atomic.Bool // a layer has not returned for long
}

// sighting is what the lease keeper last saw of a worker.
type sighting struct {
	task  *task
	call  uint64
	since time.Time
}

func newWorker(e *executor) *worker { return &worker{executor: e, abandon: make(chan uint64, 1)} }

// process runs one message.
func (w *worker) process(t *task) {
	t.worker = w
	w.current.Store(t)
	defer w.current.Store(nil)
	w.executor.runChain(t)
}

// runInOrder runs messages of one key one after the other, while each is done. It releases the
// others, which stay behind.
func (w *worker) runInOrder(t *task) {
	began := time.Now()
	waiting := append([]*task{t}, t.others...)
	n := len(waiting)
	defer func() { // also when a middleware ends this goroutine
		for _, m := range waiting {
			w.executor.recorder.notStarted(m)
		}
		w.executor.queue.measured(t.consumer, n-len(waiting), time.Since(began))
	}()
	for len(waiting) > 0 {
		m := waiting[0]
		waiting = waiting[1:]
		m.others = waiting
		w.process(m)
		if now := time.Now(); !m.passed || w.executor.stopping.Load() || now.Sub(began) > maxSequence || !m.lease.live(now) {
			return
		}
	}
}

// invoke runs the consumer's function on a goroutine of its own. It waits for it until its deadline
// and a grace period are over. It returns a panic as an *isolate.Panicked.
func (w *worker) invoke(ctx context.Context, t *task, payload []byte) error {
	return w.begin(ctx, t, call{ctx: ctx, consumer: t.consumer, payload: payload, codec: w.executor.registry.Codec()})
}

// begin runs a call on a goroutine of its own and waits for it.
func (w *worker) begin(ctx context.Context, t *task, c call) error {
	if c.members == nil { // expired messages of a batch are left out before
		if err := w.executor.expired(&t.message); err != nil {
			return err
		}
	}
	c.task, c.lease = t, t.lease
	number := w.call.Add(1)
	if deadline, ok := ctx.Deadline(); ok { // the keeper lets it run until then
		w.deadline.Store(int64(deadline.Add(abandonGrace).Sub(w.executor.started)))
	}
	defer w.deadline.Store(0)
	stop := &t.stop
	if stop.of != nil { // it was called before
		stop = new(stoppable)
	}
	stop.Context, stop.of, stop.with = ctx, t, c.members
	c.ctx = stop
	c.called(true)
	w.calling.Store(stop)
	defer func() {
		w.calling.Store(nil)
		stop.end()
	}()
	if c.stopped(t) { // requested before there was a call to stop
		stop.stop(bus.ErrCancelled)
	}
	result := w.isolate.Begin(c)
	for {
		select {
		case err := <-result:
			if err == errLapsed {
				c.called(false)
				return errFenced
			}
			return err
		case abandoned := <-w.abandon:
			if abandoned == number { // not an earlier call
				return w.abandonCall(ctx, t)
			}
		}
	}
}

// abandonCall abandons the worker's current call.
func (w *worker) abandonCall(ctx context.Context, t *task) error {
	e, name := w.executor, t.consumer.Name()
	e.queue.abandon(name)
	w.isolate.Abandon(func() { e.queue.ended(name) })
	if context.Cause(ctx) == bus.ErrStopping {
		return fmt.Errorf("%w: %w", bus.ErrStopping, bus.ErrAbandoned) // it had no chance to finish
	}
	e.counters.abandoned.Add(1)
	e.config.Logger.Error("consumer ignored its timeout and was abandoned",
		"consumer", name, "message_id", t.message.ID.String(), "timeout", t.consumer.settings.Timeout)
	return bus.ErrAbandoned
}

// overdue has the worker abandon its call if its time is up.
func (w *worker) overdue(now time.Time) {
	number := w.call.Load()
	if deadline := w.deadline.Load(); deadline != 0 && int64(now.Sub(w.executor.started)) > deadline {
		w.giveUp(number)
	}
}

// watchLayers marks the worker as stuck while a layer of its chain, or an event's upcaster, has not
// returned for long. Those cannot be abandoned: they run on the worker's goroutine.
func (w *worker) watchLayers(now time.Time) {
	e, s := w.executor, &w.seen
	t, call := w.current.Load(), w.call.Load()
	switch {
	case t == nil, w.calling.Load() != nil, t != s.task, call != s.call:
		*s = sighting{task: t, call: call, since: now}
		w.stuck.Store(false)
	case !w.stuck.Load() && now.Sub(s.since) > t.consumer.settings.Timeout+abandonGrace+e.config.LeaseDuration:
		w.stuck.Store(true)
		e.config.Logger.Error("a layer of the consume chain or an upcaster does not return", "consumer", t.consumer.Name())
	}
}

func (w *worker) giveUp(number uint64) {
	select {
	case w.abandon <- number:
	default: // signalled already
	}
}

// workerPool is the workers of a run.
type workerPool struct {
	executor *executor
	queue    *queue
	all      []*worker
	running  sync.WaitGroup // and the goroutine pool
}

// start starts n workers.
func (wp *workerPool) start(n int) {
	for range n {
		w := newWorker(wp.executor)
		wp.all = append(wp.all, w)
		wp.startWorker(w, nil)
	}
}

// startWorker runs messages on a new goroutine until the dispatcher closes.
// done is a task that a lost worker has finished, if any.
func (wp *workerPool) startWorker(w *worker, done *task) {
	wp.running.Go(func() {
		stopped := false
		defer func() {
			w.isolate.Dismiss()
			if !stopped { // runtime.Goexit in a middleware ended this goroutine
				wp.startWorker(w, done)
			}
		}()
		for {
			t := wp.queue.next(done)
			if t == nil {
				stopped = true
				return
			}
			done = t
			switch {
			case t.together():
				w.runGroup(append([]*task{t}, t.others...))
			case len(t.others) > 0:
				w.runInOrder(t)
			default:
				w.process(t)
			}
		}
	})
}

func (wp *workerPool) runningInMiddleware() []string {
	return wp.consumersOf(func(*worker) bool { return true })
}

// stuck returns the consumers with layers that have not returned for long, one for each worker.
func (wp *workerPool) stuck() []string {
	return wp.consumersOf(func(w *worker) bool { return w.stuck.Load() })
}

// consumersOf returns the consumers of the messages that matching workers run.
func (wp *workerPool) consumersOf(match func(*worker) bool) (names []string) {
	for _, w := range wp.all {
		if t := w.current.Load(); t != nil && match(w) {
			names = append(names, t.consumer.Name())
		}
	}
	return names
}

// maxIdleGoroutines bounds the idle goroutines.
const maxIdleGoroutines = 256

// goroutinePool runs the chains of groups on goroutines that it keeps. A new goroutine has to
// grow its stack, which takes as long as the chain.
type goroutinePool struct {
	all  *sync.WaitGroup
	work chan func()
	over chan struct{}
	idle atomic.Int32
}

func newGoroutinePool(all *sync.WaitGroup) *goroutinePool {
	return &goroutinePool{all: all, work: make(chan func()), over: make(chan struct{})}
}

// do runs f on an idle goroutine or a new one. f may end the goroutine.
func (p *goroutinePool) do(f func()) {
	select {
	case p.work <- f:
	default:
		p.all.Go(func() { p.serve(f) })
	}
}

func (p *goroutinePool) serve(f func()) {
	for f != nil {
		f()
		f = p.next()
	}
}

// next waits for more to do. It returns nil at the end, or if enough others are idle.
func (p *goroutinePool) next() (f func()) {
	defer p.idle.Add(-1)
	if p.idle.Add(1) > maxIdleGoroutines {
		return nil
	}
	select {
	case f = <-p.work:
	case <-p.over:
	}
	return f
}

// close ends the idle goroutines, and the others once they are idle.
func (p *goroutinePool) close() { close(p.over) }
