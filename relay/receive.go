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

// Receiver turns records of a subscription into messages. [Receive] makes one, and a [Runner] runs
// it. Register its [Receiver.Consumer] with the other consumers. It is immutable.
type Receiver struct{ receiving *receiving }

// Receive describes a subscription: it accepts events of the types given by [Accept]. Because a
// topic may be shared, other events are acknowledged and counted, unless another instance of the
// receiver accepts them. Then this instance is of an older release. It returns the batch and
// leaves the subscription to the others for 30 s at a time, until it is replaced, or until 3 min
// after the last of them has stopped.
//
// Accepted records become messages of the consumers registered for the payload, or of the record's
// [Recipients]. A message's id is the event's id if that is a UUID; otherwise it is derived from
// the event's source and id, so that it is the same on redelivery. Keys, headers and the trace are
// kept.
//
// A record that is unreadable, has no id, or is not text is parked: Receiver.Consumer gets it as a
// message and poisons it. Requeueing it tries once more.
//
// The name, of at most 247 bytes, is stored in the inbox: under another name everything that the
// broker still has is new. One goroutine uses sub.
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

// ReceiveOption configures a [Receiver].
type ReceiveOption func(*receiving)

// Accept accepts events whose type is the payload's stored name, or one of the other names. Give
// one for each payload type.
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

// DeduplicationWindow is how long the inbox keeps a record: 1 min to 10 years. A record that is
// redelivered later is accepted as new. Defaults to 7 days.
func DeduplicationWindow(d time.Duration) ReceiveOption {
	return func(r *receiving) { r.retention = d }
}

// MaxBacklog is how many messages of the accepted payloads' consumers may be pending. While there
// are more, nothing is fetched. Defaults to 100,000.
func MaxBacklog(n int) ReceiveOption {
	return func(r *receiving) { r.maxBacklog = n }
}

// MarkAsReplay marks received messages as delivered again on request: see bus.Message. Then
// middleware.SkipOnReplay protects consumers whose effects must not happen twice. Use it for a
// receiver with a new name, whose inbox is empty, so that it accepts everything as new. The
// broker's subscription setting decides where it starts: the DeliverPolicy of a new JetStream
// consumer, or the offsets of a new Kafka group.
//
// With [AppendToLog], messages of the events' consumers are marked; projections see ordinary
// events. By default received messages are live.
func MarkAsReplay() ReceiveOption {
	return func(r *receiving) { r.replay = true }
}

// MapRecord converts records of another format: fn returns a record with CloudEvents attributes,
// among them specversion, id, source and type. A record for which fn returns an error is parked.
// If fn does not return within 5 s, the batch is returned to the broker and redelivered. fn must
// not change the record's maps.
func MapRecord(fn func(broker.Record) (broker.Record, error)) ReceiveOption {
	return func(r *receiving) {
		if r.mapping = fn; fn == nil {
			r.mistake("Map: the function is nil")
		}
	}
}

// receiving implements a Receiver.
type receiving struct {
	name         string
	sub          broker.Subscriber
	types        map[string]string // payload types by event type
	payloadTypes []string
	retention    time.Duration
	maxBacklog   int
	mapping      func(broker.Record) (broker.Record, error)
	intoLog      bool
	shared       bool // several processes append to the log at once
	replay       bool
	category     string // of streams in the log
	consumer     bus.Consumer
	mistakes     []error
	runs         running
}

func (r *receiving) mistake(format string, args ...any) {
	r.mistakes = append(r.mistakes, fmt.Errorf("relay: receiver %q: "+format, append([]any{r.name}, args...)...))
}

// consumerName is the name of the consumer that poisons parked records.
func (r *receiving) consumerName() string { return "receive:" + r.name }

// Name returns the name of the receiver.
func (r Receiver) Name() string {
	if r.receiving == nil {
		return ""
	}
	return r.receiving.name
}

// Consumer returns the consumer of parked records, named "receive:" and the receiver's name.
// Register it in the program that runs the receiver: [NewRunner] rejects a receiver without it.
// fxmodule.Relays registers it automatically.
func (r Receiver) Consumer() bus.Consumer {
	if r.receiving == nil {
		return bus.Consumer{}
	}
	return r.receiving.consumer
}

// consumers are the names of the consumers whose messages count as the backlog.
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

// Debezium reads records of Debezium's outbox event router: the event's id is in the header id and
// its type in the header eventType. Configure the router to write that header. The topic is used
// as the source. A payload that is a JSON string, or is next to its schema, is unwrapped.
func Debezium() ReceiveOption { return MapRecord(debezium) }

func debezium(record broker.Record) (broker.Record, error) {
	if record.Attributes["specversion"] != "" {
		return record, nil
	}
	switch {
	case record.Headers["eventType"] != "": // other headers matter only if the type is accepted
	case record.Body == nil: // the router writes a tombstone after a deleted row
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
