package guide_test

import (
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/examples/guide"
)

func TestRecordsOfDebezium(t *testing.T) {
	headers := map[string]string{"id": "i", "eventType": "order.placed", "tenant": "a"}
	record := broker.Record{Destination: "outbox.event.order", Key: "7", Headers: headers, Body: []byte(`"{\"a\":1}"`)}
	mapped, err := guide.FromDebezium(record)
	if err != nil || mapped.Attributes["id"] != "i" || mapped.Attributes["type"] != "order.placed" ||
		mapped.Attributes["source"] != "/debezium/outbox.event.order" || mapped.Key != "7" || string(mapped.Body) != `{"a":1}` {
		t.Errorf("got %+v, error %v, want the event", mapped, err)
	}
	if mapped, err := guide.FromDebezium(broker.Record{Destination: "outbox.event.order", Key: "1"}); err != nil ||
		mapped.Attributes != nil || mapped.Body != nil {
		t.Errorf("a tombstone: got %+v, error %v, want it empty, and so ignored", mapped, err)
	}
	if _, err := guide.FromDebezium(broker.Record{Headers: map[string]string{"id": "i"}, Body: []byte("{}")}); err == nil {
		t.Error("without a type: got no error, want one")
	}
	for body, want := range map[string]string{
		`{"a":1}`: `{"a":1}`,
		`{"schema":{"type":"string"},"payload":"{\"a\":1}"}`: `{"a":1}`,
		`{"schema":{"type":"string"},"payload":null}`:        `null`,
		// An envelope of the application's own is its payload.
		`{"schema":{},"payload":{"a":1}}`:   `{"schema":{},"payload":{"a":1}}`,
		`{"schema":"v2","payload":{"a":1}}`: `{"schema":"v2","payload":{"a":1}}`,
		`{"Schema":null,"Payload":{}}`:      `{"Schema":null,"Payload":{}}`,
		`"text"`:                            `"text"`,
		``:                                  ``,
		`{`:                                 `{`,
	} {
		mapped, err := guide.FromDebezium(broker.Record{Headers: headers, Body: []byte(body)})
		if err != nil || string(mapped.Body) != want {
			t.Errorf("%s: got %s, error %v, want %s", body, mapped.Body, err, want)
		}
	}
}
