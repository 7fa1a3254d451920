package engine

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/asyncmonolith/asyncmonolith-go/internal/steps"
)

// stoppable is a context that can be cancelled separately. It costs nothing until it is cancelled
// or its end is awaited.
type stoppable struct {
	context.Context
	of   *task     // the task of the call
	with []*member // the members of a batch
	made atomic.Pointer[cancellable]
	over atomic.Bool               // the call has ended, or was abandoned
	log  atomic.Pointer[steps.Log] // made when the consumer asks for it
}

// isOf reports whether the call is for a message or for a batch with it.
func (s *stoppable) isOf(t *task) bool {
	return s.of == t && len(s.with) == 0 || slices.ContainsFunc(s.with, func(m *member) bool { return m.task == t })
}

type cancellable struct {
	context.Context
	cancel context.CancelCauseFunc
}

// make returns the context that can be cancelled.
func (s *stoppable) make() *cancellable {
	if c := s.made.Load(); c != nil {
		return c
	}
	ctx, cancel := context.WithCancelCause(s.Context)
	if c := (&cancellable{ctx, cancel}); s.made.CompareAndSwap(nil, c) {
		return c
	}
	cancel(nil) // another call was faster
	return s.made.Load()
}

// stop ends the context.
func (s *stoppable) stop(cause error) { s.make().cancel(cause) }

// end frees the resources of the context. No step begins any more.
func (s *stoppable) end() {
	s.over.Store(true)
	if c := s.made.Load(); c != nil {
		c.cancel(nil)
	}
}

// Done implements context.Context.
func (s *stoppable) Done() <-chan struct{} { return s.make().Done() }

// Err implements context.Context.
func (s *stoppable) Err() error {
	if c := s.made.Load(); c != nil {
		return c.Err()
	}
	return s.Context.Err()
}

// Value implements context.Context. context.Cause finds the cause through it.
func (s *stoppable) Value(key any) any {
	if key == (steps.Key{}) {
		return s.steps()
	}
	if c := s.made.Load(); c != nil {
		return c.Value(key)
	}
	return s.Context.Value(key)
}
