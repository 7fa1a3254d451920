package isolate

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Call is a function with its arguments: as a type of its own, so that it need
// not be a closure.
type Call interface{ Run() error }

// Runner is a goroutine on which calls run, one after the other. It starts with
// the first; the zero Runner is ready. It is for one goroutine, which in the end
// calls Dismiss.
type Runner[C Call] struct{ lane *lane[C] }

// lane is where the goroutine takes calls, until it is abandoned or dismissed.
type lane[C Call] struct {
	calls   chan C
	results chan error // buffered, so that an abandoned call can end
	ended   func()     // to be read once calls is closed
}

// Panicked tells a panic of a call from a *bus.PanicError that it returned.
type Panicked struct{ *bus.PanicError }

// ErrGoexit: the handler ended its goroutine with runtime.Goexit.
var ErrGoexit = errors.New("bus: handler called runtime.Goexit")

// NewPanic wraps what recover returned, with the current stack. A value that already is a
// *bus.PanicError is returned as it is, so that a panic passed from one goroutine to
// another keeps its stack.
func NewPanic(value any) *bus.PanicError {
	if p, ok := value.(*bus.PanicError); ok && p != nil {
		return p
	}
	return &bus.PanicError{Value: value, Stack: debug.Stack()}
}

// Guarded runs a layer, and returns its panic as an error.
func Guarded(ctx context.Context, m *bus.Message, next bus.Handler) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = NewPanic(value)
		}
	}()
	return next(ctx, m)
}

// Begin runs a call, and returns where its one result will be: its error, a
// *Panicked if it panics, ErrGoexit if it ends its goroutine. The result is
// received, or the call abandoned, before the next may begin.
func (p *Runner[C]) Begin(call C) <-chan error {
	if p.lane == nil {
		p.lane = &lane[C]{calls: make(chan C), results: make(chan error, 1)}
		go p.lane.work()
	}
	p.lane.calls <- call
	return p.lane.results
}

// Abandon leaves the goroutine behind with the call it is in, if any; the next
// call gets another. When the call is over, if ever, ended runs there, once.
func (p *Runner[C]) Abandon(ended func()) {
	if p.lane == nil {
		ended()
		return
	}
	p.lane.ended = ended
	close(p.lane.calls)
	p.lane = nil
}

// Dismiss ends the goroutine and waits for it. What was abandoned it does not wait
// for.
func (p *Runner[C]) Dismiss() {
	gone := make(chan struct{})
	p.Abandon(func() { close(gone) })
	<-gone
}

// work runs calls until there will be no more. When one ends the goroutine, another
// takes its place.
func (d *lane[C]) work() {
	over := false
	defer func() {
		if over {
			d.ended()
		} else {
			go d.work()
		}
	}()
	for call := range d.calls {
		d.run(call)
	}
	over = true
}

// run always answers.
func (d *lane[C]) run(call C) {
	var err error = ErrGoexit
	defer func() {
		if value := recover(); value != nil {
			err = &Panicked{NewPanic(value)}
		}
		d.results <- err
	}()
	err = call.Run()
}
