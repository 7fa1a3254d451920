package otel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// gauges show a processor. Values from the database are gauges, because every process reads the
// same. Values of a process add up over processes.
type gauges struct {
	source processorSource
	stats  []statistic

	depth, poisonDepth, parked metric.Int64ObservableGauge
	stopped                    metric.Int64ObservableGauge
	age, poisonAge             metric.Float64ObservableGauge
	closed, slots, used        metric.Int64ObservableUpDownCounter
	slotsMax                   metric.Int64ObservableGauge
	spent                      metric.Float64ObservableCounter
}

// statistic is an instrument for one field of outbox.Stats.
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
		{".lease.recovered", "{claim}", "Claims of lost processes that were recovered.", func(s outbox.Stats) int64 { return s.Recovered }},
		{".message.crashed", "{message}", "Messages whose process was lost.", func(s outbox.Stats) int64 { return s.Crashed }},
		{".message.crash_poisoned", "{message}", "Messages poisoned because their process kept vanishing.",
			func(s outbox.Stats) int64 { return s.CrashPoisoned }},
		{".message.fenced", "{message}", "Results that were void because the claim had been taken away.",
			func(s outbox.Stats) int64 { return s.Fenced }},
		{".process.abandoned", "{message}", "Consumers abandoned after ignoring their timeout.",
			func(s outbox.Stats) int64 { return s.Abandoned }},
		{".process.uncounted", "{message}", "Runs that did not count as an attempt: a conflict or a lost " +
			"connection.", func(s outbox.Stats) int64 { return s.Uncounted }},
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
		g.stats = append(g.stats, statistic{m.level(l.name, "{message}", l.description), l.of})
	}
	all := append(g.registerQueues(&m), g.registerFlow(&m)...)
	for _, s := range g.stats {
		all = append(all, s.instrument)
	}
	return all, errors.Join(m.errs...)
}

func (g *gauges) registerQueues(m *maker) []metric.Observable {
	g.depth = m.gauge(".queue.depth", "{message}", "Messages that wait, by state; counted up to a bound.")
	g.age = m.age(".queue.oldest_age", "How long the oldest ready message has been due; 0 when there is none.")
	g.poisonDepth = m.gauge(".poison.depth", "{message}", "Poisoned messages; counted up to a bound.")
	g.poisonAge = m.age(".poison.oldest_age", "How long ago the oldest poisoned message was poisoned; 0 when there is none.")
	g.parked = m.gauge(
		".key.blocked", "{key}", "Keys whose messages wait for a poisoned one to be requeued or discarded; counted up to a bound.",
	)
	g.stopped = m.gauge(".consumer.stopped", "{reason}", "1 for each reason why messages of a consumer do not start, as its state.")
	return []metric.Observable{g.depth, g.age, g.poisonDepth, g.poisonAge, g.parked, g.stopped}
}

// registerFlow makes the instruments for consumers with a circuit, a circuit breaker, a limit or a
// rate.
func (g *gauges) registerFlow(m *maker) []metric.Observable {
	g.closed = m.level(".circuit.open", "{circuit}", "1 while the circuit or the circuit breaker of a consumer is open, and else 0.")
	g.slots = m.level(".limit.slots", "{slot}", "Slots of a limit that the process holds.")
	g.used = m.level(".limit.used", "{slot}", "Slots of a limit in which a consumer runs.")
	g.slotsMax = m.gauge(".limit.max", "{slot}", "Slots of a limit that there are for all processes together.")
	var err error
	g.spent, err = m.meter.Float64ObservableCounter(system+".rate.spent", metric.WithUnit("s"),
		metric.WithDescription("For how long nothing was claimed of a consumer since its rate was spent."))
	m.errs = append(m.errs, err)
	return []metric.Observable{g.closed, g.slots, g.used, g.slotsMax, g.spent}
}

// now shows what the process knows without querying the database.
func (g *gauges) now(o metric.Observer) {
	stats := g.source.Stats()
	for _, s := range g.stats {
		o.ObserveInt64(s.instrument, s.of(stats))
	}
	for consumer, closed := range stats.Circuits {
		n := int64(0)
		if closed {
			n = 1
		}
		o.ObserveInt64(g.closed, n, metric.WithAttributes(groupKey.String(consumer)))
	}
	for name, l := range stats.Limits {
		set := metric.WithAttributeSet(attribute.NewSet(limitNameKey.String(name)))
		o.ObserveInt64(g.slots, int64(l.Slots), set)
		o.ObserveInt64(g.used, int64(l.Used), set)
		o.ObserveInt64(g.slotsMax, int64(l.Max), set)
	}
	for consumer, spent := range stats.RatesSpent {
		o.ObserveFloat64(g.spent, spent.Seconds(), metric.WithAttributes(groupKey.String(consumer)))
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

func (g *gauges) showQueue(o metric.Observer, q admin.Queue) {
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
	for _, stop := range q.Stops {
		o.ObserveInt64(g.stopped, 1, state(string(stop.Reason)))
	}
	if q.BlocksKeys {
		o.ObserveInt64(g.parked, q.BlockedKeys, set)
	}
}
