package bus

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

// Registry knows every consumer of an application, the codec and the tables.
// It is built once, never changes, and is safe for concurrent use.
type Registry struct {
	consumers []Consumer
	byName    map[string]Consumer   // by name and alias
	byPayload map[string][]Consumer // by payload type and payload alias
	tables    Tables
	codec     Codec
	events    eventTypes
	keyed     bool // a consumer goes by keys
	reports   time.Duration
	version   string
	wakeups   *wakeup.Hub
}

// defaultReportEvery is that of [RegistryConfig].
const defaultReportEvery = 15 * time.Second

// RegistryConfig is what a Registry may be told beyond its consumers. The zero
// value works.
type RegistryConfig struct {
	// Tables says where the library's tables live. Defaults to the
	// connection's default schema and plain names.
	Tables Tables
	// Codec encodes payloads. Defaults to JSON.
	Codec Codec
	// Events is the *eventlog.Types with the payloads that are recorded in the event
	// log. Defaults to none.
	Events eventTypes
	// HeartbeatInterval is how often each Run of this program writes to the database that it is
	// alive and what has become of messages, ±20 %. Only people read it: nothing of the library
	// depends on it. Negative: never. Defaults to 15 s.
	HeartbeatInterval time.Duration
	// AppVersion is the release of this program, such as "v1.8.0". It is shown beside what the
	// program does: which release met a failure first, which process runs which release. At most
	// 255 bytes are kept. Defaults to the version of the main module, or else the revision that it
	// was built from; a build without a repository beside it, as in a container, has neither.
	AppVersion string
}

// NewRegistry registers the consumers with the default configuration. The
// error joins every wiring mistake found, not just the first. A registry
// without consumers is fine: it belongs to an application that runs none.
func NewRegistry(consumers ...Consumer) (*Registry, error) {
	return RegistryConfig{}.NewRegistry(consumers...)
}

