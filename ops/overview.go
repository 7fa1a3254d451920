package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
	"github.com/asyncmonolith/asyncmonolith-go/internal/minutes"
	"github.com/asyncmonolith/asyncmonolith-go/internal/overview"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Functions of package admin; immutable.
var (
	countQueues = hooks.Function[func(
		ctx context.Context, c *admin.Client, db bun.IDB, consumers []string, reported bool,
	) ([]admin.Queue, error)]("admin.CountQueues")
	newFailure = hooks.Function[func(f store.FailureGroup) admin.FailureGroup]("admin.Failure")
	withStops  = hooks.Function[func(context.Context, *admin.Client, bun.IDB, []admin.Queue) ([]admin.Queue, error)]("admin.WithStops")
)

// summary is an overview. A cached one is not redacted.
type summary = overview.Overview[Operation, Finding]

const failuresShown = 20

// overview returns an overview as the principal may see it. It includes each change made with this
// service.
func (s *Session) overview(ctx context.Context) (o summary, err error) {
	if err = s.may(View, ""); err == nil {
		o, err = s.service.overview.Get(ctx, s.service.makeOverview)
	}
	if err != nil {
		return summary{}, fmt.Errorf("ops: overview: %w", err)
	}
	return s.redacted(ctx, o), nil
}

// cachedOverview returns the cached overview without waiting, if it includes all changes of this
// service and expired at most 10 s ago. Otherwise it is overview. due reports whether the overview
// has expired.
func (s *Session) cachedOverview(ctx context.Context) (o summary, due bool, err error) {
	if err := s.may(View, ""); err != nil {
		return summary{}, false, fmt.Errorf("ops: overview: %w", err)
	}
	o, due, known := s.service.overview.Known()
	if !known {
		o, err = s.overview(ctx)
		return o, false, err
	}
	return s.redacted(ctx, o), due, nil
}

// lastOverview returns the last overview, however old, without a query, and whether a new one is due.
// It is empty if there is none.
func (s *Session) lastOverview(ctx context.Context) (o summary, due bool, err error) {
	if err := s.may(View, ""); err != nil {
		return summary{}, false, fmt.Errorf("ops: last overview: %w", err)
	}
	o, due = s.service.overview.Last()
	return s.redacted(ctx, o), due, nil
}

// redacted redacts an overview for the principal.
func (s *Session) redacted(ctx context.Context, o summary) summary {
	o.Failures, o.Poisoners = s.failures(ctx, o.Failures), s.failures(ctx, o.Poisoners)
	o.Processes, o.Queues = overview.Redacted(o.Processes, o.Queues, func(consumer, text string) string {
		return s.text(ctx, Content{Consumer: consumer}, text)
	})
	o.Operations = store.Each(o.Operations, func(of Operation) Operation { return s.Operations().operation(ctx, of) })
	o.Attention = s.told(attention(o))
	if s.may(Read, "") != nil {
		o.Unseen = store.Each(o.Unseen, func(u overview.Unseen) overview.Unseen { u.Why = "the database did not answer"; return u })
	}
	return o
}

// failures redacts failures for the principal.
func (s *Session) failures(ctx context.Context, all []admin.FailureGroup) []admin.FailureGroup {
	return store.Each(all, func(f admin.FailureGroup) admin.FailureGroup {
		f.Sample = s.text(ctx, Content{Consumer: f.Consumer}, f.Sample)
		return f
	})
}

// standing finds operations and projections that make no progress. Parts that cannot be read are
// included.
func (s *Service) standing(ctx context.Context) (all []Finding) {
	looks := doctor{service: s}
	for _, c := range []check{{name: "operations", look: looks.checkOperations}, {name: "projections", look: looks.checkProjections}} {
		found, err := lookFor(ctx, s, lookTime, c.look)
		if err != nil {
			found = append(found, unseen(err))
		}
		all = append(all, named(c.name, found)...)
	}
	return all
}

// part is read on its own, so that a slow part does not affect the others.
type part struct {
	name string
	read func(s *Service, ctx context.Context, o *summary, last summary) error
	keep func(o *summary, last summary) // copies the last values
}

// parts are all parts, in the order in which they are read.
func parts() []part {
	return []part{
		{"queues", func(s *Service, ctx context.Context, o *summary, last summary) error {
			return s.seeQueues(ctx, s.config.ReadDB, o, last)
		}, func(o *summary, last summary) {
			o.Queues = last.Queues
			o.MissAgain(last, queueOf, states)
		}},
		{"minutes", seen(func(s *Service, ctx context.Context, db bun.IDB, o *summary) (err error) {
			o.Minutes, err = minutes.Read(ctx, db, s.store, time.Hour)
			return err
		}), func(o *summary, last summary) { o.Minutes = last.Minutes }},
		{"failures", seen((*Service).readFailures), func(o *summary, last summary) { o.Failures, o.Poisoners = last.Failures, last.Poisoners }},
		{
			"processes", (*Service).seeProcesses,
			func(o *summary, last summary) {
				o.Processes, o.Unhandled = last.Processes, last.Unhandled
				o.MissAgain(last, unhandled)
			},
		},
		{
			"operations", (*Service).seeOperations,
			func(o *summary, last summary) { o.Operations, o.Attention = last.Operations, last.Attention },
		},
	}
}

