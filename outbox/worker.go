package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// worker runs messages one after the other. The chain runs on its goroutine,
// the consumer's function on a second one: a function that never returns, or
// that ends its goroutine, then costs neither the worker nor the chain, which
// sees an ordinary error.
type worker struct {
	run      *run
	partner  *partner
	deadline atomic.Int64 // when to abandon the current call: ns since run.started, 0 for never
	call     atomic.Uint64
	abandon  chan uint64 // the number of the call to abandon
	current  atomic.Pointer[task]
}

// partner is the goroutine that a worker has its consumers run on.
type partner struct {
	in   chan call
	out  chan error // buffered, so that an abandoned call can end
	gone chan struct{}
}

type call struct {
	ctx      context.Context
	consumer *consumer
	payload  []byte
	codec    bus.Codec
}

// startWorker runs messages on a new goroutine until the dispatcher closes.
// done is a task that a lost worker has finished, if any.
func (r *run) startWorker(w *worker, done *task) {
	r.workers.Go(func() {
		stopped := false
		defer func() {
			w.dismiss()
			if !stopped { // runtime.Goexit in a middleware ended this goroutine
				r.startWorker(w, done)
			}
		}()
		for {
			t := r.dispatcher.next(done)
			if t == nil {
				stopped = true
				return
			}
			done = t
			if len(t.mates) > 0 {
				w.conduct(t)
			} else {
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
	w.run.through(t)
}

// through runs one message through the chain and hands its result on, whatever
// the chain does.
func (r *run) through(t *task) {
	var err error = bus.ErrGoexit
	defer func() {
		if value := recover(); value != nil {
			err = bus.NewPanicError(value)
		}
		r.settled(t, err)
	}()
	err = r.handler(bus.WithMessage(t, &t.message), &t.message)
}

// consume is the innermost layer of the chain.
func (r *run) consume(ctx context.Context, m *bus.Message) error {
	t, ok := taskFrom(ctx)
	if !ok {
		return errors.New("outbox: the consume chain must pass on the context it was given")
	}
	payload, err := r.payload(ctx, m)
	if err != nil {
		return err
	}
	switch {
	case t.group != nil:
		err = t.group.join(ctx, t, payload)
	case t.consumer.transactional:
		err = r.runInTx(ctx, t, payload)
	default:
		err = r.invoke(ctx, t, payload)
	}
	if err == nil {
		return nil
	}
	// A panic goes on unwinding here, so that recovering from it stays a matter of
	// the chain.
	if p, ok := err.(*raised); ok {
		panic(p.PanicError)
	}
	// A handler that fails because we cancelled it has not had its chance.
	if cause := context.Cause(ctx); cause == bus.ErrStopping || cause == bus.ErrLeaseLost {
		if bus.VerdictOf(err).Outcome == bus.Unclassified {
			return &bus.Verdict{Outcome: bus.Released, Err: err}
		}
	}
	return err
}

// payload is what the consumer is to decode: of an event, in its newest form.
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
	if errors.Is(err, bus.ErrDropped) {
		return nil, bus.Discard(err)
	}
	return payload, err
}

// invoke runs the consumer's function on the worker's partner and waits for it,
// but no longer than its deadline and a grace period. A panic comes back as an
// error, a *raised.
func (r *run) invoke(ctx context.Context, t *task, payload []byte) error {
	w := t.worker
	if w.partner == nil {
		w.partner = newPartner(r.zombies.buried)
	}
	number := w.begin(ctx)
	defer w.deadline.Store(0)
	w.partner.in <- call{ctx: ctx, consumer: t.consumer, payload: payload, codec: r.registry.Codec()}
	for {
		select {
		case err := <-w.partner.out:
			if err == bus.ErrGoexit {
				w.dismiss() // its goroutine ends
			}
			return err
		case abandoned := <-w.abandon:
			if abandoned != number {
				continue // meant for an earlier call
			}
			left := w.partner
			w.partner = nil
			return r.abandon(ctx, t, left)
		}
	}
}

// begin publishes until when the watchdog lets the next call run.
func (w *worker) begin(ctx context.Context) (number uint64) {
	number = w.call.Add(1)
	if deadline, ok := ctx.Deadline(); ok {
		w.deadline.Store(int64(deadline.Add(abandonGrace).Sub(w.run.started)))
	}
	return number
}

// raised tells a panic of the function from a *bus.PanicError it returned.
type raised struct{ *bus.PanicError }

// dismiss ends the partner and waits for it.
func (w *worker) dismiss() {
	if w.partner != nil {
		close(w.partner.in)
		<-w.partner.gone
		w.partner = nil
	}
}

// newPartner starts the goroutine that the worker's dismiss waits for. Only an
// abandoned partner is left behind.
func newPartner(ended func(*partner)) *partner {
	p := &partner{in: make(chan call), out: make(chan error, 1), gone: make(chan struct{})}
	go func() {
		defer ended(p) // after gone: see abandon
		defer close(p.gone)
		p.loop()
	}()
	return p
}

func (p *partner) loop() {
	for c := range p.in {
		p.run(c)
	}
}

// run calls the function and always answers.
func (p *partner) run(c call) {
	var err error = bus.ErrGoexit
	defer func() {
		if value := recover(); value != nil {
			err = &raised{bus.NewPanicError(value)}
		}
		p.out <- err
	}()
	err = c.consumer.Consume(c.ctx, c.codec, c.payload)
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
	default: // told already
	}
}
