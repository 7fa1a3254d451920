package rabbitmq

import (
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// Names of headers. Ours carry what AMQP has no place for.
const (
	attributePrefix = "cloudEvents_"
	colonPrefix     = "cloudEvents:" // of other senders
	ownPrefix       = "asyncmonolith-"
	idHeader        = ownPrefix + "id" // where it is too long for message-id
	keyHeader       = ownPrefix + "key"
	tombstoneHeader = ownPrefix + "tombstone" // a body that is nil, not empty
	headerPrefix    = ownPrefix + "h-"        // before a name that would mean something else
)

// maxShort is the length in bytes of what AMQP calls a short string: names and properties.
const maxShort = 255

// message is what a record is to RabbitMQ, if it fits.
func message(record relay.Record, frameSize int) (amqp.Publishing, error) {
	table := make(amqp.Table, len(record.Attributes)+len(record.Headers)+3)
	for name, value := range record.Attributes {
		table[attributePrefix+name] = value
	}
	for name, value := range record.Headers {
		if isReserved(name) {
			name = headerPrefix + name
		}
		table[name] = value
	}
	id := record.ID
	if len(id) > maxShort {
		table[idHeader], id = id, ""
	}
	if record.Key != record.Attributes["partitionkey"] {
		table[keyHeader] = record.Key
	}
	if record.Body == nil {
		table[tombstoneHeader] = "true"
	}
	size := 64 + len(record.ContentType) + len(id) // of the frame that has all but the body
	for name, value := range table {
		if len(name) > maxShort {
			return amqp.Publishing{}, fmt.Errorf("the header %.40q... has %d bytes in its name, at most %d are allowed", name, len(name), maxShort)
		}
		size += 6 + len(name) + len(value.(string))
	}
	switch {
	case len(record.Destination) > maxShort:
		return amqp.Publishing{}, fmt.Errorf("the routing key has %d bytes, at most %d are allowed", len(record.Destination), maxShort)
	case len(record.ContentType) > maxShort:
		return amqp.Publishing{}, fmt.Errorf("the content type has %d bytes, at most %d are allowed", len(record.ContentType), maxShort)
	case frameSize > 0 && size > frameSize:
		return amqp.Publishing{}, fmt.Errorf("attributes and headers have %d bytes, at most %d fit into a frame", size, frameSize)
	}
	return amqp.Publishing{
		Headers: table, ContentType: record.ContentType, MessageId: id, DeliveryMode: amqp.Persistent, Body: record.Body,
	}, nil
}

// record is what a message is to a relay.
func record(m *amqp.Delivery) relay.Record {
	r := relay.Record{Destination: m.RoutingKey, ID: m.MessageId, ContentType: m.ContentType, Body: m.Body}
	if r.Body == nil {
		r.Body = []byte{}
	}
	key, keyed := "", false
	for name, any := range m.Headers {
		value, ok := text(any)
		if !ok {
			continue // a table or an array: no sender of records has those
		}
		switch {
		case strings.HasPrefix(name, attributePrefix), strings.HasPrefix(name, colonPrefix):
			put(&r.Attributes, name[len(attributePrefix):], value)
		case name == idHeader:
			r.ID = value
		case name == keyHeader:
			key, keyed = value, true
		case name == tombstoneHeader:
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

// text is the value of a header, of other senders maybe, as a text.
func text(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	case amqp.Table, []any, nil:
		return "", false
	}
	return fmt.Sprint(value), true
}

func put(m *map[string]string, name, value string) {
	if *m == nil {
		*m = make(map[string]string)
	}
	(*m)[name] = value
}

// isReserved reports whether a header's name means something to RabbitMQ, to CloudEvents or to us.
func isReserved(name string) bool {
	for _, prefix := range []string{attributePrefix, colonPrefix, ownPrefix, "x-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return name == "CC" || name == "BCC"
}
