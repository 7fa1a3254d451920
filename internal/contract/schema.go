package contract

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"time"
)

// Draft is the dialect of every schema.
const Draft = "https://json-schema.org/draft/2020-12/schema"

// Schema is a JSON Schema, as far as payloads need it. The zero value allows any value.
type Schema struct {
	Draft      string             `json:"$schema,omitempty"`
	Comment    string             `json:"$comment,omitempty"`
	Ref        string             `json:"$ref,omitempty"`
	AnyOf      []*Schema          `json:"anyOf,omitempty"`
	Type       Type               `json:"type,omitempty"`
	Format     string             `json:"format,omitempty"`
	Encoding   string             `json:"contentEncoding,omitempty"`
	Properties map[string]*Schema `json:"properties,omitempty"`
	Names      *Schema            `json:"propertyNames,omitempty"` // of a map whose keys are not any text
	Required   []string           `json:"required,omitempty"`      // always written
	Values     *Schema            `json:"additionalProperties,omitempty"`
	Items      *Schema            `json:"items,omitempty"`
	MinItems   int                `json:"minItems,omitempty"`
	MaxItems   *int               `json:"maxItems,omitempty"`
	Defs       map[string]*Schema `json:"$defs,omitempty"`
}

// Type is the JSON type of a value, with "null" behind it if the value may be null.
type Type []string

// MarshalJSON implements json.Marshaler. A single type is a string.
func (t Type) MarshalJSON() ([]byte, error) {
	if len(t) == 1 {
		return json.Marshal(t[0])
	}
	return json.Marshal([]string(t))
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Type) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*t = Type{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(t))
}

const (
	object  = "object"
	array   = "array"
	text    = "string"
	integer = "integer"
	number  = "number"
	null    = "null"
)

// SchemaOf returns the schema of a payload's type, as encoding/json writes it. If goNames is true,
// another codec writes it: fields have their Go names, and tags do not count.
func SchemaOf(t reflect.Type, goNames bool) *Schema {
	d := deriver{goNames: goNames, open: make(map[reflect.Type]bool), defs: make(map[string]*Schema), named: make(map[reflect.Type]string)}
	s := d.of(t)
	s.Draft, s.Defs = Draft, d.defs
	return s
}

// deriver derives one schema.
type deriver struct {
	goNames bool
	open    map[reflect.Type]bool // types whose schema is being derived
	named   map[reflect.Type]string
	defs    map[string]*Schema // of recursive types
}

func refTo(name string) string { return "#/$defs/" + name }

// of returns the schema of a type. A type that contains itself is a reference to its definition.
func (d *deriver) of(t reflect.Type) *Schema {
	if t.Name() == "" || t.Kind() < reflect.Array {
		return d.derive(t)
	}
	if name, recursive := d.named[t]; recursive {
		return &Schema{Ref: refTo(name)}
	}
	if d.open[t] {
		name := d.newName(t)
		d.named[t] = name
		return &Schema{Ref: refTo(name)}
	}
	d.open[t] = true
	s := d.derive(t)
	delete(d.open, t)
	if name, recursive := d.named[t]; recursive {
		d.defs[name] = s
		return &Schema{Ref: refTo(name)}
	}
	return s
}

// unsafe matches what a name in a reference does not have. It is immutable.
var unsafe = regexp.MustCompile(`[^A-Za-z0-9_]+`)

func (d *deriver) newName(t reflect.Type) string {
	base := unsafe.ReplaceAllString(t.Name(), "_")
	name := base
	taken := func(reflect.Type) bool {
		for _, other := range d.named {
			if other == name {
				return true
			}
		}
		return false
	}
	for i := 2; taken(t); i++ {
		name = fmt.Sprint(base, i)
	}
	return name
}

// has reports whether a type, or a pointer to it, implements one of the interfaces.
func has(t reflect.Type, interfaces ...reflect.Type) bool {
	return slices.ContainsFunc(interfaces, func(i reflect.Type) bool { return t.Implements(i) || reflect.PointerTo(t).Implements(i) })
}

// isText reports whether a type has a text form of its own.
func isText(t reflect.Type) bool {
	return has(t, reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler]())
}

