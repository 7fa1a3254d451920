package otel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/asyncmonolith/asyncmonolith-go/inbox"
)

// receiverSource is what [Telemetry.Observe] samples: *inbox.Runner. Its method must be
// safe for concurrent use.
type receiverSource interface {
	// Stats returns the receivers' counters and state.
	Stats(ctx context.Context) ([]inbox.Stats, error)
}

type receiverGauges struct {
	source receiverSource

	records    metric.Int64ObservableCounter
	lag, age   metric.Float64ObservableGauge
	remembered metric.Int64ObservableGauge
	paused     metric.Int64ObservableUpDownCounter
}

func (g *receiverGauges) register(meter metric.Meter) ([]metric.Observable, error) {
	m := maker{meter: meter}
	var err error
	g.records, err = meter.Int64ObservableCounter(system+".receiver.records", metric.WithUnit("{record}"),
		metric.WithDescription("Records that a receiver has taken over, by what became of them."))
	m.errs = append(m.errs, err)
	g.lag = m.age(".receiver.lag", "How old the last record was when it arrived; 0 when none has for a minute.")
	g.paused = m.level(".receiver.paused", "{receiver}", "1 while a receiver fetches nothing, and else 0.")
	g.remembered = m.gauge(".inbox.records", "{record}", "Records that a receiver remembers; counted up to a bound.")
	g.age = m.age(".inbox.oldest_age", "How long ago the oldest record arrived that a receiver remembers; 0 when there is none.")
	return []metric.Observable{g.records, g.lag, g.paused, g.remembered, g.age}, errors.Join(m.errs...)
}

func (g *receiverGauges) look(ctx context.Context) (show func(metric.Observer), err error) {
	receivers, err := g.source.Stats(ctx)
	return func(o metric.Observer) {
		for _, s := range receivers {
			receiver := groupKey.String(s.Receiver)
			for outcome, n := range map[string]int64{"new": s.Accepted, "duplicate": s.Duplicates, "unknown": s.Ignored, "parked": s.Parked} {
				o.ObserveInt64(g.records, n, metric.WithAttributes(receiver, recordKey.String(outcome)))
			}
			paused := int64(0)
			if s.Paused != "" {
				paused = 1
			}
			set := metric.WithAttributeSet(attribute.NewSet(receiver))
			o.ObserveInt64(g.paused, paused, set)
			o.ObserveFloat64(g.lag, s.Lag.Seconds(), set)
			o.ObserveInt64(g.remembered, int64(s.InboxSize), set)
			o.ObserveFloat64(g.age, s.Oldest.Seconds(), set)
		}
	}, err
}
