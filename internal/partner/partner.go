package partner

import "github.com/asyncmonolith/asyncmonolith-go/bus"

// Call is a function with its arguments: as a type of its own, so that it need
// not be a closure.
type Call interface{ Run() error }

// Partner is a goroutine on which calls run, one after the other. It starts with
// the first; the zero Partner is ready. It is for one goroutine, which in the end
// calls Dismiss.
type Partner[C Call] struct{ desk *desk[C] }

// desk is where the partner takes calls, until it is abandoned or dismissed.
type desk[C Call] struct {
	calls   chan C
	results chan error // buffered, so that an abandoned call can end
	ended   func()     // to be read once calls is closed
}

// Raised tells a panic of a call from a *bus.PanicError that it returned.
type Raised struct{ *bus.PanicError }

// Begin runs a call, and returns where its one result will be: its error, a
// *Raised if it panics, bus.ErrGoexit if it ends its goroutine. The result is
// received, or the call abandoned, before the next may begin.
func (p *Partner[C]) Begin(call C) <-chan error {
	if p.desk == nil {
		p.desk = &desk[C]{calls: make(chan C), results: make(chan error, 1)}
		go p.desk.work()
	}
	p.desk.calls <- call
	return p.desk.results
}

// Abandon leaves the goroutine behind with the call it is in, if any; the next
// call gets another. When the call is over, if ever, ended runs there, once.
func (p *Partner[C]) Abandon(ended func()) {
	if p.desk == nil {
		ended()
		return
	}
	p.desk.ended = ended
	close(p.desk.calls)
	p.desk = nil
}

// Dismiss ends the goroutine and waits for it. What was abandoned it does not wait
// for.
func (p *Partner[C]) Dismiss() {
	gone := make(chan struct{})
	p.Abandon(func() { close(gone) })
	<-gone
}

// work runs calls until there will be no more. When one ends the goroutine, another
// takes its place.
func (d *desk[C]) work() {
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
func (d *desk[C]) run(call C) {
	var err error = bus.ErrGoexit
	defer func() {
		if value := recover(); value != nil {
			err = &Raised{bus.NewPanicError(value)}
		}
		d.results <- err
	}()
	err = call.Run()
}
