package engine

import (
	"context"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	sweepShare   = 20                    // sweeps take at most one part in this many of the time
	sweepAside   = 50 * time.Millisecond // after a sweep that took longer, the next has its own goroutine
	sweepPolling = 2 * time.Second       // how long a poll may sweep
	sweepTimeout = 30 * time.Second      // how long a sweep on its own goroutine may take
	sweepAgain   = time.Second           // after a failed one
)

// sweeper looks at everything due, from the very beginning. Messages may lie before the cursors:
// committed out of order, given back, or skipped when looks took too long. A poll sweeps as well
// while that is quick.
type sweeper struct {
	mu      sync.Mutex
	began   time.Time // the last one
	next    time.Time
	took    time.Duration
	running bool
	wg      sync.WaitGroup
}

// due reports whether it is time to sweep, and whether a poll may do it. The result and the
// duration of a sweep from before the end of an outage are void.
func (s *sweeper) due(now, outageEnded time.Time) (due, polling bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if outageEnded.After(s.began) {
		return true, true
	}
	return !s.running && !now.Before(s.next), s.took <= sweepAside
}

// done notes the end of a sweep that began at began. A failed one is repeated soon, since it took
// no time from others.
func (s *sweeper) done(began time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began.Before(s.began) { // another has begun since
		return
	}
	now := time.Now()
	s.began, s.took, s.next = began, now.Sub(began), now.Add(sweepAgain)
	if ok {
		s.next = now.Add(sweepShare * s.took)
	}
}

// at returns when the next sweep may begin.
func (s *sweeper) at() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

// aside sweeps on a goroutine of its own, unless one is running.
func (s *sweeper) aside(sweep func() (ok bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running {
		return
	}
	s.running, s.began = true, time.Now()
	began := s.began
	s.wg.Go(func() {
		ok := sweep()
		s.done(began, ok)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running = false
	})
}

// sweepSoon has the loop look once a sweep may begin.
func (p *poller) sweepSoon() { p.alarm.By(later(p.sweeper.at(), time.Now())) }

// sweepBack looks at one part of what is due after the other, from the newest back to the
// beginning, until that takes too long. At least new messages are then found. Each part ends where
// the one before began, so that dead entries are walked once. It returns false if a look failed for
// another reason.
func (p *poller) sweepBack(ctx context.Context) (ok bool) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	now := p.pollState.clock(time.Now())
	until := now
	const day = 24 * time.Hour
	for _, back := range []time.Duration{10 * time.Second, 2 * time.Minute, 20 * time.Minute, 4 * time.Hour, 2 * day, 30 * day, 0} {
		var from store.Position
		if back > 0 {
			from.At = now.Add(-back)
		}
		wants, _ := p.pollState.looks(&from)
		poll, err := p.store.Claims.PollDue(store.WithClock(ctx, func() time.Time { return until }), p.db, wants)
		if ctx.Err() != nil {
			return true
		}
		if err != nil {
			p.outage.Failed("sweep", err)
			return false
		}
		p.pollState.foundBehind(poll)
		until = from.At
	}
	return true
}

// lookAll is the look of a poll: from the beginning when a sweep is due, else from the cursors.
func (p *poller) lookAll(ctx context.Context) (poll store.Poll, err error) {
	if due, polling := p.sweeper.due(time.Now(), p.outage.Ended()); due && polling {
		began := time.Now()
		poll, err = p.look(ctx, &store.Position{}, sweepPolling)
		p.sweeper.done(began, err == nil)
		if err == nil {
			return poll, nil
		}
		if time.Since(began) < sweepPolling || ctx.Err() != nil || p.outage.Err() != nil {
			return poll, err
		}
		p.leaveNext(began)
		p.pollState.skip(time.Now()) // cursors without a better place begin where messages are new
		p.sweeper.aside(func() bool { return p.sweepBack(ctx) })
	} else if due {
		p.sweeper.aside(func() bool { return p.sweepBack(ctx) })
	}
	for {
		began, next := time.Now(), p.looksForNext()
		poll, err = p.look(ctx, nil, statementTimeout)
		if err == nil || ctx.Err() != nil || p.outage.Err() != nil {
			return poll, err
		}
		if tooSlow(began) {
			p.pollState.skip(time.Now())
		}
		if !next {
			return poll, err
		}
		p.leaveNext(began)
	}
}

// looksForNext reports whether looks find out when the next message is due. They do not for a while
// after one failed: no cursor bounds that part, which is slow among many dead index entries.
func (p *poller) looksForNext() bool { return !time.Now().Before(p.nextFrom) }

// leaveNext has looks leave that part out for a while after one that began at an instant has failed.
func (p *poller) leaveNext(began time.Time) {
	p.nextFrom = time.Now().Add(max(sweepAgain, sweepShare*time.Since(began)))
}

// look polls the database and updates the dispatcher. It looks for keyed messages separately, with their
// own time limit: an error there does not fail the poll.
func (p *poller) look(ctx context.Context, from *store.Position, patience time.Duration) (poll store.Poll, err error) {
	began := time.Now()
	wants, stood := p.pollState.looks(from)
	poll, err = ask(ctx, p.outage, "poll", patience,
		func(ctx context.Context) (store.Poll, error) {
			return p.pollQueries.pollParts(ctx, wants, p.looksForNext())
		})
	if err == nil || from == nil && !dberr.IsUnavailable(err) { // a sweep that failed is followed by another look
		p.lookAtLanes(ctx, &poll)
	}
	if poll.Now.IsZero() { // a part failed: what the others found counts
		p.pollState.foundBehind(poll)
	} else {
		p.pollState.found(poll, wants, stood, began)
	}
	return poll, err
}

// lookAtLanes looks for keyed messages, and again soon if that fails.
func (p *poller) lookAtLanes(ctx context.Context, poll *store.Poll) {
	_, err := ask(ctx, p.outage, "poll keyed messages", statementTimeout,
		func(ctx context.Context) (struct{}, error) {
			return struct{}{}, p.pollQueries.lookAtLanes(ctx, poll, func(*consumer) bool { return true })
		})
	if err != nil {
		p.alarm.By(time.Now().Add(sweepAgain))
	}
}

// tooSlow reports whether a failed statement had used up its time.
func tooSlow(began time.Time) bool { return time.Since(began) > statementTimeout*9/10 }
