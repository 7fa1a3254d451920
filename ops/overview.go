package ops

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"errors"
	"slices"
	"strings"

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
	// Unhandled are up to 20 kinds of messages that no live process handles. If messages with keys are
	// unhandled, only their consumer is listed, with an empty PayloadType. These entries do not count
	// towards the 20.
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

func (o *overview) remake(
	ctx context.Context, last Overview, changes int, remake func(ctx context.Context, last Overview) (Overview, error),
) (Overview, error) {
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
func (s *Service) standing(ctx context.Context, db bun.IDB) (all []Finding) {
	looks := doctor{service: s}
	for _, c := range []check{{name: "operations", look: looks.checkOperations}, {name: "projections", look: looks.checkProjections}} {
		found, err := c.look(ctx, db)
		if err != nil {
			found = append(found, unseen(err))
		}
		all = append(all, named(c.name, found)...)
	}
	return all
}

// Unseen lists parts of an [Overview] that could not be read.
type Unseen struct {
	Parts []string `json:"parts"`
	// From is when the values shown instead were read, or zero if none are shown.
	From time.Time `json:"from,omitzero"`
	// Why is the error. A principal that may not read error texts sees only that the database did
	// not answer.
	Why string `json:"why"`
}

// String describes it for people, without the error.
func (u Unseen) String() string {
	if u.From.IsZero() {
		return fmt.Sprintf("The database did not answer in time. Not shown: %s.", strings.Join(u.Parts, ", "))
	}
	return fmt.Sprintf("The database did not answer in time. Shown as of %s: %s.", instant(u.From), strings.Join(u.Parts, ", "))
}

// miss records parts that could not be read, and when the values shown instead were read.
func (o *Overview) miss(from time.Time, err error, parts ...string) {
	for i := range o.Unseen {
		if u := &o.Unseen[i]; u.From.Equal(from) {
			u.Parts = append(u.Parts, parts...)
			return
		}
	}
	o.Unseen = append(o.Unseen, Unseen{Parts: parts, From: from, Why: err.Error()})
}

// part is read on its own, so that a slow part does not affect the others.
type part struct {
	name string
	read func(s *Service, ctx context.Context, o *Overview, last Overview) error
	keep func(o *Overview, last Overview) // copies the last values
}

// parts are all parts, in the order in which they are read.
func parts() []part {
	return []part{
		{"queues", (*Service).seeQueues, func(o *Overview, last Overview) { o.Queues = last.Queues }},
		{"minutes", seen(func(s *Service, ctx context.Context, db bun.IDB, o *Overview) (err error) {
			o.Minutes, err = s.admin.Minutes(ctx, db, time.Hour)
			return err
		}), func(o *Overview, last Overview) { o.Minutes = last.Minutes }},
		{"failures", seen(func(s *Service, ctx context.Context, db bun.IDB, o *Overview) (err error) {
			o.Failures, err = s.admin.Failures(ctx, db, "", failuresShown)
			return err
		}), func(o *Overview, last Overview) { o.Failures = last.Failures }},
		{
			"processes", seen((*Service).seeProcesses),
			func(o *Overview, last Overview) { o.Processes, o.Unhandled = last.Processes, last.Unhandled },
		},
		{
			"operations", seen((*Service).seeOperations),
			func(o *Overview, last Overview) { o.Operations, o.Attention = last.Operations, last.Attention },
		},
	}
}

// seen limits a part's query to lookTime.
func seen(
	read func(s *Service, ctx context.Context, db bun.IDB, o *Overview) error,
) func(*Service, context.Context, *Overview, Overview) error {
	return func(s *Service, ctx context.Context, o *Overview, _ Overview) error {
		found, err := lookFor(ctx, s, lookTime, func(ctx context.Context, db bun.IDB) (now Overview, err error) {
			now = *o
			return now, read(s, ctx, db, &now)
		})
		if err == nil {
			*o = found
		}
		return err
	}
}

// makeOverview reads all parts. A part that cannot be read keeps its last values and is in
// [Overview].Unseen. It returns an error if no part can be read and there is no last overview.
func (s *Service) makeOverview(ctx context.Context, last Overview) (Overview, error) {
	o := Overview{At: time.Now()}
	failed := 0
	for _, p := range parts() {
		err := p.read(s, ctx, &o, last)
		if err == nil {
			continue
		}
		failed++
		p.keep(&o, last)
		o.miss(last.from(p.name), err, p.name)
		if failed == len(parts()) {
			if last.At.IsZero() {
				return Overview{}, err
			}
			o.At = last.At
		}
	}
	return o, nil
}

// from is when a part was last read.
func (o Overview) from(part string) time.Time {
	if i := slices.IndexFunc(o.Unseen, func(u Unseen) bool { return slices.Contains(u.Parts, part) }); i >= 0 {
		return o.Unseen[i].From
	}
	return o.At
}

// queuesWithin limits counting queues one by one, if counting all in one query takes too long.
const queuesWithin = 2 * lookTime

// seeQueues counts all queues, or each by itself if that takes too long. A queue that still takes
// too long keeps its last counts.
func (s *Service) seeQueues(ctx context.Context, o *Overview, last Overview) error {
	all, err := lookFor(ctx, s, lookTime, func(ctx context.Context, db bun.IDB) ([]admin.Queue, error) { return s.admin.Queues(ctx, db) })
	if !errors.Is(err, ErrBusy) {
		o.Queues = all
		return err
	}
	names, nameless := lookFor(ctx, s, lookTime, s.store.Pending.StoredConsumers)
	if nameless != nil {
		return err
	}
	var uncounted []string
	for until := time.Now().Add(queuesWithin); len(names) > 0; names = names[1:] {
		one, failed := []admin.Queue(nil), err
		if left := time.Until(until); left > 0 {
			one, failed = lookFor(ctx, s, min(left, lookTime), func(ctx context.Context, db bun.IDB) ([]admin.Queue, error) {
				return s.admin.Queues(ctx, db, names[0])
			})
		}
		if failed != nil {
			uncounted = append(uncounted, "the queue of "+names[0])
			one = slices.DeleteFunc(slices.Clone(last.Queues), func(q admin.Queue) bool { return q.Consumer != names[0] })
		}
		o.Queues = append(o.Queues, one...)
	}
	if len(uncounted) > 0 {
		o.miss(last.At, err, uncounted...)
	}
	return nil
}

func (s *Service) seeProcesses(ctx context.Context, db bun.IDB, o *Overview) error {
	fleet, err := s.admin.Processes(ctx, db, lostWithin)
	if err != nil {
		return err
	}
	o.Unhandled, err = s.strangers(ctx, db, fleet)
	o.Processes = slices.DeleteFunc(fleet, func(p admin.Process) bool { return p.Status == admin.ProcessStopped })
	return err
}

func (s *Service) seeOperations(ctx context.Context, db bun.IDB, o *Overview) error {
	rows, err := s.store.Operations.List(ctx, db, store.OperationFilter{States: names(Waiting, Canary, Running, Paused, Started)}, 20)
	if err != nil {
		return err
	}
	o.Operations = store.Each(rows, newOperation)
	o.Attention = s.standing(ctx, db)
	return nil
}

// strangers returns up to 20 kinds of messages that no live process handles, and such consumers of
// messages with keys, whose payload type is empty.
func (s *Service) strangers(ctx context.Context, db bun.IDB, fleet []admin.Process) ([]admin.Unhandled, error) {
	var wants []store.Want
	taken := make(map[string]bool)
	for _, p := range fleet {
		if p.Status != admin.ProcessAlive {
			continue
		}
		for _, c := range p.Consumers {
			for _, name := range append([]string{c.Name}, c.Former...) {
				taken[name] = true
				for _, payloadType := range c.PayloadTypes {
					wants = append(wants, store.Want{Consumer: name, Payload: payloadType})
				}
			}
		}
	}
	rows, err := s.store.Claims.Unhandled(ctx, db, wants)
	if err != nil {
		return nil, err
	}
	keyed, err := s.store.Claims.KeyedConsumers(ctx, db)
	if err != nil {
		return nil, err
	}
	found := store.Each(rows, func(row store.Unhandled) admin.Unhandled {
		return admin.Unhandled{Consumer: row.ConsumerType, PayloadType: row.PayloadType}
	})
	for _, name := range keyed {
		if !taken[name] {
			found = append(found, admin.Unhandled{Consumer: name})
		}
	}
	return found, nil
}
