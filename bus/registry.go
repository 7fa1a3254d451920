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

	"github.com/uptrace/bun/schema"

	"github.com/asyncmonolith/asyncmonolith-go/internal/handoff"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

// Registry holds every consumer of an application, the codec and the tables. It is immutable and
// safe for concurrent use.
type Registry struct {
	consumers []Consumer
	byName    map[string]Consumer   // by name and alias
	byPayload map[string][]Consumer // by payload type and payload alias
	tables    Tables
	codec     Codec
	events    EventTypes
	dialect   schema.Dialect // nil: unknown
	keyed     bool           // a consumer uses keys
	reports   time.Duration
	version   string
	wakeups   *wakeup.Hub
	handOffs  *handoff.Hub
}

// defaultReportEvery is the default HeartbeatInterval.
const defaultReportEvery = 15 * time.Second

// RegistryConfig configures a Registry beyond its consumers. The zero value works.
type RegistryConfig struct {
	// Tables is where the library's tables are. Defaults to the connection's default schema and
	// plain names.
	Tables Tables
	// Codec encodes payloads. Defaults to JSON.
	Codec Codec
	// Events is the *eventlog.Types of the payloads that are recorded in the event log. Defaults
	// to none.
	Events EventTypes
	// Dialect is the dialect of transactions that are not Bun's, such as pgdialect.New() or
	// db.Dialect() of a *bun.DB: see Handle. Defaults to none, and with fxmodule to that of the
	// *bun.DB.
	Dialect schema.Dialect
	// HeartbeatInterval is how often each Run of this program writes its heartbeat and message
	// statistics to the database, ±20 %. Operators see them, and take former names of consumers from
	// them. Defaults to 15 s.
	HeartbeatInterval time.Duration
	// AppVersion is the release of this program, such as "v1.8.0". Operators see which process
	// runs which release, and which release first met a failure. At most 255 bytes are kept.
	// Defaults to the main module's version, or the revision it was built from. A build without a
	// repository, as in a container, has neither.
	AppVersion string
}

// NewRegistry registers the consumers with the default configuration. The error joins all mistakes,
// not just the first: option values that are not allowed, names that two consumers share, and
// payload types with two Go types. A program that only produces messages may have no consumers.
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
		dialect:   c.Dialect,
		reports:   cmp.Or(c.HeartbeatInterval, defaultReportEvery),
		version:   c.AppVersion,
		wakeups:   new(wakeup.Hub),
		handOffs:  new(handoff.Hub),
	}
	mistakes := []error{c.Tables.validate()}
	if c.HeartbeatInterval < 0 {
		mistakes = append(mistakes, fmt.Errorf(
			"bus: RegistryConfig.HeartbeatInterval %s: only positive durations are allowed", c.HeartbeatInterval,
		))
	}
	if v := reflect.ValueOf(c.Dialect); v.Kind() == reflect.Pointer && v.IsNil() {
		mistakes = append(mistakes, fmt.Errorf("bus: RegistryConfig.Dialect is a nil %T", c.Dialect))
	}
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
	for _, name := range c.names() {
		if limits.CheckName(name) != nil {
			continue // reported already
		}
		switch other, taken := r.byName[name]; {
		case !taken:
			r.byName[name] = c
		case other.name == c.name && name == c.name:
			mistakes = append(mistakes, fmt.Errorf("bus: consumer %q is registered twice", name))
		default:
			mistakes = append(mistakes,
				fmt.Errorf("bus: consumer %q: the name %q is taken by consumer %q (%s)", c.name, name, other.name, other.payloadType))
		}
	}
	for i, payloadType := range c.payloadTypes() {
		if limits.CheckName(payloadType) != nil {
			continue
		}
		if slices.Contains(c.payloadTypes()[:i], payloadType) {
			mistakes = append(mistakes, fmt.Errorf("bus: consumer %q: payload type %q is listed twice", c.name, payloadType))
			continue
		}
		mistakes = append(mistakes, r.subscribe(payloadType, c)...)
	}
	r.consumers = append(r.consumers, c)
	return mistakes
}

func (r *Registry) subscribe(payloadType string, c Consumer) (mistakes []error) {
	if other, ok := r.typed(payloadType); ok && c.goType != nil && other.goType != c.goType {
		mistakes = append(mistakes, fmt.Errorf("bus: consumer %q: payload type %q is %s here and %s for consumer %q",
			c.name, payloadType, fullName(c.goType), fullName(other.goType), other.name))
	}
	r.byPayload[payloadType] = append(r.byPayload[payloadType], c)
	r.keyed = r.keyed || c.keyed()
	return mistakes
}

// declare adds another program's consumer, unless this program has it.
func (r *Registry) declare(c Consumer) []error {
	if len(c.mistakes) > 0 {
		return c.mistakes
	}
	if own, ok := r.byName[c.name]; ok {
		if !slices.Contains(own.payloadTypes(), c.payloadType) {
			return []error{
				fmt.Errorf("bus: consumer %q is declared with payload type %q, but registered here with %q", c.name, c.payloadType, own.payloadTypes()),
			}
		}
		return nil
	}
	if slices.ContainsFunc(r.byPayload[c.payloadType], func(other Consumer) bool { return other.name == c.name }) {
		return nil // already declared
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

// Consumer returns the consumer that this program runs under a current or former name, and whether
// there is one.
func (r *Registry) Consumer(name string) (Consumer, bool) {
	c, ok := r.byName[name]
	return c, ok
}

// consumersOf returns the consumers of a payload type, by its current or a former name, including
// declared ones, or nil if there are none. The slice is shared: do not modify it.
func (r *Registry) consumersOf(payloadType string) []Consumer { return r.byPayload[payloadType] }

// payloadTypes returns every payload type that has a consumer, aliases included, sorted.
func (r *Registry) payloadTypes() []string {
	return slices.Sorted(maps.Keys(r.byPayload))
}

// schema returns the schema in which a message's payload is written.
func (r *Registry) schema(m *Message) int {
	if m.Schema != 0 {
		return m.Schema
	}
	if c, ok := r.typed(m.PayloadType); ok {
		return c.schemas.newest()
	}
	s, _ := schemasOf(m.Value)
	return s.newest()
}

// Tables returns where the library's tables are.
func (r *Registry) Tables() Tables { return r.tables }

// Codec returns the codec for payloads.
func (r *Registry) Codec() Codec { return r.codec }

// NotifyCommitted wakes the consumers of these payload types, or all if none is given: in this
// process, and in others if a notifier runs. Call it after the commit of your own transaction.
// outbox.Producer.RunInTx and outbox.Producer.Within do so themselves.
func (r *Registry) NotifyCommitted(payloadTypes ...string) {
	r.wakeups.Send(wakeup.Wake{PayloadTypes: payloadTypes})
}
