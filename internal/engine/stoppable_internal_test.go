package engine

import (
	"context"
	"errors"
	"testing"
	"time"
)

type stoppableKey struct{}

func TestAStoppableContextIsOneLikeAnyOther(t *testing.T) {
	why, outer := errors.New("why"), errors.New("outer")
	parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), stoppableKey{}, 1))
	s := &stoppable{Context: parent}
	if s.Err() != nil || s.Value(stoppableKey{}) != 1 || context.Cause(s) != nil {
		t.Errorf("got %v, %v, want it alive", s.Err(), context.Cause(s))
	}
	child, stopChild := context.WithTimeout(s, time.Hour)
	defer stopChild()
	s.stop(why)
	<-child.Done()
	for _, ctx := range []context.Context{s, child} {
		if !errors.Is(ctx.Err(), context.Canceled) || context.Cause(ctx) != why || ctx.Value(stoppableKey{}) != 1 {
			t.Errorf("stopped: got %v because of %v, want %v", ctx.Err(), context.Cause(ctx), why)
		}
	}
	if parent.Err() != nil {
		t.Errorf("parent: got %v, want it alive", parent.Err())
	}

	other := &stoppable{Context: parent}
	ended := other.Done()
	cancel(outer)
	<-ended
	if other.Err() == nil || context.Cause(other) != outer {
		t.Errorf("ended with its parent: got %v because of %v, want %v", other.Err(), context.Cause(other), outer)
	}
	if fresh := (&stoppable{Context: parent}); fresh.Err() == nil || context.Cause(fresh) != outer {
		t.Errorf("made after its parent's end: got %v, want it ended", fresh.Err())
	}
}

func TestAStoppableContextCostsNothingUntilItIsWaitedFor(t *testing.T) {
	s := &stoppable{Context: t.Context()}
	if n := testing.AllocsPerRun(100, func() { _ = s.Err(); _ = s.Value(stoppableKey{}); s.end() }); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}
