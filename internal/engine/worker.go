package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// worker runs messages one after the other. The chain runs on its goroutine, the consumer's
// function on another one. A function that never returns, or ends its goroutine, costs neither the
// worker nor the chain, which gets an ordinary error.
type worker struct {
	run      *run
	isolate  isolate.Runner[call]
	deadline atomic.Int64 // when to abandon the current call: ns since run.started, 0 for never
	call     atomic.Uint64
	abandon  chan uint64 // the number of the call to abandon
	current  atomic.Pointer[task]
	calling  atomic.Pointer[stoppable] // the context of the call
}

type call struct {
	ctx      context.Context
	consumer *consumer
	payload  []byte
	batch    []*bus.Message // instead of one payload
	members  []*member      // of the messages of batch
	codec    bus.Codec
	task     *task
	lease    *lease // the task's, which may get another after the call was abandoned
	ledger   *ledger
}

// errLapsed is returned if the lease ended before the function was called.
var errLapsed = errors.New("outbox: the lease ended before the call")

// held reports whether the claims of all messages hold: the process may have been suspended.
func (c call) held() bool {
	now := time.Now()
	return c.ledger.live(c.lease, now) && !slices.ContainsFunc(c.members, func(m *member) bool { return !c.ledger.live(m.task.lease, now) })
}

// called records whether the function was called.
func (c call) called(was bool) {
	c.task.called = was
	for _, m := range c.members {
		m.task.called = was
	}
}

// stopped reports whether a stop was requested for one of the call's messages.
func (c call) stopped(t *task) bool {
	return t.stopped.Load() || slices.ContainsFunc(c.members, func(m *member) bool { return m.task.stopped.Load() })
}

// Run implements isolate.Call. Any code may inspect the error it returns: a handler's error whose
// methods panic, such as a nil pointer, is replaced.
func (c call) Run() error {
	if !c.held() { // it may have waited for a CPU
		return errLapsed
	}
	if c.batch == nil {
		return sound(c.consumer.Consume(c.ctx, c.codec, c.payload))
	}
	errs := c.consumer.ConsumeBatch(c.ctx, c.codec, c.batch)
	for i := range errs {
		errs[i] = sound(errs[i])
	}
	return outcomes(errs)
}

func sound(err error) error {
	switch v := bus.OutcomeOf(err); v.Outcome {
	case bus.Done:
		return nil
	case bus.Errored:
		return v.Err
	default:
		return &v
	}
}

func (r *run) newWorker() *worker { return &worker{run: r, abandon: make(chan uint64, 1)} }

