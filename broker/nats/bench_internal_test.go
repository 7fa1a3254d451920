package nats

import (
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// BenchmarkMessage makes a message of a record of a relay.
func BenchmarkMessage(b *testing.B) {
	r := broker.Record{
		Destination: "orders.placed", ID: "01890f5e-7b3c-7cc0-98c4-dc0c0c07398f/to-broker", ContentType: "application/json",
		Body: make([]byte, 120),
		Attributes: map[string]string{"specversion": "1.0", "id": "01890f5e-7b3c-7cc0-98c4-dc0c0c07398f", "source": "/orders",
			"type": "order.placed", "time": "2026-01-02T03:04:05.678901Z"},
		Headers: map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"},
	}
	b.ReportAllocs()
	for b.Loop() {
		message(r, "inbox.1")
	}
}
