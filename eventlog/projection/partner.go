package projection

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

const (
	// abandonGrace is how long a function may go on when its context is over,
	// before it is left behind.
	abandonGrace = 5 * time.Second
	// maxLeft is how many that were left behind may be running before no more
	// batches are begun.
	maxLeft = 16
)

// partner is the goroutine on which the functions of one batch run: one that
// never returns costs neither the shard nor the end of Run. The chain, and all
// that is done with the transaction besides, stays on the goroutine of the batch.
type partner struct {
	in    chan func() error
	out   chan error // buffered, so that a call that was left behind can end
	gone  chan struct{}
	state atomic.Int32
}

// The states of a partner.
const (
	inUse int32 = iota
	leftBehind
	ended
)

// newPartner starts the goroutine. left counts those that were left behind and
// have not ended.
func newPartner(left *atomic.Int64) *partner {
	p := &partner{in: make(chan func() error), out: make(chan error, 1), gone: make(chan struct{})}
	go func() {
		defer close(p.gone)
		defer func() {
			if p.state.Swap(ended) == leftBehind {
				left.Add(-1)
			}
		}()
		for fn := range p.in {
			p.run(fn)
		}
	}()
	return p
}

// raised tells a panic of a function from a *bus.PanicError that it returned.
type raised struct{ *bus.PanicError }

// run always answers.
func (p *partner) run(fn func() error) {
	var err error = bus.ErrGoexit
	defer func() {
		if value := recover(); value != nil {
			err = &raised{bus.NewPanicError(value)}
		}
		p.out <- err
	}()
	err = fn()
}

// call runs a function of the projection. When its context is over, by the
// timeout or by a stop, it waits a little longer and then leaves it behind. A
// panic goes on here, so that recovering from it is a matter of the chain.
func (b *batch) call(ctx context.Context, m *bus.Message, fn func() error) error {
	if b.partner == nil {
		b.partner = newPartner(&b.runner.left)
	}
	b.partner.in <- fn
	select {
	case err := <-b.partner.out:
		return b.returned(err)
	case <-ctx.Done():
	}
	grace := time.NewTimer(abandonGrace)
	defer grace.Stop()
	select {
	case err := <-b.partner.out:
		return b.returned(err)
	case <-grace.C:
		return b.abandon(ctx, m)
	}
}

func (b *batch) returned(err error) error {
	if err == bus.ErrGoexit {
		b.dismiss() // its goroutine ends
	}
	if p, ok := err.(*raised); ok {
		panic(p.PanicError)
	}
	return err
}

// abandon leaves the function behind, and ends the session that it may be running
// a statement in: rolling back would wait for that, and the shard stay locked.
func (b *batch) abandon(ctx context.Context, m *bus.Message) error {
	left := b.partner
	b.partner = nil
	if left.state.CompareAndSwap(inUse, leftBehind) {
		b.runner.left.Add(1)
	}
	close(left.in)
	b.runner.config.Logger.ErrorContext(ctx, "projection ignored its timeout and was abandoned", "projection", b.Name, "version", b.Version,
		"shard", b.number, "stream", m.Event.Stream, "event_version", m.Event.Version, "position", m.Event.Position, "timeout", b.Timeout)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	if err := b.runner.store.Interrupt(ctx, b.runner.db, b.sub.Session); err != nil {
		b.runner.outage.Noticed("interrupt", err)
	}
	return bus.ErrAbandoned
}

// dismiss ends the partner and waits for it.
func (b *batch) dismiss() {
	if b.partner != nil {
		close(b.partner.in)
		<-b.partner.gone
		b.partner = nil
	}
}
