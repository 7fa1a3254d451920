package relay

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/cloudevents"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

const (
	publishBatch   = 256
	publishAtOnce  = 4
	publishTimeout = 5 * time.Second
	maxTimeout     = 10 * time.Minute
	// publishGrace is what a publisher has beyond its timeout before its run is given up.
	publishGrace = 5 * time.Second
)

// NewForwarder makes a consumer that publishes the payloads for which it has a [Route]. It needs a
// [Source], and takes the options of this package and those of any consumer: bus.BatchSize,
// which defaults to 256 here, and bus.Concurrency, which is how many batches are published at
// once and defaults to 4. Mistakes are reported by bus.NewRegistry. pub is shared by all
// batches.
//
// A message is done once the broker has it. [broker.Publisher] names the errors that it distinguishes. While
// the broker does not answer, or not within [PublishTimeout], nothing is written to what waits: a
// circuit keeps messages from being claimed, see outbox.Circuit, and lets single ones probe. It
// closes when one is done, or when a [broker.ReconnectNotifier] reports that the broker is back.
//
// The circuit is tripped if there is no connection, [broker.ErrDisconnected], or if none of the
// destinations of the routes answers. If only one destination does not answer, its messages are
// snoozed for as long as it has not, 1 s to 30 s, and one of them at a time is sent: others are not
// held up. So is what has a key for which there is no answer, as on a partition without a leader.
// With [DestinationFunc] there may always be another destination: there only a lost connection
// trips the circuit.
// A message that has nowhere to go is snoozed for as long as its destination has been missing,
// 1 s to 5 min. Of each destination that is missing or does not answer the line of a message is at Warn,
// every 5 min. One that the broker refuses is poisoned. Any other error is a failed attempt.
//
// A message that is delivered again on request (bus.Message.Replay) is published like any other, and
// is live where it arrives, unless it is remembered there.
//
// The key of a record is the stream of an event, else what outbox.OrderingKey was given, else what the
// payload's OrderingKey returns.
func NewForwarder(name string, pub broker.Publisher, options ...bus.ConsumerOption) bus.Consumer {
	p, config := newPublishing(name, pub, options)
	if config.Timeout > 0 && config.Timeout <= p.timeout {
		p.mistake("Timeout %s: more than the PublishTimeout of %s is allowed", config.Timeout, p.timeout)
	}
	if p.shardCount != 0 || p.park {
		p.mistake("Shards and Park are for relay.NewLogForwarder")
	}
	p.needDestinations()
	all := []bus.ConsumerOption{bus.BatchSize(publishBatch), bus.Concurrency(publishAtOnce), bus.Timeout(p.timeout + publishGrace), bus.Forwards()}
	all = append(append(all, options...), outbox.WithCircuit(p.circuit), p.refuse)
	return bus.ConsumeRaw(name, p.consume, p.payloadTypes, all...)
}

// Source says where the events of a relay come from, as a URI reference: "/shop/orders", or
// "https://shop.example/orders". Together with the id it identifies an event, for ever and
// everywhere, so it must not be another service's, and must not change. It is required.
func Source(source string) bus.ConsumerOption {
	return publishOption(func(p *publishing) { p.source = source })
}

// Structured has records carry all of an event in one JSON object, for brokers that allow few
// attributes. Defaults to binary mode, where the payload is the body.
func Structured() bus.ConsumerOption {
	return publishOption(func(p *publishing) { p.structured = true })
}

// ContentType is the media type of payloads, for registries with a codec of their own. Defaults
// to application/json.
func ContentType(mediaType string) bus.ConsumerOption {
	return publishOption(func(p *publishing) { p.contentType = mediaType })
}

// PublishTimeout bounds one call of the publisher: up to 10 min. Defaults to 5 s.
func PublishTimeout(d time.Duration) bus.ConsumerOption {
	return publishOption(func(p *publishing) { p.timeout = d })
}

// WithCircuit sets the circuit that the relay trips while the broker is away. It is for relays that
// share one, and for code that resets it when the broker is known to be back. Defaults to one of
// the relay's own.
func WithCircuit(g *outbox.Circuit) bus.ConsumerOption {
	return publishOption(func(p *publishing) { p.circuit = g })
}

