package engine

import (
	"context"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errtype"
	"github.com/asyncmonolith/asyncmonolith-go/internal/presence"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// reporting reports on the run to the database until end is called.
func (r *run) reporting(ctx context.Context) (end func()) {
	r.reports = presence.New(presence.Config{
		Store: r.store, DB: r.db, Registry: r.registry, ID: r.owner, Kind: "processor", Logger: r.config.Logger,
		Takes: r.manifest(), Doing: r.state,
	})
	for _, c := range r.dispatcher.catalog.consumers {
		c.tally = r.reports.Tally(c.Name())
	}
	return r.reports.Start(ctx)
}

func (r *run) manifest() (m presence.Manifest) {
	transactional := false
	for _, c := range r.dispatcher.catalog.consumers {
		transactional = transactional || c.transactional
		m.Consumers = append(m.Consumers, presence.Consumer{
			Name: c.Name(), Former: c.Names()[1:], PayloadTypes: c.PayloadTypes(), Timeout: c.settings.Timeout, MaxAttempts: c.settings.MaxAttempts,
		})
	}
	m.Connections, _ = r.config.connections(r.store, transactional)
	return m
}

func (r *run) state() presence.State {
	health := r.health()
	s := presence.State{Limit: r.config.Concurrency, Stuck: health.Abandoned, OpenCircuits: store.Each(health.OpenCircuits, func(g bus.OpenCircuit) string { return g.Consumer })}
	s.Running, s.Queued = r.dispatcher.queue.load()
	return s
}

// tell counts the outcome of a message that began, and sets the fingerprint of a poisoned one.
func (r *run) tell(t *task, v bus.OutcomeError, result *store.Result) {
	if t.committed {
		v = bus.OutcomeError{}
	}
	if v.Outcome == bus.Released {
		return
	}
	if !t.began.IsZero() {
		t.consumer.tally.Ran(v.Outcome, time.Since(t.began), t.began.Add(t.lease.ahead).Sub(t.row.AvailableAfter.Time))
	}
	switch {
	case v.Outcome == bus.Done, v.Outcome == bus.Discarded, v.Outcome == bus.Snoozed && v.Err == nil:
		return
	case r.reports == nil && result.Outcome != store.Poison:
		return
	}
	cause := v.Err
	if cause == nil {
		cause = &v
	}
	print := errtype.Fingerprint(cause)
	if result.Outcome == store.Poison {
		result.Fingerprint = print
	}
	r.reports.Failed(t.consumer.Name(), print, cause, t.row.ID)
}
