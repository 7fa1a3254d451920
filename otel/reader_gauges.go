package otel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/internal/projections"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// readerGauges show the readers of an event log.
type readerGauges struct {
	source *projection.Runner

	lag, halted, parked, unassigned metric.Int64ObservableGauge
}

func (g *readerGauges) register(meter metric.Meter) ([]metric.Observable, error) {
	m := maker{meter: meter}
	g.lag = m.gauge(".reader.lag", "{event}", "Positions of the event log that are still before a reader's slowest shard.")
	g.halted = m.gauge(".reader.halted", "{shard}", "Halted shards of a reader.")
	g.parked = m.gauge(".reader.parked", "{event}", "Events that a reader has parked; counted up to a bound.")
	g.unassigned = m.gauge(".log.unassigned", "{event}", "Events that are committed and have no position yet; counted up to a bound.")
	return []metric.Observable{g.lag, g.halted, g.parked, g.unassigned}, errors.Join(m.errs...)
}

func (g *readerGauges) look(ctx context.Context) (show func(metric.Observer), err error) {
	readers, err := g.source.Stats(ctx)
	if err != nil {
		return nil, err
	}
	unassigned, err := projections.Unassigned(ctx, g.source)
	return func(o metric.Observer) {
		o.ObserveInt64(g.unassigned, unassigned)
		for _, r := range readers {
			g.show(o, r.Name, r.Version, r.Lag, r.Halted, r.Parked)
		}
	}, err
}

func (g *readerGauges) show(o metric.Observer, name string, version int, lag int64, halted, parked int) {
	set := metric.WithAttributeSet(attribute.NewSet(groupKey.String(name), versionKey.Int(version)))
	o.ObserveInt64(g.lag, lag, set)
	o.ObserveInt64(g.halted, int64(halted), set)
	o.ObserveInt64(g.parked, int64(parked), set)
}

// logForwarderSource is what [Telemetry.Observe] samples: *relay.Runner. Its method must
// be safe for concurrent use.
type logForwarderSource interface {
	// Stats returns the progress of log forwarders.
	Stats(ctx context.Context) ([]relay.Stats, error)
}

type logForwarderGauges struct {
	source  logForwarderSource
	readers readerGauges // log forwarders are readers of the log, too
}

func (g *logForwarderGauges) register(meter metric.Meter) ([]metric.Observable, error) {
	return g.readers.register(meter)
}

func (g *logForwarderGauges) look(ctx context.Context) (show func(metric.Observer), err error) {
	all, err := g.source.Stats(ctx)
	return func(o metric.Observer) {
		for _, s := range all {
			g.readers.show(o, "relay:"+s.Forwarder, 1, s.Lag, s.Halted, s.Parked)
		}
	}, err
}
