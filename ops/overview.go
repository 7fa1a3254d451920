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

// Overview is a summary of queues, processes and operations. Overviews are cached for two seconds,
// or fifty times their cost if that is longer. They therefore use at most a fiftieth of the
// database's time, however many clients ask.
type Overview struct {
	At     time.Time     `json:"at"` // when it was made, on this process's clock
	Queues []admin.Queue `json:"queues"`
	// Minutes are the statistics of the last hour.
	Minutes []admin.MinuteStats `json:"minutes,omitempty"`
	// Failures are the 20 most recent failure groups.
	Failures []admin.FailureGroup `json:"failures,omitempty"`
	// Processes are those that are alive, and those lost within a day.
	Processes []admin.Process `json:"processes,omitempty"`
	// Unhandled are up to 20 kinds of messages that no live process handles, and such consumers of
	// messages with keys, which have no payload type here.
	Unhandled []admin.Unhandled `json:"unhandled,omitempty"`
	// Operations are those in progress or paused.
	Operations []Operation `json:"operations,omitempty"`
	// Unseen are the parts that could not be read this time. Their values are older, or empty.
	Unseen []Unseen `json:"unseen,omitempty"`
	// Attention is what needs attention: see [Session.Check].
	Attention []Finding `json:"-"`
}

const (
	overviewKept  = 2 * time.Second
	glanceLate    = 10 * time.Second // how much older than due a cached overview may be
	overviewShare = 50               // times its cost, an overview is kept

	failuresShown = 20
	lostWithin    = 24 * time.Hour
)

// overview caches the last overview.
type overview struct {
	mu     sync.Mutex
	last   Overview
	until  time.Time     // when it expires
	making chan struct{} // closed once a new one is made
	// changes counts this service's changes. seen is its value when the last overview was begun,
	// so that a session sees its own changes.
	changes, seen int
}

// change invalidates the overview.
func (o *overview) change() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes++
}

// Overview returns a summary that may be some seconds old. It includes each change made with this
// service.
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

// CachedOverview returns the cached overview without waiting, if it includes all changes of this
// service and expired at most 10 s ago. Otherwise it is [Session.Overview]. due reports whether
// the overview has expired: show it, then call Overview.
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

// overview redacts an overview for the principal.
func (s *Session) overview(ctx context.Context, o Overview) Overview {
	o.Failures = store.Each(o.Failures, func(f admin.FailureGroup) admin.FailureGroup { return s.Consumers().failure(ctx, f) })
	o.Operations = store.Each(o.Operations, func(of Operation) Operation { return s.Operations().operation(ctx, of) })
	o.Attention = s.told(o.needs())
	if s.may(Read, "") != nil {
		o.Unseen = store.Each(o.Unseen, func(u Unseen) Unseen { u.Why = "the database did not answer"; return u })
	}
	return o
}

// known returns the last overview, whether a new one is due, and whether the last one can still be
// used.
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
	if ctx.Err() != nil { // this caller is gone: the next one makes one
		return Overview{}, fmt.Errorf("ops: overview: %w", context.Cause(ctx))
	}
	if err != nil {
		return Overview{}, fmt.Errorf("ops: overview: %w", err)
	}
	took := time.Since(began)
	o.last, o.seen, o.until = made, changes, time.Now().Add(max(overviewKept, overviewShare*took))
	if made.At.Before(began) { // the database did not answer: try again soon
		o.until = time.Now().Add(overviewKept)
	}
	return o.last, nil
}

// standing finds operations and projections that make no progress. Parts that cannot be read are
// included.
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