// ofText returns the schema of a type with a text form, which may not accept any text.
func ofText(t reflect.Type) *Schema {
	s := &Schema{Type: Type{text}, Format: "text"}
	if t.String() == "uuid.UUID" {
		s.Format = "uuid"
	}
	return s
}

func (d *deriver) derive(t reflect.Type) *Schema {
	switch {
	case t.Kind() == reflect.Pointer:
		return nullable(d.of(t.Elem()))
	case t.Kind() == reflect.Interface:
		return &Schema{}
	case t == reflect.TypeFor[time.Time]():
		return &Schema{Type: Type{text}, Format: "date-time"}
	case t == reflect.TypeFor[json.Number]():
		return &Schema{Type: Type{number}}
	case has(t, reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler]()):
		return &Schema{}
	case isText(t):
		return ofText(t)
	}
	return d.ofKind(t)
}

func (d *deriver) ofKind(t reflect.Type) *Schema {
	switch t.Kind() {
	case reflect.Bool:
		return &Schema{Type: Type{"boolean"}}
	case reflect.Int, reflect.Int64:
		return &Schema{Type: Type{integer}, Format: "int64"}
	case reflect.Uint, reflect.Uint64, reflect.Uintptr:
		return &Schema{Type: Type{integer}, Format: "uint64"}
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return &Schema{Type: Type{integer}, Format: t.Kind().String()}
	case reflect.Float32:
		return &Schema{Type: Type{number}, Format: "float"}
	case reflect.Float64:
		return &Schema{Type: Type{number}, Format: "double"}
	case reflect.String:
		return &Schema{Type: Type{text}}
	case reflect.Slice:
		if e := t.Elem(); e.Kind() == reflect.Uint8 && !has(e, reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()) {
			return nullable(&Schema{Type: Type{text}, Encoding: "base64"})
		}
		return nullable(&Schema{Type: Type{array}, Items: d.of(t.Elem())})
	case reflect.Array:
		return &Schema{Type: Type{array}, Items: d.of(t.Elem()), MinItems: t.Len(), MaxItems: new(t.Len())}
	case reflect.Map:
		return nullable(&Schema{Type: Type{object}, Names: d.names(t.Key()), Values: d.of(t.Elem())})
	case reflect.Struct:
		return d.object(t)
	}
	return &Schema{} // it cannot be encoded
}

// names returns the schema of the keys of a map, or nil if they may be any text.
func (d *deriver) names(t reflect.Type) *Schema {
	switch {
	case has(t, reflect.TypeFor[encoding.TextUnmarshaler]()), t.Kind() != reflect.String && isText(t):
		return ofText(t)
	case t.Kind() == reflect.String:
		return nil
	}
	return &Schema{Type: Type{text}, Format: d.ofKind(t).Format}
}

// object returns the schema of a struct.
func (d *deriver) object(t reflect.Type) *Schema {
	s := &Schema{Type: Type{object}, Properties: make(map[string]*Schema)}
	for _, f := range d.fields(t) {
		s.Properties[f.name] = d.of(f.goType)
		if f.quoted {
			s.Properties[f.name] = d.quoted(f.goType)
		}
		if !f.optional {
			s.Required = append(s.Required, f.name)
		}
	}
	slices.Sort(s.Required)
	return s
}

// quoted returns the schema of a field with the tag option string.
func (d *deriver) quoted(t reflect.Type) *Schema {
	if t.Kind() == reflect.Pointer {
		return nullable(d.quoted(t.Elem()))
	}
	s := &Schema{Type: Type{text}, Format: "quoted"}
	if inner := d.ofKind(t); len(inner.Type) > 0 {
		s.Format = cmp.Or(inner.Format, inner.Type[0])
	}
	return s
}

// nullable returns a schema that allows null, too.
func nullable(s *Schema) *Schema {
	switch {
	case s.Ref != "":
		return &Schema{AnyOf: []*Schema{s, {Type: Type{null}}}}
	case len(s.Type) == 0 || slices.Contains(s.Type, null) || len(s.AnyOf) > 0:
		return s
	}
	s.Type = append(s.Type, null)
	return s
}
