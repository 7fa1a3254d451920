package relay

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/cloudevents"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

const (
	defaultRetention  = 7 * 24 * time.Hour
	leastRetention    = time.Minute
	mostRetention     = 10 * 365 * 24 * time.Hour
	defaultMaxBacklog = 100_000
)

// Receiver takes records from a subscription and makes messages of them. [Receive] makes one,
// and a [Runner] runs it. Its [Receiver.Consumer] is to be registered with the others. It is a
// value that never changes.
type Receiver struct{ receiving *receiving }

// Receive describes what to take from a subscription: events of the types that it is made to
// [Accept]. Others are acknowledged and counted, since a topic may be shared, unless another instance of the
// receiver accepts them: this one is of an older release then. It gives such a batch back and leaves the subscription
// to the others for 30 s at a time, until it is replaced, or for 3 min after the last of those has stopped.
//
// What is accepted becomes messages of the consumers that are registered for the payload, or
// of those that the record is [Recipients]. They have the id of the event, if that is a UUID, and else
// one made of the event's source and id, which is the same whenever it comes again. Keys,
// headers and the trace go with them.
//
// A record that cannot be taken, since it is unreadable, has no id, or is no text, is parked:
// Receiver.Consumer gets it as a message, and has it poisoned. To requeue it tries once more.
//
// The name, of at most 247 bytes, is stored with what was received: under another name
// everything that the broker still has is new. sub is used by one goroutine.
func Receive(name string, sub broker.Subscriber, options ...ReceiveOption) Receiver {
	r := &receiving{name: name, sub: sub, retention: defaultRetention, maxBacklog: defaultMaxBacklog, types: make(map[string]string)}
	if sub == nil {
		r.mistake("the subscriber is nil")
	}
	for i, option := range options {
		if option == nil {
			r.mistake("option %d is nil", i)
			continue
		}
		option(r)
	}
	if len(r.payloadTypes) == 0 {
		r.mistake("it accepts nothing: give it a relay.Accept")
	}
	if r.retention < leastRetention || r.retention > mostRetention {
		r.mistake("Retention %s: %s to %s is allowed", r.retention, leastRetention, mostRetention)
	}
	if r.shared && !r.intoLog {
		r.mistake("Shared means nothing without AppendToLog")
	}
	if r.maxBacklog < 1 {
		r.mistake("MaxBacklog %d: 1 or more is allowed", r.maxBacklog)
	}
	if w, ok := sub.(broker.OutageNotifier); ok {
		w.OnOutage(r.brokerAnswers)
	}
	r.consumer = bus.ConsumeRaw(r.consumerName(), r.retake, []string{parkedType})
	return Receiver{r}
}

// ReceiveOption sets one thing about a [Receiver].
type ReceiveOption func(*receiving)

// Accept takes events whose type is the payload's stored name, or one of the others. Give one
// for each payload type.
func Accept[T bus.Payload](names ...string) ReceiveOption {
	return func(r *receiving) {
		payloadType, goType := payloadName[T]()
		if payloadType == "" {
			r.mistake("Accept of %s: a struct with a stored name is allowed", goType)
			return
		}
		for _, name := range append([]string{payloadType}, names...) {
			if err := limits.CheckName(name); err != nil { // it is stored
				r.mistake("Accept of %s: type: %v", goType, err)
			}
			if _, taken := r.types[name]; taken {
				r.mistake("Accept of %s: type %q is accepted already", goType, name)
			}
			r.types[name] = payloadType
		}
		r.payloadTypes = append(r.payloadTypes, payloadType)
	}
}

// DeduplicationWindow is for how long what was received is remembered: 1 min to 10 years. A record that
// is delivered again after that is taken as new. Defaults to 7 days.
func DeduplicationWindow(d time.Duration) ReceiveOption {
	return func(r *receiving) { r.retention = d }
}

// MaxBacklog is how many messages may wait for the consumers of the accepted payloads. While
// there are more, nothing is fetched. Defaults to 100,000.
func MaxBacklog(n int) ReceiveOption {
	return func(r *receiving) { r.maxBacklog = n }
}