// NewRegistry registers the consumers; see the function [NewRegistry].
func (c RegistryConfig) NewRegistry(consumers ...Consumer) (*Registry, error) {
	r := &Registry{
		byName:    make(map[string]Consumer),
		byPayload: make(map[string][]Consumer),
		tables:    c.Tables,
		codec:     cmp.Or[Codec](c.Codec, JSON{}),
		events:    c.Events,
		reports:   cmp.Or(c.HeartbeatInterval, defaultReportEvery),
		version:   c.AppVersion,
		wakeups:   new(wakeup.Hub),
	}
	mistakes := []error{c.Tables.Validate()}
	var declared []Consumer
	for _, consumer := range consumers {
		if consumer.declared {
			declared = append(declared, consumer)
			continue
		}
		consumer, err := r.adopt(consumer)
		mistakes = append(append(mistakes, err), r.add(consumer)...)
	}
	for _, consumer := range declared {
		mistakes = append(mistakes, r.declare(consumer)...)
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	slices.SortFunc(r.consumers, func(a, b Consumer) int { return strings.Compare(a.name, b.name) })
	return r, nil
}

func (r *Registry) add(c Consumer) (mistakes []error) {
	if c.consume == nil {
		return []error{errors.New("bus: a Consumer must be made by bus.Consume or outbox.ConsumeTx, not as a zero value")}
	}
	mistakes = slices.Clone(c.mistakes)
	for _, name := range c.Names() {
		if limits.CheckName(name) != nil {
			continue // reported already
		}
		switch other, taken := r.byName[name]; {
		case !taken:
			r.byName[name] = c
		case other.name == c.name && name == c.name:
			mistakes = append(mistakes, fmt.Errorf("bus: consumer %q is registered twice", name))
		default:
			mistakes = append(mistakes, fmt.Errorf("bus: consumer %q: the name %q is taken by consumer %q (%s)", c.name, name, other.name, other.payloadType))
		}
	}
	for i, payloadType := range c.PayloadTypes() {
		if limits.CheckName(payloadType) != nil {
			continue
		}
		if slices.Contains(c.PayloadTypes()[:i], payloadType) {
			mistakes = append(mistakes, fmt.Errorf("bus: consumer %q: payload type %q is listed twice", c.name, payloadType))
			continue
		}
		mistakes = append(mistakes, r.subscribe(payloadType, c)...)
	}
	r.consumers = append(r.consumers, c)
	return mistakes
}

// subscribe has the consumer get payloads of that type.
func (r *Registry) subscribe(payloadType string, c Consumer) (mistakes []error) {
	if other, ok := r.typed(payloadType); ok && c.goType != nil && other.goType != c.goType {
		mistakes = append(mistakes, fmt.Errorf("bus: consumer %q: payload type %q is %s here and %s for consumer %q",
			c.name, payloadType, fullName(c.goType), fullName(other.goType), other.name))
	}
	r.byPayload[payloadType] = append(r.byPayload[payloadType], c)
	r.keyed = r.keyed || c.Keyed()
	return mistakes
}

// declare adds a consumer of another program, unless this one has it.
func (r *Registry) declare(c Consumer) []error {
	if len(c.mistakes) > 0 {
		return c.mistakes
	}
	if own, ok := r.byName[c.name]; ok {
		if !slices.Contains(own.PayloadTypes(), c.payloadType) {
			return []error{fmt.Errorf("bus: consumer %q is declared with payload type %q, and takes %q here", c.name, c.payloadType, own.PayloadTypes())}
		}
		return nil
	}
	if slices.ContainsFunc(r.byPayload[c.payloadType], func(other Consumer) bool { return other.name == c.name }) {
		return nil // it has been declared
	}
	return r.subscribe(c.payloadType, c)
}

// typed returns a consumer that decodes the payload type, if there is one.
func (r *Registry) typed(payloadType string) (Consumer, bool) {
	consumers := r.byPayload[payloadType]
	i := slices.IndexFunc(consumers, func(c Consumer) bool { return c.goType != nil })
	if i < 0 {
		return Consumer{}, false
	}
	return consumers[i], true
}

// fullName distinguishes types of the same name in different packages.
func fullName(t reflect.Type) string { return t.PkgPath() + "." + t.Name() }

// Consumers returns every consumer that this program runs, sorted by name.
func (r *Registry) Consumers() []Consumer { return slices.Clone(r.consumers) }

// Consumer returns the consumer of that name or former name.
func (r *Registry) Consumer(name string) (Consumer, bool) {
	c, ok := r.byName[name]
	return c, ok
}

// ConsumersOf returns the consumers of a payload type, those that are only declared included. It
// returns nil for a payload type without consumers. The slice is shared: do not modify it.
func (r *Registry) ConsumersOf(payloadType string) []Consumer { return r.byPayload[payloadType] }

// PayloadTypes returns every payload type that has a consumer, aliases included, sorted.
func (r *Registry) PayloadTypes() []string {
	return slices.Sorted(maps.Keys(r.byPayload))
}

// Tables returns where the library's tables live.
func (r *Registry) Tables() Tables { return r.tables }

// AppVersion returns the release that the program has given itself, or nothing.
func (r *Registry) AppVersion() string { return r.version }

// HeartbeatInterval returns how often each Run reports; less than 0 is never.
func (r *Registry) HeartbeatInterval() time.Duration { return r.reports }

// Codec returns the codec for payloads.
func (r *Registry) Codec() Codec { return r.codec }

// Events returns the payloads that are recorded in the event log, or nil.
func (r *Registry) Events() eventTypes { return r.events }

// NotifyCommitted wakes the processors of this process, and those of others where a notifier runs:
// messages of these payload types were committed, or some of any type. Call it after a
// transaction of your own in which messages were produced; outbox.Producer.RunInTx does so
// by itself.
func (r *Registry) NotifyCommitted(payloadTypes ...string) {
	r.wakeups.Send(wakeup.Wake{PayloadTypes: payloadTypes})
}

// Wakeups is for the library's own packages.
func (r *Registry) Wakeups() *wakeup.Hub { return r.wakeups }
