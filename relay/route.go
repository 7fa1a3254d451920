package relay

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"runtime/debug"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/cloudevents"
	"github.com/asyncmonolith/asyncmonolith-go/internal/contract"
)

// Route defines how payloads of one type are published. [To] makes one.
type Route struct{ route *route }

// To publishes payloads of type T to a destination of the broker. The destination may be empty if
// [DestinationFunc] returns it, or if the publisher of a [NewLogForwarder] is a [broker.Appender],
// which has a destination for each shard.
func To[T bus.Payload](destination string, options ...RouteOption) Route {
	r := &route{destination: destination}
	r.name, r.goType = payloadName[T]()
	r.names, r.public = []string{r.name}, r.name
	r.upcasters = access.Upcasters(*new(T))
	r.version = len(r.upcasters) + 1
	r.decode = func(codec bus.Codec, payload []byte) (any, error) {
		var value T
		err := codec.Decode(payload, &value)
		return value, err
	}
	_, r.keyed = reflect.Zero(r.goType).Interface().(keyed)
	for i, option := range options {
		if option == nil {
			r.mistake("option %d is nil", i)
			continue
		}
		option(r)
	}
	if r.name == "" {
		r.mistake("a struct with a stored name is allowed, passed by value")
	}
	return Route{r}
}

// RouteOption configures a [Route] that [To] makes. This package's functions make all of them.
type RouteOption func(*route)

// DestinationFunc chooses the destination of each message with fn. T must be the route's type. An
// error of fn is a failed attempt. fn is called concurrently.
func DestinationFunc[T bus.Payload](fn func(m *bus.Message, payload T) (destination string, err error)) RouteOption {
	return func(r *route) {
		if fn == nil || r.goType != reflect.TypeFor[T]() {
			r.mistake("DestinationFunc takes %s: a function of the route's type is allowed", reflect.TypeFor[T]())
			return
		}
		r.destinationOf = func(m *bus.Message, value any) (string, error) { return fn(m, value.(T)) }
	}
}

// MapPayload converts payloads to a public type with fn, so that the stored type can change. T
// must be the route's type. An error of fn is a failed attempt. fn is called concurrently.
func MapPayload[T, Public bus.Payload](fn func(payload T) (Public, error)) RouteOption {
	return func(r *route) {
		public, _ := payloadName[Public]()
		if fn == nil || r.goType != reflect.TypeFor[T]() || public == "" {
			r.mistake(
				"MapPayload makes %s of %s: a function of the route's type that returns a struct is allowed", reflect.TypeFor[Public](),
				reflect.TypeFor[T](),
			)
			return
		}
		r.publicType, r.version = reflect.TypeFor[Public](), len(access.Upcasters(*new(Public)))+1
		r.public, r.as = public, func(value any) (any, error) { return fn(value.(T)) }
	}
}

// PayloadAliases lists former names of the payload type that pending messages may still have.
// Former names in eventlog.Types need not be listed.
func PayloadAliases(names ...string) RouteOption {
	return func(r *route) { r.names = append(r.names, names...) }
}

// DataSchema is the dataschema attribute of published events, an absolute URI that identifies the
// data's schema and its version. Defaults to none.
func DataSchema(uri string) RouteOption {
	return func(r *route) {
		if u, err := url.Parse(uri); err != nil || !u.IsAbs() || cloudevents.Printable(uri) != uri {
			r.mistake("DataSchema %q: an absolute URI is allowed", uri)
			return
		}
		r.schema = uri
	}
}

// keyed is a payload with its own key: see outbox.OrderingKey.
type keyed interface{ OrderingKey() string }

// route defines how payloads of one type are published.
type route struct {
	name          string   // stored name
	names         []string // with former names
	public        string   // published name
	goType        reflect.Type
	upcasters     []bus.Upcaster
	publicType    reflect.Type // of MapPayload; nil without
	version       int          // of the published type's schema
	keyed         bool
	destination   string
	schema        string // a URI
	decode        func(codec bus.Codec, payload []byte) (any, error)
	destinationOf func(m *bus.Message, value any) (string, error)
	as            func(value any) (any, error)
	mistakes      []string
}

