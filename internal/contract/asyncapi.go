package contract

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The parts of an AsyncAPI 3.0 document that are written. Maps are written in the order of their keys.
type (
	asyncAPI struct {
		Version     string               `json:"asyncapi"`
		Info        info                 `json:"info"`
		ContentType string               `json:"defaultContentType"`
		Channels    map[string]channel   `json:"channels"`
		Operations  map[string]operation `json:"operations"`
		Components  components           `json:"components"`
	}
	info struct {
		Title   string `json:"title"`
		Version string `json:"version"`
	}
	channel struct {
		Address     *string              `json:"address"`
		Description string               `json:"description"`
		Messages    map[string]reference `json:"messages"`
	}
	operation struct {
		Action   string      `json:"action"`
		Channel  reference   `json:"channel"`
		Title    string      `json:"title"`
		Messages []reference `json:"messages"`
	}
	reference struct {
		Ref string `json:"$ref"`
	}
	components struct {
		Messages map[string]message `json:"messages"`
		Schemas  map[string]*Schema `json:"schemas,omitempty"`
	}
	message struct {
		Name        string  `json:"name"`
		Description string  `json:"description,omitempty"`
		ContentType string  `json:"contentType,omitempty"`
		Payload     payload `json:"payload"`
	}
	payload struct {
		Format string  `json:"schemaFormat"`
		Schema *Schema `json:"schema"`
	}
)

// schemaFormat is the media type of every schema in an AsyncAPI document.
const schemaFormat = "application/schema+json;version=2020-12"

// AsyncAPI returns an AsyncAPI 3.0 document of programs. Each payload type is a channel without an
// address, since it is a table of a database; each consumer receives from one. A destination of a
// relay is a channel with an address. Of a payload that several documents have the first one counts.
func AsyncAPI(title, version string, documents ...Document) ([]byte, error) {
	b := builder{
		doc: asyncAPI{
			Version: "3.0.0", Info: info{title, version}, ContentType: "application/json",
			Channels: make(map[string]channel), Operations: make(map[string]operation),
			Components: components{Messages: make(map[string]message), Schemas: make(map[string]*Schema)},
		},
		keys: make(map[string]string), taken: make(map[string]bool),
	}
	for _, d := range documents {
		b.add(d)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(b.doc)
	return out.Bytes(), err
}

type builder struct {
	doc   asyncAPI
	keys  map[string]string // of components, by kind and name
	taken map[string]bool
}

// key returns the key of a component: its name, with other characters than AsyncAPI allows replaced.
func (b *builder) key(kind, name string) string {
	full := kind + "\x00" + name
	if key, known := b.keys[full]; known {
		return key
	}
	base := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '_'
	}, name)
	key := base
	for i := 2; b.taken[kind+"\x00"+key]; i++ {
		key = fmt.Sprint(base, "_", i)
	}
	b.keys[full], b.taken[kind+"\x00"+key] = key, true
	return key
}

func (b *builder) add(d Document) {
	for _, name := range slices.Sorted(maps.Keys(d.Payloads)) {
		b.message(d, name, "")
	}
	for _, name := range slices.Sorted(maps.Keys(d.Consumers)) {
		if _, relays := d.Relays[name]; !relays {
			b.consumer(d, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Relays)) {
		b.relay(d, name, d.Relays[name])
	}
}

// message adds a payload's message, and returns its key.
func (b *builder) message(d Document, name, contentType string) string {
	key := b.key("message", name)
	if _, known := b.doc.Components.Messages[key]; known {
		return key
	}
	p, ok := d.Payloads[name]
	if !ok {
		p.Schema = &Schema{}
	}
	m := message{Name: name, ContentType: contentType, Payload: payload{schemaFormat, b.schema(key, p.Schema)}}
	if p.Version > 1 {
		m.Description = fmt.Sprintf("Schema %d.", p.Version)
	}
	b.doc.Components.Messages[key] = m
	return key
}

// schema returns a schema whose definitions are components, since a reference in an AsyncAPI document
// is relative to the whole document.
func (b *builder) schema(message string, s *Schema) *Schema {
	prefix := message + "."
	for name, def := range s.Defs {
		b.doc.Components.Schemas[prefix+name] = moved(def, prefix)
	}
	own := moved(s, prefix)
	own.Defs, own.Draft = nil, ""
	return own
}

// moved returns a copy of a schema that refers to components.
func moved(s *Schema, prefix string) *Schema {
	if s == nil {
		return nil
	}
	c := *s
	if name, ok := strings.CutPrefix(s.Ref, refTo("")); ok {
		c.Ref = "#/components/schemas/" + prefix + name
	}
	c.Items, c.Values = moved(s.Items, prefix), moved(s.Values, prefix)
	if s.Properties != nil {
		c.Properties = make(map[string]*Schema, len(s.Properties))
		for name, inner := range s.Properties {
			c.Properties[name] = moved(inner, prefix)
		}
	}
	c.AnyOf = nil
	for _, inner := range s.AnyOf {
		c.AnyOf = append(c.AnyOf, moved(inner, prefix))
	}
	return &c
}

// channel adds messages to a channel, and returns its key. Without an address it is named by name.
func (b *builder) channel(name, description string, address *string, messages ...string) string {
	key := b.key("channel", name)
	c, known := b.doc.Channels[key]
	if !known {
		c = channel{Address: address, Description: description, Messages: make(map[string]reference)}
	}
	for _, message := range messages {
		c.Messages[message] = reference{"#/components/messages/" + message}
	}
	b.doc.Channels[key] = c
	return key
}

func (b *builder) operation(name, action, title, channel string, messages ...string) {
	o := operation{Action: action, Title: title, Channel: reference{"#/channels/" + channel}, Messages: []reference{}}
	for _, message := range messages {
		o.Messages = append(o.Messages, reference{"#/channels/" + channel + "/messages/" + message})
	}
	b.doc.Operations[b.key("operation", name)] = o
}

func (b *builder) consumer(d Document, name string) {
	for _, payload := range d.Taken(name) {
		message := b.message(d, payload, "")
		channel := b.channel(payload, "Messages in the database of the program.", nil, message)
		b.operation(name, "receive", name, channel, message)
	}
}

func (b *builder) relay(d Document, name string, r Relay) {
	if r.Receives {
		var messages []string
		for _, route := range r.Routes {
			messages = append(messages, b.message(d, route.Payload, ""))
		}
		b.operation(name, "receive", name, b.channel(name, "The subscription of a receiver.", nil, messages...), messages...)
		return
	}
	byDestination := make(map[string][]string)
	for _, route := range r.Routes {
		message := b.message(d, route.Type, r.Content)
		byDestination[route.Destination] = append(byDestination[route.Destination], message)
	}
	for _, destination := range slices.Sorted(maps.Keys(byDestination)) {
		var address *string
		if destination != "" {
			address = &destination
		}
		messages := byDestination[destination]
		channel := b.channel(cmp.Or(destination, name), "A destination of a broker. Source of its events: "+r.Source, address, messages...)
		b.operation(name+cmp.Or("."+destination, ""), "send", name, channel, messages...)
	}
}
