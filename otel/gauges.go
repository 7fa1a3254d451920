package otel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// gauges show a processor. What is read from the database is a gauge, since every
// process reads the same; what a process has for itself adds up over processes.
type gauges struct {
	source Source
	stats  []statistic

	depth, poisonDepth metric.Int64ObservableGauge
	age, poisonAge     metric.Float64ObservableGauge
}

// statistic is an instrument that shows one field of outbox.Stats.
type statistic struct {
	instrument metric.Int64Observable
	of         func(outbox.Stats) int64
}

func (g *gauges) register(meter metric.Meter) ([]metric.Observable, error) {
	m := maker{meter: meter}
	for _, c := range []struct {
		name, unit, description string
		of                      func(outbox.Stats) int64
	}{
		{".claim.filled", "{claim}", "Claims that brought messages.", func(s outbox.Stats) int64 { return s.Claims }},
		{".claim.empty", "{claim}", "Claims that brought none.", func(s outbox.Stats) int64 { return s.EmptyClaims }},
		{".claim.messages", "{message}", "Messages claimed.", func(s outbox.Stats) int64 { return s.Claimed }},
		{".lease.recovered", "{claim}", "Claims of vanished processes that were recovered.", func(s outbox.Stats) int64 { return s.Recovered }},
		{".message.crashed", "{message}", "Messages whose process had vanished.", func(s outbox.Stats) int64 { return s.Crashed }},
		{".message.crash_poisoned", "{message}", "Messages poisoned because their process kept vanishing.", func(s outbox.Stats) int64 { return s.CrashPoisoned }},
		{".message.fenced", "{message}", "Results that were void because the claim had been taken away.", func(s outbox.Stats) int64 { return s.Fenced }},
		{".process.abandoned", "{message}", "Consumers abandoned after ignoring their timeout.", func(s outbox.Stats) int64 { return s.Abandoned }},
		{".process.uncounted", "{message}", "Runs that did not count as an attempt: a conflict or a lost connection.", func(s outbox.Stats) int64 { return s.Uncounted }},
	} {
		instrument, err := meter.Int64ObservableCounter(system+c.name, metric.WithUnit(c.unit), metric.WithDescription(c.description))
		g.stats, m.errs = append(g.stats, statistic{instrument, c.of}), append(m.errs, err)
	}
	for _, l := range []struct {
		name, description string
		of                func(outbox.Stats) int64
	}{
		{".worker.active", "Consumers that run now.", func(s outbox.Stats) int64 { return int64(s.Running) }},
		{".worker.queued", "Messages claimed that wait for a worker.", func(s outbox.Stats) int64 { return int64(s.Queued) }},
		{".worker.limit", "The most consumers that may run at once.", func(s outbox.Stats) int64 { return int64(s.Limit) }},
		{".settle.waiting", "Outcomes that could not be written yet.", func(s outbox.Stats) int64 { return int64(s.Unsettled) }},
	} {
		instrument, err := meter.Int64ObservableUpDownCounter(system+l.name, metric.WithUnit("{message}"), metric.WithDescription(l.description))
		g.stats, m.errs = append(g.stats, statistic{instrument, l.of}), append(m.errs, err)
	}
	g.depth = m.gauge(".queue.depth", "{message}", "Messages that wait, by state; counted up to a bound.")
	g.age = m.age(".queue.oldest_age", "How long the oldest ready message has been due; 0 when there is none.")
	g.poisonDepth = m.gauge(".poison.depth", "{message}", "Poisoned messages; counted up to a bound.")
	g.poisonAge = m.age(".poison.oldest_age", "How long ago the oldest poisoned message was poisoned; 0 when there is none.")
	all := []metric.Observable{g.depth, g.age, g.poisonDepth, g.poisonAge}
	for _, s := range g.stats {
		all = append(all, s.instrument)
	}
	return all, errors.Join(m.errs...)
}

// now shows what the process knows without asking the database.
func (g *gauges) now(o metric.Observer) {
	stats := g.source.Stats()
	for _, s := range g.stats {
		o.ObserveInt64(s.instrument, s.of(stats))
	}
}

func (g *gauges) look(ctx context.Context) (show func(metric.Observer), err error) {
	queues, err := g.source.Queues(ctx)
	return func(o metric.Observer) {
		for _, q := range queues {
			g.showQueue(o, q)
		}
	}, err
}

func (g *gauges) showQueue(o metric.Observer, q outbox.Queue) {
	consumer := groupKey.String(q.Consumer)
	state := func(name string) metric.ObserveOption {
		return metric.WithAttributeSet(attribute.NewSet(consumer, queueStateKey.String(name)))
	}
	o.ObserveInt64(g.depth, q.Ready, state("ready"))
	o.ObserveInt64(g.depth, q.Delayed, state("delayed"))
	o.ObserveInt64(g.depth, q.Leased, state("leased"))
	set := metric.WithAttributeSet(attribute.NewSet(consumer))
	o.ObserveFloat64(g.age, q.OldestReady.Seconds(), set)
	o.ObserveInt64(g.poisonDepth, q.Poisoned, set)
	o.ObserveFloat64(g.poisonAge, q.OldestPoisoned.Seconds(), set)
}
