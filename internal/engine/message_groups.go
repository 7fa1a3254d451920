package engine

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/alarm"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

const (
	sweepPause    = 50 * time.Millisecond  // between two looks at groups that may be done
	sweepInterval = 2 * time.Second        // between two looks at a part of all groups
	fullPause     = 200 * time.Millisecond // the same while there are more
	firstAside    = time.Second            // until a group that could not end is tried again; doubles up to mostAside
	mostAside     = time.Minute
	firstTry      = time.Second // for a group to end; statementTimeout when it is tried again
	expectFor     = time.Second // how long a group is looked for whose commit is not announced
)

// groupSweeper ends groups of messages that are done, see outbox.Group, and writes what waits for
// them. Hints come from messages that this process has removed. What a lost process or an operator has
// removed is found by looking at all groups, a part at a time.
type groupSweeper struct {
	store    *store.Store
	db       *bun.DB
	registry *bus.Registry
	config   *ProcessorConfig
	outage   *outage.Outage
	alarm    *alarm.Alarm

	// Of the loop.
	looked time.Time // the last look at hinted groups
	swept  time.Time // the last look at a part of all groups
	behind string    // the last group of that part; empty at the end
	aside  map[string]groupWait

	mu       sync.Mutex
	hinted   map[string]bool
	expected map[string]time.Time // until when they are looked for
}

// groupWait is when a group that could not end is tried again.
type groupWait struct {
	until time.Time
	wait  time.Duration
}

// hint has a look whether groups are done, soon.
func (s *groupSweeper) hint(names ...string) {
	s.mu.Lock()
	for _, name := range names {
		s.hinted[name] = true
	}
	s.mu.Unlock()
	s.alarm.By(time.Now())
}

// expect has a few looks for groups whose transaction is about to commit.
func (s *groupSweeper) expect(names []string) {
	now := time.Now()
	s.mu.Lock()
	for _, name := range names {
		s.expected[name] = now.Add(expectFor)
	}
	s.mu.Unlock()
	s.alarm.Expect(now)
}

// settled hints the groups of removed messages.
func (s *groupSweeper) settled(b batch) {
	var names []string
	note := func(results []store.Result) {
		for i := range results {
			r := &results[i]
			if r.Group != "" && (r.Gone || r.Outcome == store.Done || r.Outcome == store.Poison) && !slices.Contains(names, r.Group) {
				names = append(names, r.Group)
			}
		}
	}
	for _, whole := range b.whole {
		note(whole)
	}
	if note(b.results); len(names) > 0 {
		s.hint(names...)
	}
}

// take returns the groups that may be done.
func (s *groupSweeper) take(now time.Time) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, until := range s.expected {
		s.hinted[name] = true
		if now.After(until) {
			delete(s.expected, name)
		}
	}
	names := slices.Sorted(maps.Keys(s.hinted))
	clear(s.hinted)
	return names
}

// loop looks for groups that are done until ctx ends.
func (s *groupSweeper) loop(ctx context.Context) {
	s.alarm.Loop(ctx, sweepInterval, func() {
		if !outage.Pause(ctx, sweepPause-time.Since(s.looked)) {
			return
		}
		s.looked = time.Now()
		s.look(ctx, s.take(s.looked))
		if wait := sweepInterval; time.Since(s.swept) >= wait {
			s.swept = time.Now()
			if _, err := s.sweep(ctx); err == nil && s.behind != "" {
				s.swept = s.swept.Add(fullPause - wait)
				s.alarm.By(time.Now().Add(fullPause))
			}
		}
	})
}

// look ends those of the groups that are done. It returns how many.
func (s *groupSweeper) look(ctx context.Context, names []string) (fired int, err error) {
	if len(names) == 0 {
		return 0, nil
	}
	done, err := ask(ctx, s.outage, "look for groups that are done", statementTimeout, func(ctx context.Context) ([]string, error) {
		return s.store.Groups.DoneAmong(ctx, s.db, names)
	})
	if err != nil {
		return 0, err
	}
	return s.fireAll(ctx, done)
}

