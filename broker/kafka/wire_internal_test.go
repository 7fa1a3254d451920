package kafka

import (
	"maps"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// This test is internal: it looks at what is on the wire, which Kafka shows to others.
func TestHeadersAreThoseOfCloudEvents(t *testing.T) {
	t.Parallel()
	m := message(broker.Record{
		Destination: "orders", ID: "17", ContentType: "application/json", Key: "customer",
		Attributes: map[string]string{"id": "17", "type": "Placed"},
		Headers:    map[string]string{"traceparent": "00-ab-cd-01", "ce_type": "other"},
	})
	got := make(map[string]string)
	for _, header := range m.Headers {
		got[header.Key] = string(header.Value)
	}
	want := map[string]string{
		"ce_id": "17", "ce_type": "Placed", "content-type": "application/json", "traceparent": "00-ab-cd-01", "asyncmonolith-h-ce_type": "other",
	}
	if !maps.Equal(got, want) || string(m.Key) != "customer" || m.Value != nil {
		t.Errorf("got %q, key %q, value %v; want %q, the key and no value", got, m.Key, m.Value, want)
	}
}
