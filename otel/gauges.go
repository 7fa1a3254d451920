package otel

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// gauges are the instruments of a sampler. What is read from the database is a
// gauge, since every process reads the same; what a process has for itself adds
// up over processes.
type gauges struct {
	stats []statistic

	depth, poisonDepth metric.Int64ObservableGauge
	age, poisonAge     metric.Float64ObservableGauge

	all []metric.Observable
}

// statistic is an instrument that shows one field of outbox.Stats.
type statistic struct {
	instrument metric.Int64Observable
	of         func(outbox.Stats) int64
}

func newGauges(meter metric.Meter) (*gauges, error) {
	g := &gauges{}
	err := errors.Join(g.addCounters(meter), g.addLevels(meter), g.addQueues(meter))
	return g, err
}

func (g *gauges) addCounters(meter metric.Meter) error {
	var errs []error
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
		g.add(instrument, c.of)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (g *gauges) addLevels(meter metric.Meter) error {
	var errs []error
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
		g.add(instrument, l.of)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (g *gauges) add(instrument metric.Int64Observable, of func(outbox.Stats) int64) {
	g.stats = append(g.stats, statistic{instrument, of})
	g.all = append(g.all, instrument)
}

func (g *gauges) addQueues(meter metric.Meter) error {
	var errs [4]error
	g.depth, errs[0] = meter.Int64ObservableGauge(system+".queue.depth", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that wait, by state; counted up to a bound."))
	g.age, errs[1] = meter.Float64ObservableGauge(system+".queue.oldest_age", metric.WithUnit("s"),
		metric.WithDescription("How long the oldest ready message has been due; 0 when there is none."))
	g.poisonDepth, errs[2] = meter.Int64ObservableGauge(system+".poison.depth", metric.WithUnit("{message}"),
		metric.WithDescription("Poisoned messages; counted up to a bound."))
	g.poisonAge, errs[3] = meter.Float64ObservableGauge(system+".poison.oldest_age", metric.WithUnit("s"),
		metric.WithDescription("How long ago the oldest poisoned message was poisoned; 0 when there is none."))
	g.all = append(g.all, g.depth, g.age, g.poisonDepth, g.poisonAge)
	return errors.Join(errs[:]...)
}

func (g *gauges) showStats(o metric.Observer, stats outbox.Stats) {
	for _, s := range g.stats {
		o.ObserveInt64(s.instrument, s.of(stats))
	}
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
