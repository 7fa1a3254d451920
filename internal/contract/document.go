package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
)

// Document describes a registry.
type Document struct {
	Codec     string              `json:"codec,omitempty"` // its Go type, unless it is bus.JSON
	Consumers map[string]Consumer `json:"consumers"`
	Payloads  map[string]Payload  `json:"payloads"`
	Relays    map[string]Relay    `json:"relays,omitempty"` // by their names
}

// Consumer describes a consumer that the program runs.
type Consumer struct {
	Aliases  []string `json:"aliases,omitempty"`
	Payloads []string `json:"payloads"` // stored names, with former ones
	NeedsKey bool     `json:"needs_key,omitempty"`
}

// Payload describes a payload type.
type Payload struct {
	Aliases []string `json:"aliases,omitempty"`
	Event   bool     `json:"event,omitempty"`
	Version int      `json:"schema_version"`
	Schema  *Schema  `json:"schema"`
}

// Of describes a registry.
func Of(r *bus.Registry) Document {
	d := Document{Consumers: make(map[string]Consumer), Payloads: make(map[string]Payload), Relays: make(map[string]Relay)}
	if _, isJSON := r.Codec().(bus.JSON); !isJSON {
		d.Codec = fmt.Sprintf("%T", r.Codec())
	}
	for _, c := range r.Consumers() {
		d.addConsumer(c)
	}
	for _, payloadType := range access.AllPayloadTypes(r) { // also those of other programs' consumers
		for _, c := range access.ConsumersOf(r, payloadType) {
			if t := access.GoType(c); t != nil {
				d.addPayload(c.PayloadType(), t, len(access.Upcasters(reflect.Zero(t).Interface()))+1, c.Config().PayloadAliases...)
			}
		}
	}
	logaccess.EachType(access.Events(r), func(name string, aliases []string, goType reflect.Type, schema int) {
		d.addPayload(name, goType, schema, aliases...)
		p := d.Payloads[name]
		p.Event, p.Version = true, schema
		d.Payloads[name] = p
	})
	return d
}

func (d *Document) addConsumer(c bus.Consumer) {
	config := c.Config()
	d.Consumers[c.Name()] = Consumer{
		Aliases: sorted(config.Aliases), Payloads: access.PayloadTypes(c), NeedsKey: access.Keyed(&config),
	}
	relay, ok := RelayOf(&config)
	if !ok {
		return
	}
	d.Relays[c.Name()] = relay
	for _, r := range relay.Routes {
		d.addPayload(r.Payload, r.goType, r.version, r.aliases...)
		if r.Type != r.Payload && r.publicType != nil {
			d.addPayload(r.Type, r.publicType, r.publicVersion)
		}
	}
}

func (d *Document) addPayload(name string, t reflect.Type, version int, aliases ...string) {
	if name == "" || strings.HasPrefix(name, "asyncmonolith.") || t == nil {
		return
	}
	p, known := d.Payloads[name]
	if !known {
		p = Payload{Version: version, Schema: SchemaOf(t, d.Codec != "")}
		if d.Codec != "" {
			p.Schema.Comment = "written by the codec " + d.Codec + ": these are the fields of the Go type"
		}
	}
	p.Aliases = sorted(append(p.Aliases, aliases...))
	d.Payloads[name] = p
}

// sorted returns names without duplicates.
func sorted(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// Text returns the document as it is stored in a file.
func (d Document) Text() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(d)
	return b.Bytes(), err
}

// Parse reads a document. A person may have edited it.
func Parse(text []byte) (d Document, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return d, err
	}
	for _, name := range slices.Sorted(maps.Keys(d.Payloads)) {
		if d.Payloads[name].Schema == nil {
			return d, fmt.Errorf("payload %q has no schema", name)
		}
	}
	return d, nil
}

// Taken returns the names of the payloads that a consumer takes, with their present names if they are
// known.
func (d Document) Taken(consumer string) (names []string) {
	for _, name := range d.Consumers[consumer].Payloads {
		if present, ok := d.present(name); ok && !slices.Contains(names, present) {
			names = append(names, present)
		}
	}
	return names
}

// present returns the name of a payload type by its present or a former name.
func (d Document) present(name string) (string, bool) {
	if _, ok := d.Payloads[name]; ok {
		return name, true
	}
	for _, present := range slices.Sorted(maps.Keys(d.Payloads)) {
		if slices.Contains(d.Payloads[present].Aliases, name) {
			return present, true
		}
	}
	return "", false
}
