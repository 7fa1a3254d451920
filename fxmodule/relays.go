package fxmodule

import (
	"cmp"
	"log/slog"
	"reflect"
	"slices"

	"github.com/uptrace/bun"
	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

const (
	relaysGroup    = "asyncmonolith.relays"
	logRelaysGroup = "asyncmonolith.logrelays"
)

// Relays registers receivers and log relays, as [Consumers] does consumers. Each argument is a
// relay.Receiver, a []relay.Receiver, or a constructor of either; or the same of
// relay.LogForwarder, which needs [EventLog]. [Module] also registers the receivers' consumers of
// parked records, and starts and stops all relays with the processors. The application may provide
// a relay.RunnerConfig as a value. Forwarders that publish messages are consumers: use Consumers.
func Relays(relays ...any) fx.Option {
	options := make([]fx.Option, len(relays))
	for i, r := range relays {
		if isLogRelay(reflect.TypeOf(r)) {
			options[i] = memberOption[relay.LogForwarder]("Relays", "a relay.LogForwarder", logRelaysGroup, i, r)
		} else {
			options[i] = memberOption[relay.Receiver]("Relays", "a relay.Receiver", relaysGroup, i, r)
		}
	}
	return fx.Options(options...)
}

// isLogRelay reports whether t is a log relay, a list of them, or a constructor of either.
func isLogRelay(t reflect.Type) bool {
	if t != nil && t.Kind() == reflect.Func && t.NumOut() > 0 {
		t = t.Out(0)
	}
	return t == reflect.TypeFor[relay.LogForwarder]() || t == reflect.TypeFor[[]relay.LogForwarder]()
}

type parkedParams struct {
	fx.In

	Receivers []relay.Receiver `group:"asyncmonolith.relays"`
}

type parkedConsumers struct {
	fx.Out

	Consumers []bus.Consumer `group:"asyncmonolith.consumers,flatten"`
}

// newParkedConsumers returns the receivers' consumers of parked records.
func newParkedConsumers(p parkedParams) (c parkedConsumers) {
	for _, r := range p.Receivers {
		if r.Name() != "" { // otherwise NewRunner reports the mistake
			c.Consumers = append(c.Consumers, r.Consumer())
		}
	}
	return c
}

type relayParams struct {
	fx.In

	DB        *bun.DB
	Registry  *bus.Registry
	Handles   *handles
	Telemetry *amotel.Telemetry
	Config    relay.RunnerConfig   `optional:"true"`
	Receivers []relay.Receiver     `group:"asyncmonolith.relays"`
	Logs      []relay.LogForwarder `group:"asyncmonolith.logrelays"`
	Logger    *slog.Logger         `optional:"true"`
	Log       *eventlog.Log        `optional:"true"`
	// Readers makes fx fill in the log first.
	Readers *projection.Runner `optional:"true"`
}

// newRelayRunner returns nil when the application has no relays.
func newRelayRunner(p relayParams) (*relay.Runner, error) {
	if len(p.Receivers) == 0 && len(p.Logs) == 0 {
		return nil, nil
	}
	config := p.Config
	config.Log = cmp.Or(config.Log, p.Log)
	config.Logger = cmp.Or(config.Logger, p.Logger)
	if config.Telemetry == nil && p.Telemetry != nil {
		config.Telemetry = p.Telemetry.Receive()
	}
	if config.PublishTelemetry == nil && p.Telemetry != nil {
		config.PublishTelemetry = p.Telemetry.Publish()
	}
	slices.SortStableFunc(p.Receivers, func(a, b relay.Receiver) int { return cmp.Compare(a.Name(), b.Name()) }) // fx shuffles groups
	slices.SortStableFunc(p.Logs, func(a, b relay.LogForwarder) int { return cmp.Compare(a.Name(), b.Name()) })
	var relays []relay.Relay
	for _, r := range p.Receivers {
		relays = append(relays, r)
	}
	for _, l := range p.Logs {
		relays = append(relays, l)
	}
	return relay.NewRunner(p.DB, p.Registry, p.Handles.producer, config, relays...)
}
