package rabbitmq

import (
	"fmt"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/broker"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/asyncmonolith/asyncmonolith-go/broker/internal/adapter"
)

// onTheWire is how headers carry text.
func onTheWire() adapter.Wire {
	return adapter.Wire{
		Attributes: []string{"cloudEvents_", "cloudEvents:"}, // the second is of other senders
		Reserved:   func(name string) bool { return name == "CC" || name == "BCC" || strings.HasPrefix(name, "x-") },
	}
}

// maxShort is the length in bytes of what AMQP calls a short string: names and properties.
const maxShort = 255

// message is what a record is to RabbitMQ, if it fits.
func message(record broker.Record, frameSize int) (amqp.Publishing, error) {
	table := make(amqp.Table, len(record.Attributes)+len(record.Headers)+3)
	onTheWire().Write(record, func(name, value string) { table[name] = value })
	id := record.ID
	if len(id) > maxShort {
		table[adapter.IDHeader], id = id, ""
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
func record(m *amqp.Delivery) broker.Record {
	r := broker.Record{Destination: m.RoutingKey, ID: m.MessageId, ContentType: m.ContentType, Body: m.Body}
	if r.Body == nil {
		r.Body = []byte{}
	}
	onTheWire().Read(&r, func(yield func(name, value string) bool) {
		for name, any := range m.Headers {
			// A table or an array: no sender of records has those.
			if value, ok := text(any); ok && !yield(name, value) {
				return
			}
		}
	})
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