// Recipients names the consumers that the records are for: [Receive] writes messages for those alone.
// A message that was produced for an alias of the relay which is one of them is for that one alone; any other
// alias is a former name of the relay. So name a consumer as it was named here: at the other end that
// may be an alias. Defaults to all consumers of the payload.
func Recipients(consumers ...string) bus.ConsumerOption {
	return publishOption(func(p *publishing) { p.consumers = append(p.consumers, consumers...) })
}

type publishKey struct{}

// publishOption is an option of this package among those of any consumer.
func publishOption(set func(*publishing)) bus.ConsumerOption {
	return func(c *bus.ConsumerConfig) {
		p, ok := c.Value(publishKey{}).(*publishing)
		if !ok {
			p = &publishing{contentType: cloudevents.JSON, timeout: publishTimeout, circuit: new(outbox.Circuit)}
			c.SetValue(publishKey{}, p)
		}
		set(p)
	}
}

// publishing is a relay to a broker. It does not change but for what is behind pointers.
type publishing struct {
	name         string
	pub          broker.Publisher
	source       string
	structured   bool
	contentType  string
	timeout      time.Duration
	circuit      *outbox.Circuit
	consumers    []string
	routes       map[string]*route // by stored names
	inOrder      []*route
	payloadTypes []string // the same names, in their order
	mistakes     []string
	missing      *missing
	shardCount   int  // of a log relay
	park         bool // so does a log relay with what cannot be published
}

// newPublishing reads the options of this package, and returns those of others beside it.
func newPublishing(name string, pub broker.Publisher, options []bus.ConsumerOption) (p *publishing, config bus.ConsumerConfig) {
	publishOption(func(*publishing) {})(&config)
	for _, option := range options {
		if option != nil { // which the consumer reports
			option(&config)
		}
	}
	p = config.Value(publishKey{}).(*publishing)
	p.name, p.pub, p.missing = name, pub, new(missing)
	p.check()
	if r, ok := pub.(broker.ReconnectNotifier); ok && p.circuit != nil {
		r.OnReconnect(p.circuit.Reset)
	}
	if p.timeout <= 0 || p.timeout > maxTimeout {
		p.timeout = publishTimeout // it is refused
	}
	return p, config
}

func (p *publishing) check() {
	if p.pub == nil {
		p.mistake("the publisher is nil")
	}
	if _, err := url.Parse(p.source); p.source == "" || err != nil || printable(p.source) != p.source {
		p.mistake("source %q: a URI reference is allowed, give one with relay.Source", p.source)
	}
	if p.timeout <= 0 || p.timeout > maxTimeout {
		p.mistake("PublishTimeout %s: more than 0 and up to %s is allowed", p.timeout, maxTimeout)
	}
	if p.contentType == "" || printable(p.contentType) != p.contentType {
		p.mistake("ContentType %q: a media type is allowed", p.contentType)
	}
	if len(p.routes) == 0 {
		p.mistake("it publishes nothing: give it a relay.Route")
	}
	for _, consumer := range p.consumers {
		if consumer == "" {
			p.mistake("For: a name is empty")
		}
	}
}

func (p *publishing) mistake(format string, args ...any) {
	p.mistakes = append(p.mistakes, fmt.Sprintf("relay: "+format, args...))
}

// refuse is the option that reports what is wrong with the others.
func (p *publishing) refuse(c *bus.ConsumerConfig) {
	for _, text := range p.mistakes {
		c.Mistake(text)
	}
}

