package watermill

import (
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// Keys of metadata. Ours carry what Watermill has no place for.
const (
	attributePrefix = "ce-"
	ownPrefix       = "asyncmonolith-"
	contentTypeKey  = "content-type"
	keyKey          = ownPrefix + "key"
	tombstoneKey    = ownPrefix + "tombstone" // a body that is nil, not empty
	headerPrefix    = ownPrefix + "h-"        // before a name that would mean something else
)

// toMessage is what a record is to Watermill. It has a body of its own: subscribers may share it.
func toMessage(record relay.Record) *message.Message {
	m := message.NewMessage(record.ID, append(message.Payload{}, record.Body...))
	for name, value := range record.Attributes {
		m.Metadata.Set(attributePrefix+name, value)
	}
	for name, value := range record.Headers {
		if isReserved(name) {
			name = headerPrefix + name
		}
		m.Metadata.Set(name, value)
	}
	if record.ContentType != "" {
		m.Metadata.Set(contentTypeKey, record.ContentType)
	}
	if record.Key != record.Attributes["partitionkey"] {
		m.Metadata.Set(keyKey, record.Key)
	}
	if record.Body == nil {
		m.Metadata.Set(tombstoneKey, "true")
	}
	return m
}

// toRecord is what a message is to a relay.
func toRecord(topic string, m *message.Message) relay.Record {
	r := relay.Record{Destination: topic, ID: m.UUID, Body: append([]byte{}, m.Payload...)}
	key, keyed := "", false
	for name, value := range m.Metadata {
		switch {
		case strings.HasPrefix(name, attributePrefix):
			put(&r.Attributes, name[len(attributePrefix):], value)
		case name == contentTypeKey:
			r.ContentType = value
		case name == keyKey:
			key, keyed = value, true
		case name == tombstoneKey:
			r.Body = nil
		case strings.HasPrefix(name, headerPrefix):
			put(&r.Headers, name[len(headerPrefix):], value)
		case !isReserved(name):
			put(&r.Headers, name, value)
		}
	}
	r.Key = r.Attributes["partitionkey"]
	if keyed {
		r.Key = key
	}
	return r
}

func put(m *map[string]string, name, value string) {
	if *m == nil {
		*m = make(map[string]string)
	}
	(*m)[name] = value
}

// isReserved reports whether a key of metadata means something to Watermill, to CloudEvents or to us.
func isReserved(name string) bool {
	return strings.HasPrefix(name, attributePrefix) || strings.HasPrefix(name, ownPrefix) ||
		strings.HasPrefix(name, "_watermill_") || name == contentTypeKey
}
