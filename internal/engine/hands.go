package engine

import (
	"sync"
	"sync/atomic"
)

// maxIdleHands bounds the idle goroutines.
const maxIdleHands = 256

// hands are goroutines that run the chains of groups, one after the other. A new goroutine has to
// grow its stack, which takes as long as the chain.
type hands struct {
	all  *sync.WaitGroup
	work chan func()
	over chan struct{}
	idle atomic.Int32
}

func newHands(all *sync.WaitGroup) *hands {
	return &hands{all: all, work: make(chan func()), over: make(chan struct{})}
}

// do runs f on an idle goroutine or a new one. f may end the goroutine.
func (h *hands) do(f func()) {
	select {
	case h.work <- f:
	default:
		h.all.Go(func() { h.goOn(f) })
	}
}

func (h *hands) goOn(f func()) {
	for f != nil {
		f()
		f = h.next()
	}
}

// next waits for more to do. It returns nil at the end, or if enough others are idle.
func (h *hands) next() (f func()) {
	defer h.idle.Add(-1)
	if h.idle.Add(1) > maxIdleHands {
		return nil
	}
	select {
	case f = <-h.work:
	case <-h.over:
	}
	return f
}

// dismiss ends the idle goroutines, and the others once they are idle.
func (h *hands) dismiss() { close(h.over) }
