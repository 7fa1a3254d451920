package otel

import (
	"context"

	"go.opentelemetry.io/otel/metric"

	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// relaySource is what [Telemetry.ObserveRelays] samples: *relay.Runner. Its method must be safe
// for concurrent use.
type relaySource interface {
	// Stats returns the progress of log forwarders.
	Stats(ctx context.Context) ([]relay.Stats, error)
}

// relayGauges show log forwarders.
type relayGauges struct {
	source  relaySource
	readers readerGauges // log forwarders are readers of the log, too
}

func (g *relayGauges) register(meter metric.Meter) ([]metric.Observable, error) {
	return g.readers.register(meter)
}

// now shows nothing: all values are in the database.
func (g *relayGauges) now(metric.Observer) {}

func (g *relayGauges) look(ctx context.Context) (show func(metric.Observer), err error) {
	all, err := g.source.Stats(ctx)
	return func(o metric.Observer) {
		for _, s := range all {
			g.readers.show(o, "relay:"+s.Relay, 1, s.Lag, s.Halted, s.Parked)
		}
	}, err
}