func (r *route) mistake(format string, args ...any) {
	r.mistakes = append(r.mistakes, fmt.Sprintf("relay: route of %s: "+format, append([]any{r.goType}, args...)...))
}

func (p *publishing) add(r *route) {
	if r == nil {
		p.mistake("a Route must be made by relay.To, not as a zero value")
		return
	}
	p.mistakes, p.inOrder = append(p.mistakes, r.mistakes...), append(p.inOrder, r)
	for _, name := range r.names {
		if p.routes[name] != nil {
			p.mistake("route of %s: payload type %q already has a route", r.goType, name)
			continue
		}
		p.routes[name] = r
		p.payloadTypes = append(p.payloadTypes, name)
	}
}

// needDestinations records mistakes for routes without a destination.
func (p *publishing) needDestinations() {
	for _, r := range p.inOrder {
		if r.destination == "" && r.destinationOf == nil {
			p.mistake("route of %s: the destination is empty: a destination or relay.DestinationFunc is needed", r.goType)
		}
	}
}

// resolved is a route's result for a message.
type resolved struct {
	destination, key string
	payload          []byte
	schema           int
}

// resolve upcasts the payload to the newest schema, and decodes it only if the result depends on it.
// A payload that a newer release has written is published as it is, unless it has to be decoded.
func (r *route) resolve(ctx context.Context, codec bus.Codec, m *bus.Message) (to resolved, err error) {
	to = resolved{destination: r.destination, key: m.OrderingKey, payload: m.Payload, schema: r.version}
	if m.Event != nil {
		to.key = m.Event.Stream
	}
	decodes := r.destinationOf != nil || r.as != nil || to.key == "" && r.keyed
	if to.payload, err = access.Upcast(ctx, r.upcasters, m.Schema, m.Payload); access.IsNewer(err) && !decodes {
		to.payload, to.schema = m.Payload, m.Schema
		return to, nil
	}
	if err != nil {
		return to, access.DecodeFailure(m, r.goType, err)
	}
	if !decodes {
		return to, nil
	}
	defer func() { // of the application's functions and codec
		if value := recover(); value != nil {
			err = fmt.Errorf("relay: route %q: %w", m.PayloadType, &bus.PanicError{Value: value, Stack: debug.Stack()})
		}
	}()
	value, err := r.decode(codec, to.payload)
	if err != nil {
		return to, access.DecodeFailure(m, r.goType, err)
	}
	if of, ok := value.(keyed); ok && to.key == "" {
		to.key = of.OrderingKey()
	}
	if r.destinationOf != nil {
		to.destination, err = r.destinationOf(m, value)
		if err == nil && to.destination == "" {
			err = errors.New("the destination is empty")
		}
		if err != nil {
			return to, fmt.Errorf("relay: destination of a payload %q: %w", m.PayloadType, err)
		}
	}
	if r.as != nil {
		if value, err = r.as(value); err == nil {
			to.payload, err = codec.Encode(value)
		}
		if err != nil {
			return to, fmt.Errorf("relay: publish a payload %q as %q: %w", m.PayloadType, r.public, err)
		}
	}
	return to, nil
}

// keyOf returns the key that the payload of a stored message has, or "".
func (p *publishing) keyOf(codec bus.Codec, m *bus.Message) (string, error) {
	r := p.routes[m.PayloadType]
	if r == nil || !r.keyed {
		return "", nil
	}
	payload, err := access.Upcast(context.Background(), r.upcasters, m.Schema, m.Payload)
	var value any
	if err == nil {
		value, err = r.decode(codec, payload)
	}
	if err != nil {
		return "", access.DecodeFailure(m, r.goType, err)
	}
	return value.(keyed).OrderingKey(), nil
}

// contract describes what is published.
func (p *publishing) contract() contract.Relay {
	c := contract.Relay{Source: p.config.Source, Content: p.config.ContentType}
	for _, r := range p.inOrder {
		described := contract.Route{Payload: r.name, Type: r.public, Destination: r.destination}
		former := slices.DeleteFunc(slices.Clone(r.names), func(name string) bool { return name == r.name })
		c.Routes = append(c.Routes, contract.NewRoute(described, r.goType, r.publicType, former...))
	}
	return c
}