// seen limits a part's query to lookTime.
func seen(
	read func(s *Service, ctx context.Context, db bun.IDB, o *summary) error,
) func(*Service, context.Context, *summary, summary) error {
	return func(s *Service, ctx context.Context, o *summary, _ summary) error {
		found, err := lookFor(ctx, s, lookTime, func(ctx context.Context, db bun.IDB) (now summary, err error) {
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
// its Unseen. It returns an error if no part can be read and there is no last overview.
func (s *Service) makeOverview(ctx context.Context, last summary) (summary, error) {
	o := summary{At: time.Now()}
	failed := 0
	for _, p := range parts() {
		err := p.read(s, ctx, &o, last)
		if err == nil {
			continue
		}
		failed++
		p.keep(&o, last)
		o.Miss(last.From(p.name), err, p.name)
		if failed == len(parts()) {
			if last.At.IsZero() {
				return summary{}, err
			}
			o.At = last.At
		}
	}
	o.Queues = overview.WithUnhandled(overview.WithLastErrors(o.Queues, o.Failures), o.Unhandled)
	return o, nil
}

// queuesWithin limits counting queues one by one, if counting all in one query takes too long.
const queuesWithin = 2 * lookTime

// seeQueues reads the queues, and then what stops their consumers: if that cannot be read, the last
// reasons stay.
func (s *Service) seeQueues(ctx context.Context, db *bun.DB, o *summary, last summary) error {
	if err := s.countQueues(ctx, db, o, last); err != nil {
		return err
	}
	stopped, err := lookIn(ctx, s, db, lookTime, func(ctx context.Context, db bun.IDB) ([]admin.Queue, error) {
		return withStops(ctx, s.admin, db, o.Queues)
	})
	if err != nil {
		o.Miss(last.From(states), err, states)
		stopped = overview.WithLastStops(o.Queues, last.Queues)
	}
	o.Queues = stopped
	return nil
}

// Parts that depend on another. queueOf precedes the name of a consumer.
const queueOf, states, unhandled = "the queue of ", "states", "unhandled messages"

// countQueues counts all queues, or each by itself if that takes too long. A queue that still takes
// too long keeps its last counts.
func (s *Service) countQueues(ctx context.Context, db *bun.DB, o *summary, last summary) error {
	count := func(reported bool, limit time.Duration, names ...string) ([]admin.Queue, error) {
		return lookIn(ctx, s, db, limit, func(ctx context.Context, db bun.IDB) ([]admin.Queue, error) {
			return countQueues(ctx, s.admin, db, names, reported)
		})
	}
	all, err := count(true, lookTime)
	if err != nil && !errors.Is(err, ErrBusy) { // the reports of processes may be what cannot be read
		all, err = count(false, lookTime)
	}
	if !errors.Is(err, ErrBusy) {
		o.Queues = all
		return err
	}
	names, nameless := lookIn(ctx, s, db, lookTime, s.store.Pending.StoredConsumers)
	if nameless != nil {
		return err
	}
	for until := time.Now().Add(queuesWithin); len(names) > 0; names = names[1:] {
		one, failed := []admin.Queue(nil), err
		if left := time.Until(until); left > 0 {
			one, failed = count(true, min(left, lookTime), names[0])
		}
		if failed != nil {
			one = overview.Uncounted(last.Queues, names[0])
			name, from := queueOf+names[0], time.Time{}
			if len(one) > 0 {
				from = slices.MinFunc([]time.Time{last.From(name), last.From("queues")}, time.Time.Compare)
			}
			o.Miss(from, failed, name)
		}
		o.Queues = append(o.Queues, one...)
	}
	return nil
}

// readFailures reads the most recent failures, and those of the poisoned messages that findings are about.
func (s *Service) readFailures(ctx context.Context, db bun.IDB, o *summary) (err error) {
	if o.Failures, err = s.admin.Failures(ctx, db, "", failuresShown); err != nil {
		return err
	}
	var poisoned []string
	for _, q := range o.Queues {
		if q.Poisoned > 0 && len(poisoned) < mostFindings {
			poisoned = append(poisoned, q.Consumer)
		}
	}
	rows, err := s.store.Poison.LastFailures(ctx, db, poisoned)
	o.Poisoners = store.Each(rows, newFailure)
	return err
}

// seeProcesses reads the processes, and then the messages that none of them handles.
func (s *Service) seeProcesses(ctx context.Context, o *summary, last summary) error {
	fleet, err := lookFor(ctx, s, lookTime, func(ctx context.Context, db bun.IDB) ([]admin.Process, error) {
		return s.admin.Processes(ctx, db, overview.LostWithin)
	})
	if err != nil {
		return err
	}
	o.Unhandled, err = lookFor(ctx, s, lookTime, func(ctx context.Context, db bun.IDB) ([]admin.Unhandled, error) {
		return s.unhandled(ctx, db, fleet)
	})
	if err != nil {
		o.Miss(last.From(unhandled), err, unhandled)
		o.Unhandled = last.Unhandled
	}
	o.Processes = slices.DeleteFunc(fleet, func(p admin.Process) bool { return p.Status == admin.ProcessStopped })
	return nil
}

// seeOperations reads the operations, and then what makes no progress.
func (s *Service) seeOperations(ctx context.Context, o *summary, _ summary) error {
	open := store.OperationFilter{States: names(Waiting, Canary, Running, Paused, Started)}
	rows, err := lookFor(ctx, s, lookTime, func(ctx context.Context, db bun.IDB) ([]store.Operation, error) {
		return s.store.Operations.List(ctx, db, open, 20)
	})
	if err != nil {
		return err
	}
	o.Operations = store.Each(rows, newOperation)
	o.Attention = s.standing(ctx)
	return nil
}

// unhandled returns up to 20 kinds of messages that no live process handles, and such consumers of
// messages with keys, whose payload type is empty.
func (s *Service) unhandled(ctx context.Context, db bun.IDB, fleet []admin.Process) ([]admin.Unhandled, error) {
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
