package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/cloudevents"
	"github.com/asyncmonolith/asyncmonolith-go/internal/contract"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

const (
	publishBatch   = 256
	publishAtOnce  = 4
	publishTimeout = 5 * time.Second
	maxTimeout     = 10 * time.Minute
	// publishGrace is the extra time after a publisher's timeout before its run is abandoned.
	publishGrace = 5 * time.Second
)

// Config configures a forwarder. Source and Routes are required.
type Config struct {
	// Source is the CloudEvents source of the forwarder's events, a URI reference: "/shop/orders" or
	// "https://shop.example/orders". Together with the id it identifies an event globally, so it must
	// differ from every other service's and must not change.
	Source string
	// Routes has a [To] for each payload type.
	Routes []Route
	// Recipients lists the consumers of the records; a receiver writes messages only for those. Use
	// their names in this service; the receiving service may have them as aliases. A message stored
	// under an alias that is also in Recipients is published for that consumer only. Messages under
	// any other alias are published for all Recipients. Defaults to all consumers of the payload.
	Recipients []string
	// Structured makes records carry the whole event in one JSON object, for brokers that allow few
	// attributes. Defaults to binary mode, where the payload is the body.
	Structured bool
	// ContentType is the media type of payloads, for registries with their own codec. Defaults to
	// application/json.
	ContentType string
	// PublishTimeout limits a batch: the publisher has what its routes' functions and upcasters leave, at
	// least half. Messages that are not records after half of it are released. Up to 10 min. Defaults to
	// 5 s.
	PublishTimeout time.Duration
	// Circuit is the circuit that the forwarder trips while the broker is unavailable. Set it to share
	// a circuit between forwarders, or to reset it when the broker is known to be back. By default the
	// forwarder has its own.
	Circuit *outbox.Circuit
}

// NewForwarder makes a consumer that publishes the payloads for which config has a [Route]. It
// accepts the options of any consumer, among them bus.BatchSize, which defaults to 256 here, and
// bus.Concurrency, which limits concurrent batches and defaults to 4. bus.NewRegistry reports
// configuration errors. All batches share pub.
//
// A message is done once the broker has it. [broker.Publisher] lists the errors it distinguishes.
// While the broker does not answer, or not within PublishTimeout, pending messages are not changed:
// a circuit (see outbox.Circuit) stops claims and lets single messages probe. It closes when a
// probe succeeds, or when a [broker.ReconnectNotifier] reports that the broker is back.
//
// The circuit opens if there is no connection ([broker.ErrDisconnected]), or if no destination of
// the routes answers. If only one destination does not answer, its messages are snoozed. The wait
// equals the time since it stopped answering, 1 s to 30 s. One of them at a time is sent as a
// probe, and other destinations are not delayed. Messages of a key are treated the same way if the
// broker does not answer for that key, for example on a partition without a leader. If two keys
// have no answer, and no other key has one in between, the destination counts as one that does not
// answer. A probe with a key is snoozed, so the next probe is another message. With
// [DestinationFunc], which may return other destinations, only a lost connection opens the circuit.
//
// A message whose destination does not exist is snoozed. The wait equals the time since the
// destination was found missing, 1 s to 5 min. For each destination that is missing or does not
// answer, one message is logged at Warn every 5 min. A message that the broker rejects is poisoned.
// Any other error is a failed attempt.
//
// A replayed message (bus.Message.Replay) is published like any other. A receiver skips it if its
// inbox still has the record, and treats it as live otherwise.
//
// With bus.Ordered, a record is published only after the broker has the previous record of its key.
// A call of the publisher therefore has at most one record of each key.
//
// The key of a record is the stream of an event, otherwise outbox.OrderingKey, otherwise what the
// payload's OrderingKey method returns.
func NewForwarder(name string, pub broker.Publisher, config Config, options ...bus.ConsumerOption) bus.Consumer {
	p := newPublishing(name, pub, config)
	p.needDestinations()
	all := []bus.ConsumerOption{
		bus.BatchSize(publishBatch), bus.Concurrency(publishAtOnce), bus.Timeout(p.config.PublishTimeout + publishGrace),
		bus.Forwards(),
	}
	all = append(
		append(all, options...), outbox.WithCircuit(p.config.Circuit), p.refuse, contract.SetRelay(p.contract()),
		func(c *bus.ConsumerConfig) { access.SetKeyOf(c, p.keyOf) },
	)
	return bus.ConsumeRaw(name, p.consume, p.payloadTypes, all...)
}

