package otel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// RelaySource is what [Telemetry.ObserveRelays] samples: *relay.Runner. Its methods must be safe
// for concurrent use.
type RelaySource interface {
	// Stats returns the receivers' counters and state.
	Stats(ctx context.Context) ([]relay.Stats, error)
	// Logs returns the progress of log relays.
	Logs(ctx context.Context) ([]relay.LogStats, error)
}

// ObserveRelays is [Telemetry.Observe] for receivers: received records, their delay, whether
// fetching is paused, and the size of the inbox. It shows log relays as [Telemetry.ObserveReaders]
// shows projections, under "relay:" and their name. Forwarders that publish messages are consumers
// and are shown as such, with their circuit.
func (t *Telemetry) ObserveRelays(ctx context.Context, source RelaySource, every time.Duration) error {
	return t.observe(ctx, "observe relays", source == nil, &relayGauges{source: source}, every)
}

// relayGauges show receivers.
type relayGauges struct {
	source RelaySource

	records    metric.Int64ObservableCounter
	lag, age   metric.Float64ObservableGauge
	remembered metric.Int64ObservableGauge
	paused     metric.Int64ObservableUpDownCounter
	logs       readerGauges // of log relays, which are readers too
}

func (g *relayGauges) register(meter metric.Meter) ([]metric.Observable, error) {
	m := maker{meter: meter}
	var err error
	g.records, err = meter.Int64ObservableCounter(system+".receiver.records", metric.WithUnit("{record}"),
		metric.WithDescription("Records that a receiver has taken over, by what became of them."))
	m.errs = append(m.errs, err)
	g.lag = m.age(".receiver.lag", "How old the last record was when it arrived; 0 when none has for a minute.")
	g.paused = m.level(".receiver.paused", "{receiver}", "1 while a receiver fetches nothing, and else 0.")
	g.remembered = m.gauge(".inbox.records", "{record}", "Records that a receiver remembers; counted up to a bound.")
	g.age = m.age(".inbox.oldest_age", "How long ago the oldest record arrived that a receiver remembers; 0 when there is none.")
	logs, err := g.logs.register(meter)
	m.errs = append(m.errs, err)
	return append(logs, g.records, g.lag, g.paused, g.remembered, g.age), errors.Join(m.errs...)
}

// now shows nothing: some values are in the database.
func (g *relayGauges) now(metric.Observer) {}

func (g *relayGauges) look(ctx context.Context) (show func(metric.Observer), err error) {
	receivers, err := g.source.Stats(ctx)
	if err != nil {
		return nil, err
	}
	logs, err := g.source.Logs(ctx)
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
		for _, l := range logs {
			g.logs.show(o, "relay:"+l.Relay, 1, l.Lag, l.Halted, l.Parked)
		}
	}, err
}
