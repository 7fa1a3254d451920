package kafka

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// Names of headers. Ours carry what Kafka has no place for.
const (
	attributePrefix   = "ce_"
	ownPrefix         = "asyncmonolith-"
	contentTypeHeader = "content-type"
	idHeader          = ownPrefix + "id"
	headerPrefix      = ownPrefix + "h-" // before a name that would mean something else
)

// message is what a record is to Kafka.
func message(record relay.Record) *kgo.Record {
	m := &kgo.Record{Topic: record.Destination, Value: record.Body}
	if record.Key != "" {
		m.Key = []byte(record.Key)
	}
	set := func(name, value string) {
		m.Headers = append(m.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	for name, value := range record.Attributes {
		set(attributePrefix+name, value)
	}
	for name, value := range record.Headers {
		if isReserved(name) {
			name = headerPrefix + name
		}
		set(name, value)
	}
	if record.ContentType != "" {
		set(contentTypeHeader, record.ContentType)
	}
	if record.ID != record.Attributes["id"] {
		set(idHeader, record.ID)
	}
	return m
}

// record is what a message is to a relay. Of headers with the same name the last counts.
func record(m *kgo.Record) relay.Record {
	r := relay.Record{Destination: m.Topic, Key: string(m.Key), Body: m.Value}
	id, named := "", false
	for _, header := range m.Headers {
		value := string(header.Value)
		switch name := header.Key; {
		case strings.HasPrefix(name, attributePrefix):
			put(&r.Attributes, name[len(attributePrefix):], value)
		case name == contentTypeHeader:
			r.ContentType = value
		case name == idHeader:
			id, named = value, true
		case strings.HasPrefix(name, headerPrefix):
			put(&r.Headers, name[len(headerPrefix):], value)
		case !isReserved(name):
			put(&r.Headers, name, value)
		}
	}
	r.ID = r.Attributes["id"]
	if named {
		r.ID = id
	}
	return r
}

func put(m *map[string]string, name, value string) {
	if *m == nil {
		*m = make(map[string]string)
	}
	(*m)[name] = value
}

// isReserved reports whether a header's name means something to CloudEvents or to us.
func isReserved(name string) bool {
	return strings.HasPrefix(name, attributePrefix) || strings.HasPrefix(name, ownPrefix) || name == contentTypeHeader
}
