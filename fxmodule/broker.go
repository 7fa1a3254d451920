package fxmodule

import (
	"cmp"

	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

const (
	receiversGroup  = "asyncmonolith.receivers"
	forwardersGroup = "asyncmonolith.forwarders"
)

// Receivers registers receivers, as [Consumers] does consumers. Each argument is an inbox.Receiver,
// an []inbox.Receiver, or a constructor of either. [Module] also registers their consumers of parked
// records, and starts and stops them with the processors. The application may provide an
// inbox.RunnerConfig as a value.
func Receivers(receivers ...any) fx.Option {
	return members[inbox.Receiver]("Receivers", receiversGroup, receivers)
}

// LogForwarders registers log forwarders, as [Consumers] does consumers. Each argument is a
// relay.LogForwarder, a []relay.LogForwarder, or a constructor of either. They need [EventLog].
// [Module] starts and stops them with the processors. The application may provide a
// relay.RunnerConfig as a value. Forwarders that publish messages are consumers: use Consumers.
func LogForwarders(forwarders ...any) fx.Option {
	return members[relay.LogForwarder]("LogForwarders", forwardersGroup, forwarders)
}

type parkedParams struct {
	fx.In

	Receivers []inbox.Receiver `group:"asyncmonolith.receivers"`
}

type parkedConsumers struct {
	fx.Out

	Consumers []bus.Consumer `group:"asyncmonolith.consumers,flatten"`
}

// newParkedConsumers returns the receivers' consumers of parked records.
func newParkedConsumers(p parkedParams) (c parkedConsumers) {
	for _, r := range p.Receivers {
		if consumer := r.Consumer(); consumer.Name() != "" { // otherwise NewRunner reports the mistake
			c.Consumers = append(c.Consumers, consumer)
		}
	}
	return c
}

// optionalLog is the event log, if the application has one.
type optionalLog struct {
	fx.In

	Log *eventlog.Log `optional:"true"`
	// Readers makes fx fill in the log first.
	Readers *projection.Runner `optional:"true"`
}

type receiverParams struct {
	fx.In

	Base      base
	Log       optionalLog
	Handles   *handles
	Config    inbox.RunnerConfig `optional:"true"`
	Receivers []inbox.Receiver   `group:"asyncmonolith.receivers"`
}

// newReceiverRunner returns nil when the application has no receivers.
func newReceiverRunner(p receiverParams) (*inbox.Runner, error) {
	if len(p.Receivers) == 0 {
		return nil, nil
	}
	c := p.Config
	c.Log = cmp.Or(c.Log, p.Log.Log)
	p.Base.complete(&c.Logger, &c.Telemetry, (*amotel.Telemetry).Receive)
	return inbox.NewRunner(p.Base.DB.db, p.Base.Registry, p.Handles.producer, c, p.Receivers...)
}

type logForwarderParams struct {
	fx.In

	Base       base
	Log        optionalLog
	Config     relay.RunnerConfig   `optional:"true"`
	Forwarders []relay.LogForwarder `group:"asyncmonolith.forwarders"`
}

// newLogForwarderRunner returns nil when the application has no log forwarders.
func newLogForwarderRunner(p logForwarderParams) (*relay.Runner, error) {
	if len(p.Forwarders) == 0 {
		return nil, nil
	}
	c := p.Config
	c.Log = cmp.Or(c.Log, p.Log.Log)
	p.Base.complete(&c.Logger, &c.Telemetry, (*amotel.Telemetry).Publish)
	return relay.NewRunner(p.Base.DB.db, p.Base.Registry, c, p.Forwarders...)
}
