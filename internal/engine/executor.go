package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
)

// executor runs messages through the consume chain. Workers call it.
type executor struct {
	config     *ProcessorConfig
	registry   *bus.Registry
	counters   *counters
	chain      bus.Handler
	transactor *transactor
	queue      *queue
	limiters   *limiters
	pollState  *pollState // it estimates the database's clock
	recorder   *recorder
	pool       *goroutinePool
	started    time.Time    // of the run
	stopping   *atomic.Bool // no further message of a key begins
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
}

// errLapsed is returned if a lease ended before the function was called.
var errLapsed = errors.New("outbox: a lease ended before the call")

// held reports whether the claims of all messages hold, and a slot for the call: the process may
// have been suspended.
func (c call) held() bool {
	now := time.Now()
	return c.lease.live(now) && !slices.ContainsFunc(c.members, func(m *member) bool { return !m.task.lease.live(now) }) &&
		!c.task.worker.executor.limiters.exceeds(c.task.consumer.limiter, now)
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
		return safeError(c.consumer.Consume(c.ctx, c.codec, c.payload))
	}
	errs := access.ConsumeBatch(c.ctx, c.consumer.Consumer, c.codec, c.batch)
	for i := range errs {
		errs[i] = safeError(errs[i])
	}
	return outcomes(errs)
}

func safeError(err error) error {
	switch v := bus.OutcomeOf(err); v.Outcome {
	case bus.Done:
		return nil
	case bus.Errored:
		return v.Err
	default:
		return &v
	}
}

// runChain runs one message through the chain and records its result, whatever the chain does. It
// waits for an innermost layer that the chain left running. Otherwise the message could run twice
// at once, and the next one on a busy goroutine.
func (e *executor) runChain(t *task) {
	var err error = isolate.ErrGoexit
	if t.consumer.tally != nil || t.consumer.settings.Keep > 0 {
		t.began = time.Now()
	}
	defer func() {
		if value := recover(); value != nil {
			err = isolate.NewPanic(value)
		}
		t.innermost.Lock()
		e.recorder.record(t, t.awaitBefore(err))
		if t.group != nil {
			t.group.order.over(t)
		}
	}()
	err = access.Deliver(t, e.chain, &t.message, t.consume)
}

// errNotWaited is for middleware that calls next concurrently or after it returned.
var errNotWaited = errors.New("outbox: a layer of the consume chain must wait until next has returned")

// consume is the end of the chain.
func (t *task) consume(ctx context.Context, m *bus.Message) error {
	e := t.worker.executor
	if !t.innermost.TryLock() {
		return errNotWaited
	}
	defer t.innermost.Unlock()
	payload, err := e.payload(ctx, m)
	if err != nil {
		return t.awaitBefore(err)
	}
	switch {
	case t.group != nil:
		if err = t.group.join(ctx, t, withPayload(m, payload)); errors.Is(err, bus.ErrExpired) {
			err = t.awaitBefore(err)
		}
	case t.stopped.Load(): // while it waited behind others
		err = errStopped
	case t.consumer.transactional:
		err = e.transactor.runInTx(ctx, t, payload)
	default:
		err = t.worker.invoke(ctx, t, payload)
		err = e.transactor.ofSteps(ctx, t, err)
	}
	err = t.asStopped(err)
	_, panicked := err.(*isolate.Panicked)
	if !panicked {
		err = releaseCancelled(ctx, err)
	}
	if err = t.reportToCircuit(err, panicked); err == nil {
		return nil
	}
	// A panic unwinds from here, so that the chain decides whether to recover.
	if p, ok := err.(*isolate.Panicked); ok {
		panic(p.PanicError)
	}
	return err
}

// reportToCircuit reports the result of a call to the consumer's circuit and returns the resulting
// error. A message that never reached the function shows nothing about what the function needs.
func (t *task) reportToCircuit(err error, panicked bool) error {
	circuit := t.consumer.circuit
	if undecodable := new(bus.DecodeError); errors.As(err, &undecodable) {
		t.called = false
	}
	if circuit == nil || !t.called || errors.Is(err, bus.ErrCancelled) {
		return err
	}
	if b := t.consumer.breaker; b != nil {
		if counted := b.count(err, t.probe); t.probe && !counted {
			return err // the recorder returns the right to probe
		}
	}
	passed := circuit.Ended(err, t.probe)
	t.probe = false
	if panicked {
		return err
	}
	return passed
}

// releaseCancelled releases a message whose handler failed because we cancelled it.
func releaseCancelled(ctx context.Context, err error) error {
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
func (e *executor) payload(ctx context.Context, m *bus.Message) ([]byte, error) {
	switch {
	case m.Event == nil:
		return m.Payload, nil
	case len(m.Payload) == 0:
		return nil, bus.Discard(fmt.Errorf("outbox: event %d of stream %q has been erased", m.Event.Version, m.Event.Stream))
	case access.Events(e.registry) == nil:
		return m.Payload, nil
	}
	payload, err := access.Events(e.registry).Upcast(ctx, m.PayloadType, m.Event.Schema, m.Payload)
	if access.IsNewer(err) {
		err = access.StandBack(m.CreatedAt, err)
	}
	return payload, err
}