// publishing publishes to a broker. It changes only behind pointers.
type publishing struct {
	name         string
	pub          broker.Publisher
	config       Config            // with defaults
	routes       map[string]*route // by stored names
	inOrder      []*route
	payloadTypes []string // the same names, in order
	mistakes     []string
	missing      *missing
}

func newPublishing(name string, pub broker.Publisher, config Config) *publishing {
	config.Recipients = slices.Clone(config.Recipients)
	config.ContentType = cmp.Or(config.ContentType, cloudevents.JSON)
	config.PublishTimeout = cmp.Or(config.PublishTimeout, publishTimeout)
	config.Circuit = cmp.Or(config.Circuit, new(outbox.Circuit))
	p := &publishing{name: name, pub: pub, config: config, routes: make(map[string]*route), missing: new(missing)}
	for _, r := range config.Routes {
		p.add(r.route)
	}
	p.check()
	if r, ok := pub.(broker.ReconnectNotifier); ok {
		r.OnReconnect(config.Circuit.Reset)
	}
	return p
}

func (p *publishing) check() {
	c := &p.config
	if p.pub == nil {
		p.mistake("the publisher is nil")
	}
	if _, err := url.Parse(c.Source); c.Source == "" || err != nil || cloudevents.Printable(c.Source) != c.Source {
		p.mistake("Config.Source %q: a URI reference is allowed", c.Source)
	}
	if c.PublishTimeout <= 0 || c.PublishTimeout > maxTimeout {
		p.mistake("Config.PublishTimeout %s: more than 0 and up to %s is allowed", c.PublishTimeout, maxTimeout)
		c.PublishTimeout = publishTimeout
	}
	if cloudevents.Printable(c.ContentType) != c.ContentType {
		p.mistake("Config.ContentType %q: a media type is allowed", c.ContentType)
	}
	if len(c.Routes) == 0 {
		p.mistake("Config.Routes is empty: add a relay.To")
	}
	if slices.Contains(c.Recipients, "") {
		p.mistake("Config.Recipients: a name is empty")
	}
}

func (p *publishing) mistake(format string, args ...any) {
	p.mistakes = append(p.mistakes, fmt.Sprintf("relay: "+format, args...))
}

// refuse is the option that reports mistakes in the configuration and in the options before it.
func (p *publishing) refuse(c *bus.ConsumerConfig) {
	if c.Timeout > 0 && c.Timeout <= p.config.PublishTimeout {
		access.Reject(c, fmt.Sprintf("relay: Timeout %s: more than the PublishTimeout of %s is allowed", c.Timeout, p.config.PublishTimeout))
	}
	for _, text := range p.mistakes {
		access.Reject(c, text)
	}
}

// publish returns an outcome for each record. Records for a destination that does not answer wait
// without delaying others.
func (p *publishing) publish(ctx context.Context, timeout time.Duration, records []broker.Record) []error {
	_, _, probes := p.config.Circuit.Tripped()
	if probes && p.missing.misjudged(records[0]) {
		p.config.Circuit.Reset()
		probes = false
	}
	if !probes {
		p.missing.opened()
	}
	outcomes := make([]error, len(records))
	sent, places := make([]broker.Record, 0, len(records)), make([]int, 0, len(records))
	for i, record := range records {
		if wait, held := p.missing.holds(record, p.config.PublishTimeout); held && !probes {
			outcomes[i] = p.snoozed(record, wait, fmt.Errorf("relay: destination %q does not answer: %w", record.Destination, broker.ErrUnavailable))
			continue
		}
		sent, places = append(sent, record), append(places, i)
	}
	if len(sent) == 0 {
		outage.Pause(ctx, p.missing.pace(p.config.PublishTimeout/2))
		return outcomes
	}
	results := p.call(ctx, timeout, sent)
	if cause := context.Cause(ctx); cause == nil ||
		errors.Is(cause, bus.ErrTimeout) { // otherwise the call was cut off, which is not the broker's fault
		if p.missing.note(sent, results) {
			p.config.Circuit.Reset()
		}
	}
	answered := true
	for i, err := range results {
		var away bool
		outcomes[places[i]], away = p.outcome(ctx, sent[i], err, len(sent) == 1)
		answered = answered && !away
	}
	if probes && answered && ctx.Err() == nil {
		p.config.Circuit.Reset() // also if the broker rejected the probe
	}
	return outcomes
}

