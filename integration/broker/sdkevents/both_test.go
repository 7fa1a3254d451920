package sdkevents_test

import (
	"context"
	"maps"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/broker"

	sdk "github.com/cloudevents/sdk-go/v2/event"

	"github.com/asyncmonolith/asyncmonolith-go/integration/broker/sdkevents"
)

// example is an event, and a header beside it.
type example struct {
	id, source, kind, key, name, value string
	data                               []byte
}

// seed adds what no protocol has trouble with, and what any may.
func seed(f *testing.F) {
	f.Helper()
	f.Add("1", "/shop/orders", "order.placed", "customer:1", "tenant", "acme", []byte(`{"id":"1"}`))
	f.Add("é \"' <&>%41", "https://shop.example/o?a=b", "a b", "ключ", "odd name", "a\r\nb", []byte("\xff\x00"))
}

// fuzz runs test with each example that the SDK allows.
func fuzz(f *testing.F, test func(t *testing.T, e example)) {
	f.Helper()
	f.Fuzz(func(t *testing.T, id, source, kind, key, name, value string, data []byte) {
		if sdkevents.Allowed(id, source, kind, key) && sdkevents.IsURI(source) {
			test(t, example{id, source, kind, key, name, value, data})
		}
	})
}

// record is the event as a relay sends it.
func (e example) record(destination string) broker.Record {
	return broker.Record{
		Destination: destination, Key: e.key, ID: e.id, ContentType: "application/json", Body: e.data,
		Headers:    map[string]string{e.name: e.value},
		Attributes: map[string]string{"specversion": "1.0", "id": e.id, "source": e.source, "type": e.kind, "partitionkey": e.key},
	}
}

// event is the same as the SDK has it.
func (e example) event() sdk.Event {
	event := sdk.New()
	event.SetID(e.id)
	event.SetSource(e.source)
	event.SetType(e.kind)
	event.SetExtension("partitionkey", e.key)
	event.SetDataContentType("application/json")
	event.DataEncoded = e.data
	return event
}

// isIn tells whether the SDK has read it.
func (e example) isIn(read *sdk.Event) bool {
	return read.ID() == e.id && read.Source() == e.source && read.Type() == e.kind && read.Extensions()["partitionkey"] == e.key &&
		len(read.Extensions()) == 1 &&
		read.DataContentType() == "application/json" && string(read.Data()) == string(e.data)
}

// subscribed brings what comes, one record after another, until the end of the test.
func subscribed(f *testing.F, subscriber broker.Subscriber) <-chan broker.Record {
	f.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	records, ended := make(chan broker.Record), make(chan error, 1)
	go func() {
		ended <- subscriber.Subscribe(ctx, func(ctx context.Context, batch []broker.Record) error {
			for _, r := range batch {
				select {
				case records <- r:
				case <-ctx.Done():
				}
			}
			return nil
		})
	}()
	f.Cleanup(func() { cancel(); <-ended })
	return records
}

func equal(t *testing.T, got, want broker.Record) {
	t.Helper()
	if got.Destination != want.Destination || got.Key != want.Key || got.ID != want.ID || got.ContentType != want.ContentType ||
		string(got.Body) != string(want.Body) || !maps.Equal(got.Attributes, want.Attributes) || !maps.Equal(got.Headers, want.Headers) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
