package engine

// An internal test: whether a settle comes during a claim is a matter of microseconds.

import (
	"context"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// TestWhatIsFreedDuringAClaimIsAskedForAgain: the claim has seen messages of a key as held that is free
// when it comes back.
func TestWhatIsFreedDuringAClaimIsAskedForAgain(t *testing.T) {
	t.Parallel()
	for name, freed := range map[string]bool{"freed meanwhile": true, "not freed": false} {
		l := lanesOf(&consumer{Consumer: bus.Consume("c", func(context.Context, testPayload) error { return nil }, bus.KeyConcurrency(1))})[0]
		now := time.Now()
		l.activate()
		plan := claimPlan{parts: []part{l.part()}, began: now, request: store.ClaimRequest{Limit: 10, Lanes: l.request(now, 10)}}
		l.active = false
		if freed {
			l.free(nil, 10)
		}
		var c store.Claim
		c.News.Left = true
		l.claimed(plan, c, now)
		if ready, _ := l.pending(now); ready != freed {
			t.Errorf("%s: got it asked for again: %v, want %v", name, ready, freed)
		}
	}
}

// TestLooksAtDeadEntriesTakeLittleOfTheTime, although nothing is claimed for an idle consumer: a look from the very beginning
// walks what vacuum has not cleared up.
func TestLooksAtDeadEntriesTakeLittleOfTheTime(t *testing.T) {
	t.Parallel()
	ordered := bus.Consume("c", func(context.Context, testPayload) error { return nil }, bus.Ordered(bus.SkipPoisoned))
	l := lanesOf(&consumer{Consumer: ordered})[0]
	l.floor = 1000
	d := newTestDispatcher(t, ProcessorConfig{})
	d.pollState.catalog.consumers = []*consumer{{lanes: []*lanes{l}}}
	now := time.Now()
	begins := func(now time.Time) int64 {
		looks, of := d.pollState.laneLooks(now, true, func(*lanes) bool { return true })
		d.pollState.walked(looks, of, now, now.Add(time.Second))
		return looks[0].After
	}
	for _, step := range []struct {
		after time.Duration
		want  int64
	}{{0, 0}, {3 * time.Second, 1000}, {10 * time.Second, 1000}, {12 * time.Second, 0}, {20 * time.Second, 1000}} {
		if got := begins(now.Add(step.after)); got != step.want {
			t.Errorf("a look %s after the first, which took 1 s: got it from rank %d, want from %d", step.after, got, step.want)
		}
	}
}
