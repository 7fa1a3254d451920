package ops

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Overview is what there is to see at one glance. Overviews are cached for two seconds, or fifty
// times their cost if that is longer: however many look, that costs a database a fiftieth of its
// time.
type Overview struct {
	At     time.Time     `json:"at"` // when it was made, on the clock of this process
	Queues []admin.Queue `json:"queues"`
	// Minutes are those of the last hour.
	Minutes []admin.MinuteStats `json:"minutes,omitempty"`
	// Failures are the 20 kinds that came last.
	Failures []admin.FailureGroup `json:"failures,omitempty"`
	// Processes are those that are alive, and those that were lost within a day.
	Processes []admin.Process `json:"processes,omitempty"`
	// Unhandled are kinds of messages, which no live process takes, 20 at most, and
	// consumers of messages with keys, which have no payload type here.
	Unhandled []admin.Unhandled `json:"unhandled,omitempty"`
	// Operations are those that are under way, or stand still.
	Operations []Operation `json:"operations,omitempty"`
	// Unseen are the parts that could not be looked at this time: what is shown of them is older, or nothing.
	Unseen []Unseen `json:"unseen,omitempty"`
	// Attention is what a person has to look at: see [Session.Check].
	Attention []Finding `json:"-"`
}

const (
	overviewKept  = 2 * time.Second
	glanceLate    = 10 * time.Second // after it should have been made anew
	overviewShare = 50               // of the time that it takes, it is kept for

	failuresShown = 20
	lostWithin    = 24 * time.Hour
)

// overview is the one that was made last.
type overview struct {
	mu     sync.Mutex
	last   Overview
	until  time.Time     // when it is to be made anew
	making chan struct{} // closed once it is made
	// changes counts what this service has changed, and seen is how much of that was when the last
	// one was begun: a session sees its own changes.
	changes, seen int
}

// change has the next overview be made anew.
func (o *overview) change() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes++
}

// Overview returns what there is to see at one glance, from up to some seconds ago. It includes
// each change that was made with this service.
func (s *Session) Overview(ctx context.Context) (Overview, error) {
	if err := s.may(View, ""); err != nil {
		return Overview{}, fmt.Errorf("ops: overview: %w", err)
	}
	o, err := s.service.overview.get(ctx, s.service.makeOverview)
	if err != nil {
		return Overview{}, err
	}
	return s.overview(ctx, o), nil
}

// CachedOverview is [Session.Overview] without the wait, if there is an overview from after all
// changes that is at most 10 s too old. due reports that it is time for a new one, which to ask
// for once this one is shown.
func (s *Session) CachedOverview(ctx context.Context) (o Overview, due bool, err error) {
	if err := s.may(View, ""); err != nil {
		return Overview{}, false, fmt.Errorf("ops: glance: %w", err)
	}
	o, due, known := s.service.overview.known()
	if !known {
		o, err = s.Overview(ctx)
		return o, false, err
	}
	return s.overview(ctx, o), due, nil
}

// overview is what the principal sees of one.
func (s *Session) overview(ctx context.Context, o Overview) Overview {
	o.Failures = store.Each(o.Failures, func(f admin.FailureGroup) admin.FailureGroup { return s.failure(ctx, f) })
	o.Operations = store.Each(o.Operations, func(of Operation) Operation { return s.operation(ctx, of) })
	o.Attention = s.told(o.needs())
	if s.may(Read, "") != nil {
		o.Unseen = store.Each(o.Unseen, func(u Unseen) Unseen { u.Why = "the database did not answer"; return u })
	}
	return o
}

// known is the one that was made last, if it is from after all changes and not much older than it should be,
// and whether it is time for another.
func (o *overview) known() (last Overview, due, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	late := time.Since(o.until)
	return o.last, o.making == nil && late >= 0, !o.last.At.IsZero() && o.seen == o.changes && late < glanceLate
}

func (o *overview) get(ctx context.Context, remake func(ctx context.Context, last Overview) (Overview, error)) (Overview, error) {
	for {
		o.mu.Lock()
		known := !o.last.At.IsZero() && o.seen == o.changes
		switch {
		case known && (time.Now().Before(o.until) || o.making != nil):
			defer o.mu.Unlock()
			return o.last, nil
		case o.making == nil:
			o.making = make(chan struct{})
			last, changes := o.last, o.changes
			o.mu.Unlock()
			return o.remake(ctx, last, changes, remake)
		}
		making := o.making
		o.mu.Unlock()
		select {
		case <-making:
		case <-ctx.Done():
			return Overview{}, fmt.Errorf("ops: overview: %w", context.Cause(ctx))
		}
	}
}

func (o *overview) remake(ctx context.Context, last Overview, changes int, remake func(ctx context.Context, last Overview) (Overview, error)) (Overview, error) {
	began := time.Now()
	made, err := remake(ctx, last)
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.making)
	o.making = nil
	if ctx.Err() != nil { // who made it has gone: others make one
		return Overview{}, fmt.Errorf("ops: overview: %w", context.Cause(ctx))
	}
	if err != nil {
		return Overview{}, fmt.Errorf("ops: overview: %w", err)
	}
	took := time.Since(began)
	o.last, o.seen, o.until = made, changes, time.Now().Add(max(overviewKept, overviewShare*took))
	if made.At.Before(began) { // the database did not answer at all: it is asked again soon
		o.until = time.Now().Add(overviewKept)
	}
	return o.last, nil
}

// standing is what stands still and needs attention. What cannot be looked at is among it.
func (d *Service) standing(ctx context.Context, db bun.IDB) (all []Finding) {
	for _, c := range []check{{name: "operations", look: (*Service).checkOperations}, {name: "projections", look: (*Service).checkProjections}} {
		found, err := c.look(d, ctx, db)
		if err != nil {
			found = append(found, unseen(err))
		}
		all = append(all, named(c.name, found)...)
	}
	return all
}