// call calls the publisher and returns a result for each record.
func (p *publishing) call(ctx context.Context, timeout time.Duration, records []broker.Record) []error {
	calling, cancel := context.WithTimeoutCause(ctx, timeout, isolate.ErrTimeout)
	defer cancel()
	// A publisher may ignore its context and be abandoned; then the failing destination is
	// unknown.
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), bus.ErrTimeout) {
			_ = p.config.Circuit.Trip(isolate.ErrTimeout)
		}
	})()
	results := p.pub.Publish(calling, records)
	if len(results) == len(records) {
		return results
	}
	var err error
	if len(results) != 0 {
		err = fmt.Errorf("relay: publish: %d results for %d records: one for each is allowed, or none", len(results), len(records))
	}
	return slices.Repeat([]error{err}, len(records))
}

// outcome returns a message's outcome, and whether there was no answer. alone means that no other
// message was sent with it.
func (p *publishing) outcome(ctx context.Context, record broker.Record, err error, alone bool) (outcome error, away bool) {
	switch cause := context.Cause(ctx); {
	case err == nil:
		return nil, false
	case errors.Is(err, broker.ErrRejected):
		return bus.Permanent(err), false
	case errors.Is(err, broker.ErrNoDestination):
		return p.snoozed(record, p.missing.wait(record), err), false
	case cause != nil && !errors.Is(cause, bus.ErrTimeout): // the processor stops, or the run was cancelled
		return err, true
	case errors.Is(err, broker.ErrDisconnected):
		p.missing.disconnected()
		return p.config.Circuit.Trip(err), true
	case isSilence(err):
		return p.unanswered(record, err, alone), true
	}
	return err, false
}

// unanswered returns the outcome of a message without an answer. If no destination answers, the
// circuit opens. With one destination nothing is written then; with several, the message is
// snoozed so that others can probe. A message with a key that was sent alone, as a probe is, is
// snoozed as well: another key may be answered.
func (p *publishing) unanswered(record broker.Record, err error, alone bool) error {
	destinations, others := p.destinations()
	if others || !p.missing.silentAll(destinations) {
		return p.snoozed(record, p.missing.wait(record), err)
	}
	released := p.config.Circuit.Trip(err)
	if len(destinations) == 1 && (record.Key == "" || !alone) {
		return released
	}
	return p.snoozed(record, p.missing.wait(record), err)
}

// destinations are the destinations known in advance, and whether there may be others.
func (p *publishing) destinations() (names []string, others bool) {
	for _, r := range p.inOrder {
		if r.destinationOf != nil {
			others = true
		} else if !slices.Contains(names, r.destination) {
			names = append(names, r.destination)
		}
	}
	return names, others
}

// snoozed snoozes a message that waits for its destination.
func (p *publishing) snoozed(record broker.Record, wait time.Duration, err error) error {
	return &bus.OutcomeError{Outcome: bus.Snoozed, Delay: wait, Err: p.missing.told(record, err)}
}

// payloadName returns the stored name of a payload type, or "" for an invalid type.
func payloadName[T bus.Payload]() (string, reflect.Type) {
	return bus.Declare[T]("relay").PayloadType(), reflect.TypeFor[T]()
}
