package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

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
	read func(d *Service, ctx context.Context, o *Overview, last Overview) error
	keep func(o *Overview, last Overview) // copies the last values
}

// parts are all parts, in the order in which they are read.
func parts() []part {
	return []part{
		{"queues", (*Service).seeQueues, func(o *Overview, last Overview) { o.Queues = last.Queues }},
		{"minutes", seen(func(d *Service, ctx context.Context, db bun.IDB, o *Overview) (err error) {
			o.Minutes, err = d.admin.Minutes(ctx, db, time.Hour)
			return err
		}), func(o *Overview, last Overview) { o.Minutes = last.Minutes }},
		{"failures", seen(func(d *Service, ctx context.Context, db bun.IDB, o *Overview) (err error) {
			o.Failures, err = d.admin.Failures(ctx, db, "", failuresShown)
			return err
		}), func(o *Overview, last Overview) { o.Failures = last.Failures }},
		{"processes", seen((*Service).seeProcesses), func(o *Overview, last Overview) { o.Processes, o.Unhandled = last.Processes, last.Unhandled }},
		{"operations", seen((*Service).seeOperations), func(o *Overview, last Overview) { o.Operations, o.Attention = last.Operations, last.Attention }},
	}
}

// seen limits a part's query to lookTime.
func seen(read func(d *Service, ctx context.Context, db bun.IDB, o *Overview) error) func(*Service, context.Context, *Overview, Overview) error {
	return func(d *Service, ctx context.Context, o *Overview, _ Overview) error {
		found, err := lookFor(ctx, d, lookTime, func(ctx context.Context, db bun.IDB) (now Overview, err error) {
			now = *o
			return now, read(d, ctx, db, &now)
		})
		if err == nil {
			*o = found
		}
		return err
	}
}

// makeOverview reads all parts. A part that cannot be read keeps its last values and is in
// [Overview].Unseen. It returns an error if no part can be read and there is no last overview.
func (d *Service) makeOverview(ctx context.Context, last Overview) (Overview, error) {
	o := Overview{At: time.Now()}
	failed := 0
	for _, p := range parts() {
		err := p.read(d, ctx, &o, last)
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
func (d *Service) seeQueues(ctx context.Context, o *Overview, last Overview) error {
	all, err := lookFor(ctx, d, lookTime, func(ctx context.Context, db bun.IDB) ([]admin.Queue, error) { return d.admin.Queues(ctx, db) })
	if !errors.Is(err, ErrBusy) {
		o.Queues = all
		return err
	}
	names, nameless := lookFor(ctx, d, lookTime, d.store.Pending.StoredConsumers)
	if nameless != nil {
		return err
	}
	var uncounted []string
	for until := time.Now().Add(queuesWithin); len(names) > 0; names = names[1:] {
		one, failed := []admin.Queue(nil), err
		if left := time.Until(until); left > 0 {
			one, failed = lookFor(ctx, d, min(left, lookTime), func(ctx context.Context, db bun.IDB) ([]admin.Queue, error) {
				return d.admin.Queues(ctx, db, names[0])
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

func (d *Service) seeProcesses(ctx context.Context, db bun.IDB, o *Overview) error {
	fleet, err := d.admin.Processes(ctx, db, lostWithin)
	if err != nil {
		return err
	}
	o.Unhandled, err = d.strangers(ctx, db, fleet)
	o.Processes = slices.DeleteFunc(fleet, func(p admin.Process) bool { return p.Status == admin.ProcessStopped })
	return err
}

func (d *Service) seeOperations(ctx context.Context, db bun.IDB, o *Overview) error {
	rows, err := d.store.Operations.List(ctx, db, store.OperationFilter{States: names(Waiting, Canary, Running, Paused, Started)}, 20)
	if err != nil {
		return err
	}
	o.Operations = store.Each(rows, newOperation)
	o.Attention = d.standing(ctx, db)
	return nil
}
