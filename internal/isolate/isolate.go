package isolate

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
)

// Call is a function with its arguments. It is a type, so that no closure is needed.
type Call interface{ Run() error }

// Runner is a goroutine that runs calls one after the other. It starts with the first call; the
// zero Runner is ready. One goroutine uses it, and calls Dismiss in the end.
type Runner[C Call] struct{ lane *lane[C] }

// lane passes calls to the goroutine until it is abandoned or dismissed.
type lane[C Call] struct {
	calls   chan C
	results chan error // buffered, so that an abandoned call can end
	ended   func()     // to be read once calls is closed
}

// Panicked distinguishes a panic of a call from a *bus.PanicError that the call returned.
type Panicked struct{ *bus.PanicError }

// ErrGoexit is returned if the handler ended its goroutine with runtime.Goexit.
var ErrGoexit = errors.New("bus: handler called runtime.Goexit")

// NewPanic wraps what recover returned, with the current stack. It returns a *bus.PanicError as it
// is, so that a panic passed between goroutines keeps its stack.
func NewPanic(value any) *bus.PanicError {
	if p, ok := value.(*bus.PanicError); ok && p != nil {
		return p
	}
	if err, ok := value.(error); ok {
		value = errorlog.Sound(err)
	}
	return &bus.PanicError{Value: value, Stack: debug.Stack()}
}

// Guarded runs a layer and returns a panic as an error.
func Guarded(ctx context.Context, m *bus.Message, next bus.Handler) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = NewPanic(value)
		}
	}()
	return next(ctx, m)
}

// Begin runs a call and returns the channel of its one result: its error, a *Panicked if it panics,
// or ErrGoexit if it ends its goroutine. Receive the result, or abandon the call, before the next
// one.
func (p *Runner[C]) Begin(call C) <-chan error {
	if p.lane == nil {
		p.lane = &lane[C]{calls: make(chan C), results: make(chan error, 1)}
		go p.lane.work()
	}
	p.lane.calls <- call
	return p.lane.results
}

// Abandon leaves the goroutine behind with its current call, if any; the next call gets another
// one. If the call ever ends, ended runs there, once.
func (p *Runner[C]) Abandon(ended func()) {
	if p.lane == nil {
		ended()
		return
	}
	p.lane.ended = ended
	close(p.lane.calls)
	p.lane = nil
}

// Dismiss ends the goroutine and waits for it. It does not wait for abandoned calls.
func (p *Runner[C]) Dismiss() {
	gone := make(chan struct{})
	p.Abandon(func() { close(gone) })
	<-gone
}

// work runs calls until the lane is closed. When a call ends the goroutine, another one takes its
// place.
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

// run always sends a result, whose methods do not panic.
func (d *lane[C]) run(call C) {
	var err error = ErrGoexit
	defer func() {
		if value := recover(); value != nil {
			err = &Panicked{NewPanic(value)}
		}
		d.results <- err
	}()
	err = errorlog.Sound(call.Run())
}
