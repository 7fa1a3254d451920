package engine

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// lookAtLanes activates the lanes that have messages, and adds the crashed ones to the probe.
func (r *run) lookAtLanes(ctx context.Context, probe *store.Probe) error {
	looks, of := r.dispatcher.probes.laneLooks(time.Now(), true, func(*lanes) bool { return true })
	return r.inParts(ctx, looks, func(from, to int, states []store.LaneState) {
		r.dispatcher.probes.lookedAtLanes(of[from:to], states, probe)
	}, true)
}

// inParts looks at some lanes at a time: one statement for many would have too many parts or take
// too long. A failed part does not stop the others. It begins at a random part, so that each has
// its turn if time runs out.
func (r *run) inParts(ctx context.Context, looks []store.LaneLook, found func(from, to int, states []store.LaneState), crashed bool) (err error) {
	const most = 50
	parts := (len(looks) + most - 1) / most
	first := rand.IntN(max(parts, 1))
	for i := 0; i < parts && ctx.Err() == nil; i++ {
		from := (first + i) % parts * most
		to := min(from+most, len(looks))
		states, failed := r.store.ProbeLanes(ctx, r.db, looks[from:to], crashed)
		if failed == nil {
			found(from, to, states)
		}
		err = cmp.Or(err, failed)
	}
	return cmp.Or(err, ctx.Err())
}

// lookForExpected looks for keyed messages that are about to be committed, for all consumers if all
// is set. asked reports whether there was anything to look for, news whether idle consumers got
// work.
func (r *run) lookForExpected(ctx context.Context, now time.Time, all bool) (asked, news bool) {
	looks, of := r.dispatcher.probes.laneLooks(now, false, func(l *lanes) bool { return all || now.Before(l.of.expected) })
	if len(looks) == 0 {
		return false, false
	}
	_, _ = ask(ctx, r, "poll", statementTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.inParts(ctx, looks, func(from, _ int, states []store.LaneState) {
			news = r.dispatcher.probes.lanesAppeared(of[from:], states) || news
		}, false)
	})
	return true, news
}
