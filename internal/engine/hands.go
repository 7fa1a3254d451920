package engine

import (
	"sync"
	"sync/atomic"
)

// maxIdleHands is how many goroutines wait for work, at most.
const maxIdleHands = 256

// hands are goroutines on which the chains of groups run, one after the other. On a new
// goroutine the stack would have to grow each time, which takes as long as the chain.
type hands struct {
	all  *sync.WaitGroup
	work chan func()
	over chan struct{}
	idle atomic.Int32
}

func newHands(all *sync.WaitGroup) *hands {
	return &hands{all: all, work: make(chan func()), over: make(chan struct{})}
}

// do has f run, on a goroutine that is idle or on a new one. f may end it.
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

// next waits for more to do. Nil means that there will be no more, or that enough others wait.
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

// dismiss ends those that are idle, and the others once they are.
func (h *hands) dismiss() { close(h.over) }
