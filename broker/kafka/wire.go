package kafka

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/broker/internal/adapter"
)

// onTheWire is how headers carry text.
func onTheWire() adapter.Wire {
	return adapter.Wire{Attributes: []string{"ce_"}, ContentType: "content-type", Keyed: true}
}

// message is what a record is to Kafka.
func message(record broker.Record) *kgo.Record {
	m := &kgo.Record{Topic: record.Destination, Value: record.Body}
	if record.Key != "" {
		m.Key = []byte(record.Key)
	}
	set := func(name, value string) {
		m.Headers = append(m.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	onTheWire().Write(record, set)
	if record.ID != record.Attributes["id"] {
		set(adapter.IDHeader, record.ID)
	}
	return m
}

// record is what a message is to a relay. Of headers with the same name the last counts.
func record(m *kgo.Record) broker.Record {
	r := broker.Record{Destination: m.Topic, Key: string(m.Key), Body: m.Value}
	named := false
	onTheWire().Read(&r, func(yield func(name, value string) bool) {
		for _, header := range m.Headers {
			named = named || header.Key == adapter.IDHeader
			if !yield(header.Key, string(header.Value)) {
				return
			}
		}
	})
	if !named {
		r.ID = r.Attributes["id"]
	}
	return r
}