// startWorker runs messages on a new goroutine until the dispatcher closes.
// done is a task that a lost worker has finished, if any.
func (r *run) startWorker(w *worker, done *task) {
	r.workers.Go(func() {
		stopped := false
		defer func() {
			w.isolate.Dismiss()
			if !stopped { // runtime.Goexit in a middleware ended this goroutine
				r.startWorker(w, done)
			}
		}()
		for {
			t := r.dispatcher.queue.next(done)
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

// process runs one message.
func (w *worker) process(t *task) {
	t.worker = w
	w.current.Store(t)
	defer w.current.Store(nil)
	w.run.runChain(t)
}

// errNotWaited is for middleware that calls next concurrently or after it returned.
var errNotWaited = errors.New("outbox: a layer of the consume chain must wait for the one below")

// runChain runs one message through the chain and records its result, whatever the chain does. It
// waits for an innermost layer that the chain left running. Otherwise the message could run twice
// at once, and the next one on a busy goroutine.
func (r *run) runChain(t *task) {
	var err error = isolate.ErrGoexit
	if t.consumer.tally != nil {
		t.began = time.Now()
	}
	defer func() {
		if value := recover(); value != nil {
			err = isolate.NewPanic(value)
		}
		t.innermost.Lock()
		r.settled(t, t.inTurn(err))
		if t.group != nil {
			t.group.turns.over(t)
		}
	}()
	err = bus.Deliver(t, r.chain, &t.message, t.consume)
}

// consume is the end of the chain.
func (t *task) consume(ctx context.Context, m *bus.Message) error {
	r := t.worker.run
	if !t.innermost.TryLock() {
		return errNotWaited
	}
	defer t.innermost.Unlock()
	payload, err := r.payload(ctx, m)
	if err != nil {
		return t.inTurn(err)
	}
	switch {
	case t.group != nil:
		if err = t.group.join(ctx, t, withPayload(m, payload)); errors.Is(err, bus.ErrExpired) {
			err = t.inTurn(err)
		}
	case t.stopped.Load(): // while it waited behind others
		err = errStopped
	case t.consumer.transactional:
		err = r.runInTx(ctx, t, payload)
	default:
		err = r.invoke(ctx, t, payload)
	}
	err = t.asStopped(err)
	_, panicked := err.(*isolate.Panicked)
	if !panicked {
		err = withoutChance(ctx, err)
	}
	if err = t.throughCircuit(err, panicked); err == nil {
		return nil
	}
	// A panic unwinds from here, so that the chain decides whether to recover.
	if p, ok := err.(*isolate.Panicked); ok {
		panic(p.PanicError)
	}
	return err
}

// throughCircuit reports the result of a call to the consumer's circuit and returns the resulting
// error. A message that never reached the function shows nothing about what the function needs.
func (t *task) throughCircuit(err error, panicked bool) error {
	circuit := t.consumer.circuit
	if undecodable := new(bus.DecodeError); errors.As(err, &undecodable) {
		t.called = false
	}
	if circuit == nil || !t.called || errors.Is(err, bus.ErrCancelled) {
		return err
	}
	if t.consumer.breaker != nil {
		t.consumer.breaker.count(err, t.probe)
	}
	passed := circuit.Ended(err, t.probe)
	if t.probe = false; panicked {
		return err
	}
	return passed
}

// withoutChance releases a message whose handler failed because we cancelled it.
func withoutChance(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); (cause == bus.ErrStopping || cause == bus.ErrLeaseLost) && bus.OutcomeOf(err).Outcome == bus.Errored {
		return &bus.OutcomeError{Outcome: bus.Released, Err: err}
	}
	return err
}

// withPayload returns the message with the payload that its handler gets.
func withPayload(m *bus.Message, payload []byte) *bus.Message {
	if m.Event == nil { // the payload is the message's own
		return m
	}
	upcast := *m
	upcast.Payload = payload
	return &upcast
}

// payload returns the payload to decode, that of an event in its newest form.
func (r *run) payload(ctx context.Context, m *bus.Message) ([]byte, error) {
	switch {
	case m.Event == nil:
		return m.Payload, nil
	case len(m.Payload) == 0:
		return nil, bus.Discard(fmt.Errorf("outbox: event %d of stream %q has been erased", m.Event.Version, m.Event.Stream))
	case r.registry.Events() == nil:
		return m.Payload, nil
	}
	payload, err := r.registry.Events().Upcast(ctx, m.PayloadType, m.Event.Schema, m.Payload)
	if errors.Is(err, store.ErrDropped) {
		return nil, bus.Discard(err)
	}
	return payload, err
}

// invoke runs the consumer's function on a goroutine of its own. It waits for it until its deadline
// and a grace period are over. It returns a panic as an *isolate.Panicked.
func (r *run) invoke(ctx context.Context, t *task, payload []byte) error {
	return r.begin(ctx, t, call{ctx: ctx, consumer: t.consumer, payload: payload, codec: r.registry.Codec()})
}

func (r *run) begin(ctx context.Context, t *task, c call) error {
	if c.members == nil { // expired messages of a batch are left out before
		if err := r.tooLate(&t.message); err != nil {
			return err
		}
	}
	c.task, c.lease, c.ledger = t, t.lease, r.ledger
	if !c.held() {
		return errFenced
	}
	w := t.worker
	number := w.call.Add(1)
	if deadline, ok := ctx.Deadline(); ok { // the keeper lets it run until then
		w.deadline.Store(int64(deadline.Add(abandonGrace).Sub(r.started)))
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
	r, name := w.run, t.consumer.Name()
	r.dispatcher.queue.abandon(name)
	w.isolate.Abandon(func() { r.dispatcher.queue.ended(name) })
	if context.Cause(ctx) == bus.ErrStopping {
		return fmt.Errorf("%w: %w", bus.ErrStopping, bus.ErrAbandoned) // it had no chance to finish
	}
	r.counters.abandoned.Add(1)
	r.config.Logger.Error("consumer ignored its timeout and was abandoned",
		"consumer", name, "message_id", t.message.ID.String(), "timeout", t.consumer.settings.Timeout)
	return bus.ErrAbandoned
}

// overdue has the worker abandon its call if its time is up.
func (w *worker) overdue(now time.Time) {
	number := w.call.Load()
	if deadline := w.deadline.Load(); deadline != 0 && int64(now.Sub(w.run.started)) > deadline {
		w.giveUp(number)
	}
}

func (w *worker) giveUp(number uint64) {
	select {
	case w.abandon <- number:
	default: // signalled already
	}
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
