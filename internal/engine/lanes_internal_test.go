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
