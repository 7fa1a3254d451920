package engine

// An internal test: which states of a breaker a process reads, and which it misses, is a matter of timing.

import (
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// TestAnOldProbeHidesNoOpening: the process has probed in the second part of an earlier opening, and sees the next one only
// when another process probes in its second part.
func TestAnOldProbeHidesNoOpening(t *testing.T) {
	t.Parallel()
	b, err := breakerOf("c", bus.ConsumerConfig{Breaker: &bus.CircuitBreakerConfig{Window: time.Minute}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	open := func(opened int) store.Breaker {
		return store.Breaker{Opened: opened, OpenUntil: dialect.Moment{Time: now.Add(time.Minute)}}
	}
	b.apply(open(1), now)
	b.mayProbe(2, now)
	b.apply(open(2), now)
	if !b.TakeProbe(now) {
		t.Fatal("a probe: got none, want the one that this process has won")
	}
	b.count(nil, true)
	if err := b.Ended(nil, true); err != nil {
		t.Fatal(err)
	}
	b.take(now)
	b.apply(store.Breaker{}, now)
	b.apply(open(2), now)
	if _, _, isOpen := b.Tripped(); !isOpen {
		t.Error("the circuit: got it closed, want it open as everywhere")
	}
	if b.TakeProbe(now) {
		t.Error("a probe: got one, want it left to the process that has won it")
	}
}
