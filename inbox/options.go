package inbox

import (
	"reflect"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

// Option configures a [Receiver]. This package's functions make all of them.
type Option func(*receiver)

// Accept accepts events whose type is the payload's stored name or one of names. Each payload type
// needs an Accept of its own.
func Accept[T bus.Payload](names ...string) Option {
	declared := bus.Declare[T]("inbox")
	return func(r *receiver) {
		payloadType := declared.PayloadType()
		if payloadType == "" {
			r.mistake("Accept of %T: a struct with a stored name is allowed", *new(T))
			return
		}
		for _, name := range append([]string{payloadType}, names...) {
			if err := limits.CheckName(name); err != nil { // it is stored
				r.mistake("Accept of %T: type: %v", *new(T), err)
			}
			if _, taken := r.types[name]; taken {
				r.mistake("Accept of %T: type %q is accepted already", *new(T), name)
			}
			r.types[name] = payloadType
		}
		r.payloadTypes = append(r.payloadTypes, payloadType)
		r.upcasters[payloadType], r.goTypes[payloadType] = access.Upcasters(*new(T)), reflect.TypeFor[T]()
	}
}

// DeduplicationWindow is how long the inbox keeps a record: 1 min to 10 years. A record that is
// redelivered later is accepted as new. Defaults to 7 days.
func DeduplicationWindow(d time.Duration) Option {
	return func(r *receiver) { r.window = d }
}

// MaxBacklog is how many messages of the accepted payloads' consumers may be pending: 1 or more.
// While there are more, nothing is fetched. Defaults to 100,000.
func MaxBacklog(n int) Option {
	return func(r *receiver) { r.maxBacklog = n }
}

// MarkAsReplay marks received messages as delivered again on request: see bus.Message. Then
// middleware.SkipOnReplay protects consumers whose effects must not happen twice. Use it for a
// receiver with a new name, whose inbox is empty, so that it accepts everything as new. The
// broker's subscription setting decides where it starts: the DeliverPolicy of a new JetStream
// consumer, or the offsets of a new Kafka group.
//
// With [AppendToLog], messages of the events' consumers are marked; projections see ordinary
// events. By default received messages are live.
func MarkAsReplay() Option {
	return func(r *receiver) { r.replay = true }
}

// MapRecord converts records of another format: fn returns a record with CloudEvents attributes,
// among them specversion, id, source and type. A record for which fn returns an error is parked. If
// the returned record has neither attributes nor body, the record is acknowledged and ignored. If
// fn does not return within 5 s, the batch is returned to the broker and redelivered; the second
// time the record is parked. While four such calls still run, the receiver accepts no batch; while
// four calls for parked records still run, parked records are snoozed. fn must not change the
// record's maps.
func MapRecord(fn func(broker.Record) (broker.Record, error)) Option {
	return func(r *receiver) {
		r.mapping = fn
		if fn == nil {
			r.mistake("MapRecord: the function is nil")
		}
	}
}

// AppendToLog appends accepted records to the event log (see [RunnerConfig]) instead of sending
// them to consumers. Each is appended once, in the order of arrival, in the transaction that adds
// it to the inbox. Projections and consumers of the events process them from there. The stream is
// the category, a hyphen and the record's key: with AppendToLog("bank"), account-1 becomes
// bank-account-1. Events keep their id and headers. A payload with an older schema is upcast. A payload
// without a schema is read as the newest one or, if its type has a method Upcasters, as schema 1. An
// event whose upcaster returns bus.Discard is obsolete: it is acknowledged and not appended. If an
// upcaster does not return within 5 s, the batch comes again; the second time the event is parked.
//
// A record of relay.NewLogForwarder for an erased stream erases the stream here; later records of
// it are skipped. An event that has no key or cannot be appended is parked without blocking later
// events; once requeued, it is appended after them. Each stream has the order in which the broker
// delivers it: see docs/brokers for the brokers' settings. Nothing else should append to these
// streams.
//
// One of the processes that run the receiver subscribes and the others stand by, because most
// brokers keep no order with two subscribers. If the process stops, another replaces it within a
// second; if it is killed, within 10 s.
//
// On MariaDB, which has no event log, NewRunner returns errors.ErrUnsupported.
func AppendToLog(category string) Option { return appendToLog("AppendToLog", category, false) }

// AppendPartitionsToLog is [AppendToLog] for brokers that distribute partitions and keep the order
// in each: Kafka. All processes that run the receiver subscribe at once.
func AppendPartitionsToLog(category string) Option {
	return appendToLog("AppendPartitionsToLog", category, true)
}

func appendToLog(name, category string, concurrent bool) Option {
	return func(r *receiver) {
		if category == "" || strings.Contains(category, "-") {
			r.mistake("%s(%q): a category without \"-\" is allowed", name, category)
		}
		if r.appends {
			r.mistake("%s: the receiver already appends to the log", name)
		}
		r.appends, r.category, r.concurrent = true, category, concurrent
		if _, accepted := r.types[tombstone]; !accepted {
			r.types[tombstone] = tombstone
		}
	}
}
