package watermill

import (
	"maps"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/asyncmonolith/asyncmonolith-go/relay"
	"github.com/asyncmonolith/asyncmonolith-go/relay/internal/adapter"
)

// onTheWire is how metadata carries text.
func onTheWire() adapter.Wire {
	return adapter.Wire{
		Attributes: []string{"ce-"}, ContentType: "content-type",
		Reserved: func(name string) bool { return strings.HasPrefix(name, "_watermill_") },
	}
}

// toMessage is what a record is to Watermill. It has a body of its own: subscribers may share it.
func toMessage(record relay.Record) *message.Message {
	m := message.NewMessage(record.ID, append(message.Payload{}, record.Body...))
	onTheWire().Write(record, m.Metadata.Set)
	return m
}

// toRecord is what a message is to a relay.
func toRecord(topic string, m *message.Message) relay.Record {
	r := relay.Record{Destination: topic, ID: m.UUID, Body: append([]byte{}, m.Payload...)}
	onTheWire().Read(&r, maps.All(m.Metadata))
	return r
}
