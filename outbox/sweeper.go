package outbox

import (
	"context"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	sweepShare   = 20                    // sweeps take one part in so many of the time, at most
	sweepAside   = 50 * time.Millisecond // what took longer the last time has a goroutine of its own
	sweepPolling = 2 * time.Second       // how long a poll may sweep
	sweepTimeout = 30 * time.Second      // how long a sweep on its own goroutine may take
)

// sweeper looks at all that is due from the very beginning on, since messages may lie
// before the cursors: those that were committed late, given back, or left behind when
// looks took too long. A poll does that as well while it is quick.
type sweeper struct {
	mu      sync.Mutex
	next    time.Time
	took    time.Duration
	running bool
	wg      sync.WaitGroup
}

// due tells whether it is time to sweep, and whether a poll may do it.
func (s *sweeper) due(now time.Time) (due, polling bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.running && !now.Before(s.next), s.took <= sweepAside
}

// done notes when a sweep began that is over now.
func (s *sweeper) done(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.took, s.running = now.Sub(began), false
	s.next = now.Add(sweepShare * s.took)
}

// reset lets the next poll sweep: what was slow before an outage says nothing now.
func (s *sweeper) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next, s.took = time.Time{}, 0
}

// at is when there may be a sweep again, at the earliest.
func (s *sweeper) at() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

// aside sweeps on a goroutine of its own.
func (s *sweeper) aside(sweep func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = true
	s.wg.Go(func() {
		began := time.Now()
		defer func() { s.done(began) }()
		sweep()
	})
}

// sweepBack looks at ever more of what is due, from the newest back to the beginning,
// until that takes too long: then at least what is new has been found.
func (r *run) sweepBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	windows := []time.Duration{10 * time.Second, 2 * time.Minute, 20 * time.Minute, 4 * time.Hour, 2 * 24 * time.Hour, 30 * 24 * time.Hour, 0}
	for _, window := range windows {
		var from store.Position
		if window > 0 {
			from.At = time.Now().Add(-window)
		}
		wants, stood := r.dispatcher.sweeps(from)
		probe, err := r.store.Probe(ctx, r.db, wants)
		if err != nil {
			if ctx.Err() == nil {
				r.outage.Noticed("sweep", err)
			}
			return
		}
		r.dispatcher.found(probe, wants, stood, time.Now())
	}
}

// lookAll is the look of a poll: from the beginning when it is time for that, else
// from the cursors.
func (r *run) lookAll(ctx context.Context) (probe store.Probe, news bool, err error) {
	if due, polling := r.sweeper.due(time.Now()); due && polling {
		began := time.Now()
		wants, stood := r.dispatcher.sweeps(store.Position{})
		probe, err = r.probe(ctx, wants, sweepPolling)
		r.sweeper.done(began)
		if err == nil {
			return probe, r.dispatcher.found(probe, wants, stood, time.Now()), nil
		}
		if time.Since(began) < sweepPolling || ctx.Err() != nil {
			return probe, false, err
		}
		r.dispatcher.skip(time.Now().Add(-margin)) // for who has no better idea where to begin
		r.sweeper.aside(func() { r.sweepBack(ctx) })
	} else if due {
		r.sweeper.aside(func() { r.sweepBack(ctx) })
	}
	began := time.Now()
	wants, stood := r.dispatcher.looks()
	if probe, err = r.probe(ctx, wants, statementTimeout); err == nil {
		return probe, r.dispatcher.found(probe, wants, stood, time.Now()), nil
	}
	if tooSlow(began) {
		r.dispatcher.skip(time.Now().Add(-margin))
	}
	return probe, false, err
}

// tooSlow tells of a statement that failed whether its time was up.
func tooSlow(began time.Time) bool { return time.Since(began) > statementTimeout*9/10 }
