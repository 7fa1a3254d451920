package inbox

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/contract"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	defaultWindow     = 7 * 24 * time.Hour
	leastWindow       = time.Minute
	mostWindow        = 10 * 365 * 24 * time.Hour
	defaultMaxBacklog = 100_000
)

// tombstone is the event type that ends an erased stream. It is immutable.
var tombstone = eventlog.Tombstoned{}.PayloadType()

// Receiver turns records of a subscription into messages. [NewReceiver] makes one, and a [Runner]
// runs it. Register its [Receiver.Consumer] with the other consumers. It is immutable.
type Receiver struct{ receiver *receiver }

// NewReceiver makes a receiver of a subscription: it accepts events of the types given by [Accept].
// Other events are acknowledged and counted, because a topic may be shared. If another instance of
// the receiver accepts such a type, this instance has the older release: it returns the batch to
// the broker, pauses for 30 s and tries again. It acknowledges such events once the newer instances
// have been gone for 3 min.
//
// Accepted records become messages of the consumers registered for the payload, or of the consumers
// that the record names (see relay.Config.Recipients). A message's id is the event's id if that is
// a UUID; otherwise it is derived from the event's source and id, so that it is the same on
// redelivery. Keys, headers and the trace are kept.
//
// A record that is unreadable, has no id, is not text, or names a consumer that is not registered
// is parked: Receiver.Consumer gets it as a message and poisons it. Requeueing it tries once more.
//
// The name, of at most 247 bytes, is stored in the inbox. A receiver with a new name accepts every
// record the broker still has. sub is used by one goroutine at a time. [NewRunner] reports
// configuration errors.
func NewReceiver(name string, sub broker.Subscriber, options ...Option) Receiver {
	r := &receiver{name: name, sub: sub, window: defaultWindow, maxBacklog: defaultMaxBacklog, types: make(map[string]string),
		upcasters: make(map[string][]bus.Upcaster), goTypes: make(map[string]reflect.Type)}
	if name == "" {
		r.mistake("the name is empty: 1 to 247 bytes of text are allowed")
	}
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
		r.mistake("the receiver accepts no type: add an inbox.Accept")
	}
	if r.window < leastWindow || r.window > mostWindow {
		r.mistake("DeduplicationWindow %s: %s to %s is allowed", r.window, leastWindow, mostWindow)
	}
	if r.maxBacklog < 1 {
		r.mistake("MaxBacklog %d: 1 or more is allowed", r.maxBacklog)
	}
	if n, ok := sub.(broker.OutageNotifier); ok {
		n.OnOutage(func(err error) {
			if w := r.attached.Load(); w != nil { // otherwise it does not run here
				w.brokerAnswers(err)
			}
		})
	}
	r.consumer = bus.ConsumeRaw(r.consumerName(), r.retry, []string{parkedType}, contract.SetRelay(r.contract()),
		bus.BatchSize(1), bus.Concurrency(1), bus.Timeout(retryTimeout)) // in order within a process
	return Receiver{r}
}

// contract describes what is accepted.
func (r *receiver) contract() contract.Relay {
	c := contract.Relay{Receives: true}
	for _, name := range slices.Sorted(maps.Keys(r.types)) {
		if payloadType := r.types[name]; r.goTypes[payloadType] != nil {
			c.Routes = append(c.Routes, contract.NewRoute(contract.Route{Payload: payloadType, Type: name}, r.goTypes[payloadType], nil))
		}
	}
	return c
}

// receiver is a Receiver's configuration. Only its worker changes.
type receiver struct {
	name         string
	sub          broker.Subscriber
	types        map[string]string // payload types by event type
	payloadTypes []string
	upcasters    map[string][]bus.Upcaster // by payload type
	goTypes      map[string]reflect.Type   // alike
	window       time.Duration
	maxBacklog   int
	mapping      func(broker.Record) (broker.Record, error)
	appends      bool   // to the event log
	category     string // of streams in the log
	concurrent   bool   // several processes append to the log at once
	replay       bool
	consumer     bus.Consumer
	mistakes     []error

	attached atomic.Pointer[worker] // to the runner that it belongs to
}

func (r *receiver) mistake(format string, args ...any) {
	r.mistakes = append(r.mistakes, fmt.Errorf("inbox: receiver %q: "+format, append([]any{r.name}, args...)...))
}

// consumerName is the name of the consumer that poisons parked records.
func (r *receiver) consumerName() string { return "receive:" + r.name }

// exclusive reports whether one process at a time receives.
func (r *receiver) exclusive() bool { return r.appends && !r.concurrent }

func (r Receiver) name() string {
	if r.receiver == nil {
		return ""
	}
	return r.receiver.name
}

// Consumer returns the consumer of parked records, named "receive:" and the receiver's name.
// Register it in the program that runs the receiver: [NewRunner] rejects a receiver without it.
// fxmodule.Receivers registers it automatically.
func (r Receiver) Consumer() bus.Consumer {
	if r.receiver == nil {
		return bus.Consumer{}
	}
	return r.receiver.consumer
}

// consumers are the names of the consumers whose messages count as the backlog.
func (r *receiver) consumers(registry *bus.Registry) (names []string) {
	for _, payloadType := range r.payloadTypes {
		for _, c := range access.ConsumersOf(registry, payloadType) {
			if !slices.Contains(names, c.Name()) {
				names = append(names, c.Name())
			}
		}
	}
	return names
}

// check returns the receiver's own mistakes, and an error for each consumer missing in the
// registry.
func (r *receiver) check(registry *bus.Registry, s *store.Store, log *eventlog.Log) error {
	errs := slices.Clone(r.mistakes)
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("inbox: receiver %q: "+format, append([]any{r.name}, args...)...))
	}
	if c, ok := registry.Consumer(r.consumerName()); !ok || !access.Raw(c) {
		wrong("Receiver.Consumer is not in the registry: register it, too")
	}
	for _, payloadType := range r.payloadTypes {
		if !r.appends && len(access.ConsumersOf(registry, payloadType)) == 0 {
			wrong("accepts payload %q: %w", payloadType, bus.ErrNoConsumer)
		}
	}
	if r.appends {
		errs = append(errs, r.checkLog(s, log))
	}
	return errors.Join(errs...)
}

// checkLog returns an error if the receiver cannot append to the log.
func (r *receiver) checkLog(s *store.Store, log *eventlog.Log) error {
	err := s.Events()
	if err == nil && log == nil {
		err = errors.New("RunnerConfig.Log is nil: an event log is needed")
	}
	if err != nil {
		return fmt.Errorf("inbox: receiver %q: %w", r.name, err)
	}
	var errs []error
	for _, payloadType := range r.payloadTypes {
		if goType, _ := logaccess.Types(log).Lookup(payloadType); goType == nil {
			errs = append(errs, fmt.Errorf("inbox: receiver %q: %w", r.name, &eventlog.UnknownTypeError{Type: payloadType}))
		}
	}
	return errors.Join(errs...)
}
