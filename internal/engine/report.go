package engine

import (
	"context"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/heartbeat"
)

// reporting reports on the run to the database until end is called.
func (r *run) reporting(ctx context.Context) (end func()) {
	p := r.processor
	reports := heartbeat.New(heartbeat.Config{
		Store: p.store, DB: p.db, Registry: p.registry, ID: r.owner, Kind: "processor", Logger: p.config.Logger,
		Takes: r.manifest(), Doing: r.state,
	})
	for _, c := range r.dispatcher.catalog.consumers {
		c.tally = reports.Tally(c.Name())
	}
	r.recorder.reports, r.breakers.reports = reports, reports
	return reports.Start(ctx)
}

func (r *run) manifest() (m heartbeat.Manifest) {
	transactional := false
	for _, c := range r.dispatcher.catalog.consumers {
		transactional = transactional || c.transactional
		m.Consumers = append(m.Consumers, heartbeat.Consumer{
			Name: c.Name(), Former: access.Names(c.Consumer)[1:], PayloadTypes: access.PayloadTypes(c.Consumer),
			Timeout: c.settings.Timeout, MaxAttempts: c.settings.MaxAttempts, Limit: c.settings.GlobalConcurrency,
			LimitName: c.settings.SharedConcurrency, Rate: c.settings.Rate, RatePer: c.settings.RatePer, RateBurst: c.settings.RateBurst,
		})
	}
	m.Connections, _ = r.processor.config.connections(r.processor.store, transactional)
	return m
}

func (r *run) state() heartbeat.State {
	health := r.health()
	s := heartbeat.State{
		Limit: r.processor.config.Concurrency, Stuck: health.Abandoned, Circuits: health.OpenCircuits,
	}
	s.Running, s.Queued = r.dispatcher.queue.load()
	return s
}

func (r *run) health() bus.Health {
	h := bus.Health{
		Err: r.outage.Err(), Abandoned: r.dispatcher.queue.abandonedConsumers(), Unprepared: r.processor.store.Unprepared(),
		OpenCircuits: r.dispatcher.catalog.openCircuits(),
	}
	if last := r.claimer.last.Load(); last != 0 {
		h.LastClaim = time.Unix(0, last)
	}
	if !r.serving.Load() { // the workers may not be there yet
		return h
	}
	stuck := r.workers.stuck()
	h.Ready = h.Err == nil && max(len(h.Abandoned), len(stuck)) < r.processor.config.Concurrency
	h.Abandoned = append(h.Abandoned, stuck...)
	return h
}