// MarkAsReplay marks what arrives as delivered again on request, see bus.Message: middleware.SkipOnReplay
// then guards consumers whose effects must not happen twice. It is for a receiver under another
// name, which has an inbox of its own and so takes everything as new. From where on there is
// something to take is the subscriber's setting at its broker: of JetStream the DeliverPolicy of a
// new consumer, of Kafka the offsets of a new group.
//
// With [AppendToLog] the messages of consumers of the events are marked; to projections they are events
// like others. Defaults to what arrives being live.
func MarkAsReplay() ReceiveOption {
	return func(r *receiving) { r.replay = true }
}

// MapRecord has fn make events of records in another format: what it returns has the attributes of
// CloudEvents, among them specversion, id, source and type. A record for which it returns an
// error is parked. One for which it does not return within 5 s goes back to the broker with its batch, and comes
// again. fn must not change the record's maps.
func MapRecord(fn func(broker.Record) (broker.Record, error)) ReceiveOption {
	return func(r *receiving) {
		if r.mapping = fn; fn == nil {
			r.mistake("Map: the function is nil")
		}
	}
}

// receiving is what a Receiver stands for.
type receiving struct {
	name         string
	sub          broker.Subscriber
	types        map[string]string // payload types, by the type of an event
	payloadTypes []string
	retention    time.Duration
	maxBacklog   int
	mapping      func(broker.Record) (broker.Record, error)
	intoLog      bool
	shared       bool // into a log, but by several processes at once
	replay       bool
	category     string // of streams in the log
	consumer     bus.Consumer
	mistakes     []error
	runs         running
}

func (r *receiving) mistake(format string, args ...any) {
	r.mistakes = append(r.mistakes, fmt.Errorf("relay: receiver %q: "+format, append([]any{r.name}, args...)...))
}

// consumerName is under which name parked records are poisoned.
func (r *receiving) consumerName() string { return "receive:" + r.name }

// Name returns the name of the receiver.
func (r Receiver) Name() string {
	if r.receiving == nil {
		return ""
	}
	return r.receiving.name
}

// Consumer returns the consumer of parked records, "receive:" and the name. Register it in the
// program that runs the receiver: [NewRunner] refuses a receiver without it. fxmodule.Relays
// does so by itself.
func (r Receiver) Consumer() bus.Consumer {
	if r.receiving == nil {
		return bus.Consumer{}
	}
	return r.receiving.consumer
}

// consumers are the names of those whose messages count as its backlog.
func (r *receiving) consumers(registry *bus.Registry) (names []string) {
	for _, payloadType := range r.payloadTypes {
		for _, c := range registry.ConsumersOf(payloadType) {
			if !slices.Contains(names, c.Name()) {
				names = append(names, c.Name())
			}
		}
	}
	return names
}

// Debezium reads what Debezium's outbox event router writes: the id of an event is in the header
// id, and its type in the header eventType, which the router is told to place there. The topic
// stands for the source. A payload that is a JSON string, or stands beside its schema, is taken
// out of that.
func Debezium() ReceiveOption { return MapRecord(debezium) }

func debezium(record broker.Record) (broker.Record, error) {
	if record.Attributes["specversion"] != "" {
		return record, nil
	}
	switch {
	case record.Headers["eventType"] != "": // what else is missing counts if the type is accepted
	case record.Body == nil: // a tombstone, which the router writes behind a deleted row
		return broker.Record{}, errNoEvent
	default:
		return broker.Record{}, errors.New("header eventType is missing")
	}
	headers := make(map[string]string, len(record.Headers))
	for name, value := range record.Headers {
		if name != "id" && name != "eventType" {
			headers[name] = value
		}
	}
	mapped := record
	mapped.Headers, mapped.ContentType = headers, cloudevents.JSON
	mapped.Attributes = map[string]string{"specversion": cloudevents.SpecVersion, "id": record.Headers["id"], "type": record.Headers["eventType"],
		"source": "/debezium/" + url.PathEscape(record.Destination)}
	mapped.Body = unwrapped(record.Body)
	return mapped, nil
}
