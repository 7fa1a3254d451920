package otel

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// instruments are the chains' metrics.
type instruments struct {
	sent     metric.Int64Counter
	sending  metric.Float64Histogram
	consumed metric.Int64Counter
	running  metric.Float64Histogram
	active   metric.Int64UpDownCounter
	settled  metric.Int64Counter
	late     metric.Int64Counter
	attempts metric.Int64Histogram
	lag      metric.Float64Histogram
	endToEnd metric.Float64Histogram
	lateness metric.Float64Histogram
}

func newInstruments(meter metric.Meter) (instruments, error) {
	m := maker{meter: meter}
	// The SDK's default bounds are for milliseconds. These are the conventions' bounds for the
	// duration of one operation, and similar ones for waits, which may take hours.
	operations := []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10}
	waits := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	i := instruments{
		sent:     m.counter(sentMessages, "{message}", "Messages that a producer tried to write."),
		sending:  m.seconds(operationDuration, "Duration of a send: writing the messages, without the commit.", operations),
		consumed: m.counter(consumedMessages, "{message}", "Messages delivered to a consumer, every attempt counted."),
		running:  m.seconds(processDuration, "Duration of a run of a consumer.", operations),
		settled:  m.counter(system+".message.settled", "{message}", "Runs by what became of the message."),
		late:     m.counter(system+".message.late", "{message}", "Messages that were discarded or poisoned since their deadline had passed."),
		lag:      m.seconds(system+".delivery.lag", "Time from when a message was due until its consumer started.", waits),
		endToEnd: m.seconds(system+".end_to_end.lag", "Time from when a message was produced until it was done, discarded or poisoned.", waits),
		lateness: m.seconds(system+".schedule.lateness", "Time from when a schedule was due until it fired.", waits),
	}
	var err error
	i.active, err = meter.Int64UpDownCounter(system+".process.active", metric.WithUnit("{message}"),
		metric.WithDescription("Messages whose consumer runs now."))
	m.errs = append(m.errs, err)
	i.attempts, err = meter.Int64Histogram(system+".message.attempts", metric.WithUnit("{attempt}"),
		metric.WithDescription("Number of the attempt that a run was, by what became of the message."),
		metric.WithExplicitBucketBoundaries(1, 2, 3, 5, 8, 13, 21))
	m.errs = append(m.errs, err)
	return i, errors.Join(m.errs...)
}

// maker makes instruments and collects their errors.
type maker struct {
	meter metric.Meter
	errs  []error
}

func (m *maker) counter(name, unit, description string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.errs = append(m.errs, err)
	return c
}

func (m *maker) seconds(name, description string, bounds []float64) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(bounds...))
	m.errs = append(m.errs, err)
	return h
}

// level makes an up-down counter that is read when metrics are collected.
func (m *maker) level(name, unit, description string) metric.Int64ObservableUpDownCounter {
	c, err := m.meter.Int64ObservableUpDownCounter(system+name, metric.WithUnit(unit), metric.WithDescription(description))
	m.errs = append(m.errs, err)
	return c
}

func (m *maker) gauge(name, unit, description string) metric.Int64ObservableGauge {
	g, err := m.meter.Int64ObservableGauge(system+name, metric.WithUnit(unit), metric.WithDescription(description))
	m.errs = append(m.errs, err)
	return g
}

func (m *maker) age(name, description string) metric.Float64ObservableGauge {
	g, err := m.meter.Float64ObservableGauge(system+name, metric.WithUnit("s"), metric.WithDescription(description))
	m.errs = append(m.errs, err)
	return g
}

// labels is a set of attributes in both forms that instruments need. It is precomputed where
// possible, so that measuring does not allocate.
type labels struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func newLabels(attributes ...attribute.KeyValue) labels {
	option := metric.WithAttributeSet(attribute.NewSet(attributes...))
	return labels{add: []metric.AddOption{option}, record: []metric.RecordOption{option}}
}