// sweep ends groups that are done among the next part of all groups.
func (s *groupSweeper) sweep(ctx context.Context) (fired int, err error) {
	done, err := ask(ctx, s.outage, "look for groups that are done", statementTimeout, func(ctx context.Context) (done []string, err error) {
		done, s.behind, err = s.store.Groups.DoneBehind(ctx, s.db, s.behind)
		return done, err
	})
	if err != nil {
		return 0, err
	}
	return s.fireAll(ctx, done)
}

// fireAll ends groups, each in its own transaction. Each has a second, so that one that waits for a lock
// does not delay the others. Groups that failed before come last and have statementTimeout; once that has
// passed since the start, no more of them are tried.
func (s *groupSweeper) fireAll(ctx context.Context, names []string) (fired int, err error) {
	begun := time.Now()
	fresh, again := s.due(names, begun)
	for i, name := range slices.Concat(fresh, again) {
		within := firstTry
		if i >= len(fresh) {
			within = statementTimeout
		}
		ok, failed := s.fire(ctx, name, within)
		switch {
		case ctx.Err() != nil:
			return fired, ctx.Err()
		case failed != nil && dberr.IsUnavailable(failed):
			s.outage.Failed("end a group", failed)
			return fired, failed
		case failed != nil:
			err = errors.Join(err, s.setAside(ctx, name, failed))
		case ok:
			fired++
			delete(s.aside, name)
		}
		if i >= len(fresh) && time.Since(begun) > statementTimeout {
			break
		}
	}
	return fired, err
}

// due returns the groups that were not tried before, and those that are to be tried again, the oldest first.
func (s *groupSweeper) due(names []string, now time.Time) (fresh, again []string) {
	forgotten := now.Add(-2 * mostAside) // another process may have ended it
	maps.DeleteFunc(s.aside, func(_ string, w groupWait) bool { return w.until.Before(forgotten) })
	for _, name := range names {
		w, late := s.aside[name]
		switch {
		case !late:
			fresh = append(fresh, name)
		case w.until.Before(now):
			again = append(again, name)
		}
	}
	slices.SortFunc(again, func(a, b string) int { return s.aside[a].until.Compare(s.aside[b].until) })
	return fresh, again
}

// setAside postpones a group that could not end, and returns the error. A group of a newer version of the
// library is left to processes of that, which is no error.
func (s *groupSweeper) setAside(ctx context.Context, name string, failed error) error {
	last := s.aside[name].wait
	wait := min(max(2*last, firstAside), mostAside)
	s.aside[name] = groupWait{time.Now().Add(wait), wait}
	newer := errors.Is(failed, store.ErrNewer)
	level, text := slog.LevelError, "group cannot end, tried again later"
	switch {
	case newer:
		level, text = slog.LevelWarn, "group left to newer processes"
	case last == 0 && dberr.ClassOf(failed) == dberr.Timeout: // it has more time when it is tried again
		level = slog.LevelWarn
	}
	s.config.Logger.Log(ctx, level, text, "group", name, "wait", wait, "error", failed)
	if newer {
		return nil
	}
	return failed
}

// fire ends a group within a time, and announces what waited for it.
func (s *groupSweeper) fire(ctx context.Context, name string, within time.Duration) (fired bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var payloadTypes []string
	err = txn.InTx(ctx, s.db, func(tx bun.Tx) (err error) {
		payloadTypes, fired, err = s.store.Groups.Fire(ctx, tx, name)
		return err
	})
	if err != nil || !fired {
		return false, err
	}
	s.config.Logger.Debug("group done", "group", name)
	if len(payloadTypes) > 0 {
		access.Wakeups(s.registry).Send(wakeup.Wake{PayloadTypes: payloadTypes})
	}
	return true, nil
}
