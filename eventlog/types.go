package eventlog

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
)

// Type is an event type that can be appended, made by [Event].
type Type struct {
	name      string
	goType    reflect.Type
	upcasters []bus.Upcaster
	aliases   []string
	decode    func(ctx context.Context, codec bus.Codec, text []byte) (bus.Payload, error)
	mistakes  []error
}

// Event makes E an event type, under the name that its PayloadType returns. Aliases are its former
// names. If old events no longer fit E, give E upcasters: see bus.Upcaster. An upcaster runs whenever
// such an event is read; the stored text does not change. If it returns bus.Discard, the event is
// obsolete: readers skip it, and a message that delivers it is removed. [NewTypes] reports
// configuration errors.
func Event[E bus.Payload](aliases ...string) Type {
	// A consumer makes the rules for payloads and decode errors the same for events and messages.
	decoder := bus.Consume("event", func(ctx context.Context, event E) error {
		*ctx.Value(decodedKey{}).(*bus.Payload) = event
		return nil
	})
	t := Type{name: decoder.PayloadType(), goType: reflect.TypeFor[E](), upcasters: access.Upcasters(*new(E)), aliases: aliases}
	if _, err := bus.NewRegistry(decoder); err != nil {
		t.mistakes = append(t.mistakes, fmt.Errorf("eventlog: event %s: %w", t.goType, err))
	}
	t.decode = func(ctx context.Context, codec bus.Codec, text []byte) (event bus.Payload, err error) {
		err = decoder.Consume(context.WithValue(ctx, decodedKey{}, &event), codec, text)
		return event, err
	}
	return t
}

type decodedKey struct{}

// newest is the schema in which the event is now written.
func (t *Type) newest() int { return len(t.upcasters) + 1 }

// Types holds every event type of an application. It is immutable and safe for concurrent use. Set
// it as bus.RegistryConfig.Events.
type Types struct {
	byName map[string]*Type // by name and alias
	names  []string         // without aliases, sorted
}

// NewTypes registers event types. [Tombstoned] is always included. NewTypes reports all
// configuration errors at once, such as a name used twice.
func NewTypes(types ...Type) (*Types, error) {
	all := &Types{byName: map[string]*Type{}}
	var mistakes []error
	for _, t := range append(types[:len(types):len(types)], Event[Tombstoned]()) {
		if t.decode == nil {
			mistakes = append(mistakes, errors.New("eventlog: a Type must be made by eventlog.Event, not as a zero value"))
			continue
		}
		mistakes = append(mistakes, t.mistakes...)
		for i, name := range append([]string{t.name}, t.aliases...) {
			if name == "" {
				if i > 0 { // otherwise already reported
					mistakes = append(mistakes, fmt.Errorf("eventlog: event %s: an alias is empty", t.goType))
				}
				continue
			}
			if other, taken := all.byName[name]; taken {
				mistakes = append(mistakes, fmt.Errorf("eventlog: event %s: the name %q is taken by %s", t.goType, name, other.goType))
				continue
			}
			all.byName[name] = &t
		}
		all.names = append(all.names, t.name)
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	slices.Sort(all.names)
	return all, nil
}

// find returns an event type by name or alias. A nil *Types, which a registry may have, has none.
func (t *Types) find(name string) (*Type, bool) {
	if t == nil {
		return nil, false
	}
	known, ok := t.byName[name]
	return known, ok
}

// UnknownTypeError reports an appended or read event that [Types] does not have, or that a newer
// version of the application wrote.
type UnknownTypeError struct {
	Type   string
	Schema int // 0 unless only the schema is unknown
	Newest int // the newest known schema, if Schema is set
}

// Error implements error.
func (e *UnknownTypeError) Error() string {
	if e.Schema > 0 {
		return fmt.Sprintf(
			"eventlog: event %q: schema %d is unknown, 1 to %d are known: a newer version of the application wrote the event", e.Type,
			e.Schema, e.Newest,
		)
	}
	return fmt.Sprintf("eventlog: event %q is unknown: pass its Type to NewTypes", e.Type)
}

// newerError is the error of an event that a newer release has written.
type newerError struct {
	*UnknownTypeError
	cause error
}

func (e newerError) Unwrap() []error { return []error{e.UnknownTypeError, e.cause} }

// Upcast converts the stored text of an event from a schema to the newest one. For an unknown event
// it returns an *[UnknownTypeError].
func (t *Types) Upcast(ctx context.Context, name string, schema int, text []byte) ([]byte, error) {
	known, ok := t.find(name)
	switch {
	case !ok:
		return nil, &UnknownTypeError{Type: name}
	case schema < 1:
		return nil, &UnknownTypeError{Type: name, Schema: schema, Newest: known.newest()}
	}
	text, err := access.Upcast(ctx, known.upcasters, schema, text)
	switch {
	case access.IsNewer(err):
		return nil, newerError{&UnknownTypeError{Type: name, Schema: schema, Newest: known.newest()}, err}
	case err != nil:
		return nil, fmt.Errorf("eventlog: event %q: %w", known.name, err)
	}
	return text, nil
}

func (t *Types) decode(ctx context.Context, codec bus.Codec, name string, schema int, text []byte) (bus.Payload, error) {
	text, err := t.Upcast(ctx, name, schema, text)
	if err != nil {
		return nil, err
	}
	return t.byName[name].decode(ctx, codec, text)
}

// Lookup returns the Go type of an event type, given its current or a former name, and the names
// under which its events may be stored, the current one first. For an unknown type both are nil.
func (t *Types) Lookup(name string) (goType reflect.Type, names []string) {
	known, ok := t.find(name)
	if !ok {
		return nil, nil
	}
	return known.goType, append([]string{known.name}, known.aliases...)
}

// withAliases adds the former names of events, and returns an error for an unknown one.
func (t *Types) withAliases(names []string) ([]string, error) {
	var all []string
	for _, name := range names {
		_, known := t.Lookup(name)
		if known == nil {
			return nil, &UnknownTypeError{Type: name}
		}
		all = append(all, known...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// Tombstoned is the last event of a stream that [Log.Tombstone] erased. Projections must remove
// the stream's data from their tables.
type Tombstoned struct {
	Stream string `json:"stream"`
}

// PayloadType implements bus.Payload.
func (Tombstoned) PayloadType() string { return "asyncmonolith.tombstoned" }
