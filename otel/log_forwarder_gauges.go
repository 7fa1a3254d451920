package otel

import (
	"context"

	"go.opentelemetry.io/otel/metric"

	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// logForwarderSource is what [Telemetry.ObserveLogForwarders] samples: *relay.Runner. Its method must be safe
// for concurrent use.
type logForwarderSource interface {
	// Stats returns the progress of log forwarders.
	Stats(ctx context.Context) ([]relay.Stats, error)
}

// logForwarderGauges show log forwarders.
type logForwarderGauges struct {
	source  logForwarderSource
	readers readerGauges // log forwarders are readers of the log, too
}

func (g *logForwarderGauges) register(meter metric.Meter) ([]metric.Observable, error) {
	return g.readers.register(meter)
}

// now shows nothing: all values are in the database.
func (g *logForwarderGauges) now(metric.Observer) {}

func (g *logForwarderGauges) look(ctx context.Context) (show func(metric.Observer), err error) {
	all, err := g.source.Stats(ctx)
	return func(o metric.Observer) {
		for _, s := range all {
			g.readers.show(o, "relay:"+s.Forwarder, 1, s.Lag, s.Halted, s.Parked)
		}
	}, err
}