// consume publishes a batch, and says of each message what becomes of it.
func (p *publishing) consume(ctx context.Context, batch []*bus.Message) error {
	failed := make(bus.BatchError)
	records, places := make([]broker.Record, 0, len(batch)), make([]int, 0, len(batch))
	codec := bus.CodecFromContext(ctx)
	for i, m := range batch {
		record, err := p.record(codec, m)
		if err != nil {
			failed[i] = err
			continue
		}
		records, places = append(records, record), append(places, i)
	}
	if len(records) > 0 {
		for i, err := range p.publish(ctx, records) {
			if err != nil {
				failed[places[i]] = err
			}
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return failed
}

var errTimeout = fmt.Errorf("relay: a call took longer than its timeout: %w", context.DeadlineExceeded)

// publish returns an outcome for each record. What is for a destination that does not answer waits, and does not hold up the others.
func (p *publishing) publish(ctx context.Context, records []broker.Record) []error {
	_, _, probes := p.circuit.Tripped()
	if !probes {
		p.missing.opened()
	}
	outcomes := make([]error, len(records))
	sent, places := make([]broker.Record, 0, len(records)), make([]int, 0, len(records))
	for i, record := range records {
		if wait, held := p.missing.holds(record, p.timeout); held && !probes {
			outcomes[i] = p.snoozed(record, wait, fmt.Errorf("relay: destination %q does not answer: %w", record.Destination, broker.ErrUnavailable))
			continue
		}
		sent, places = append(sent, record), append(places, i)
	}
	if len(sent) == 0 {
		outage.Pause(ctx, p.missing.pace(p.timeout/2))
		return outcomes
	}
	results := p.call(ctx, sent)
	if cause := context.Cause(ctx); cause == nil || errors.Is(cause, bus.ErrTimeout) { // else who is cut off says nothing of the broker
		p.missing.note(sent, results)
	}
	answered := true
	for i, err := range results {
		var away bool
		outcomes[places[i]], away = p.outcome(ctx, sent[i], err)
		answered = answered && !away
	}
	if probes && answered && ctx.Err() == nil {
		p.circuit.Reset() // also when it did not take the record that probed
	}
	return outcomes
}

// call has the publisher publish, and returns a result for each record.
func (p *publishing) call(ctx context.Context, records []broker.Record) []error {
	calling, cancel := context.WithTimeoutCause(ctx, p.timeout, errTimeout)
	defer cancel()
	// A publisher may ignore its context, and be given up: it is not known then for which
	// destination.
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), bus.ErrTimeout) {
			_ = p.circuit.Trip(errTimeout)
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

// outcome says what becomes of a message, and whether there was no answer.
func (p *publishing) outcome(ctx context.Context, record broker.Record, err error) (outcome error, away bool) {
	switch cause := context.Cause(ctx); {
	case err == nil:
		return nil, false
	case errors.Is(err, broker.ErrRejected):
		return bus.Permanent(err), false
	case errors.Is(err, broker.ErrNoDestination):
		return p.snoozed(record, p.missing.wait(record), err), false
	case cause != nil && !errors.Is(cause, bus.ErrTimeout): // the processor stops, or that was requested
		return err, true
	case errors.Is(err, broker.ErrDisconnected):
		p.missing.disconnected()
		return p.circuit.Trip(err), true
	case isSilence(err):
		return p.unanswered(record, err), true
	}
	return err, false
}

// unanswered decides what becomes of a message to which there was no answer. If the broker itself
// is away, as far as its destinations tell, the circuit opens; with one destination nothing is
// written then, and with several the message makes room for others to probe.
func (p *publishing) unanswered(record broker.Record, err error) error {
	destinations, others := p.destinations()
	if others || !p.missing.silentAll(destinations) {
		return p.snoozed(record, p.missing.wait(record), err)
	}
	released := p.circuit.Trip(err)
	if len(destinations) == 1 {
		return released
	}
	return p.snoozed(record, p.missing.wait(record), err)
}

// destinations are those that are known beforehand. There may be others.
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

// snoozed has a message wait for its destination.
func (p *publishing) snoozed(record broker.Record, wait time.Duration, err error) error {
	return &bus.OutcomeError{Outcome: bus.Snoozed, Delay: wait, Err: p.missing.told(record, err)}
}

// payloadName is the stored name of a payload type. It is empty for a type that is not allowed.
func payloadName[T bus.Payload]() (string, reflect.Type) {
	return bus.Declare[T]("relay").PayloadType(), reflect.TypeFor[T]()
}
