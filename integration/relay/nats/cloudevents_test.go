//go:build unix

package nats_test

import (
	"context"
	"maps"
	"net/url"
	"strings"
	"testing"

	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"

	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/relay/sdkevents"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// FuzzCloudEvents: what the adapter writes the SDK of CloudEvents reads, and the other way round.
// Attributes are percent-encoded as those of HTTP are, which the SDK leaves to others.
func FuzzCloudEvents(f *testing.F) {
	f.Add("1", "/shop/orders", "order.placed", "customer:1", "tenant", "acme", []byte(`{"id":"1"}`))
	f.Add("é \"' <&>%41", "https://shop.example/o?a=b", "a b", "ключ", "odd name", "a\r\nb", []byte("\xff\x00"))
	f.Add("1", "/", "t", "k", "Ce-Id", "x", []byte{})
	f.Add("1", "/", "t", "k", "Nats-Rollup", "all", []byte{})
	f.Add("1", "/", "t", "k", "Content-Type", "text/plain", []byte{})
	at := newPlace(f, brokers.StartNATS(f, 1), 1)
	subject := at.name + ".event"
	raw := make(chan *nats.Msg, 8)
	if _, err := at.nc.ChanSubscribe(subject, raw); err != nil {
		f.Fatal(err)
	}
	subscriber := at.subscriber(f, "all")
	ctx, cancel := context.WithCancel(context.Background())
	records, ended := make(chan relay.Record), make(chan error, 1)
	go func() {
		ended <- subscriber.Subscribe(ctx, func(ctx context.Context, batch []relay.Record) error {
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
	protocol := sdkevents.Protocol{Prefix: "ce-", ContentType: "Content-Type"}
	f.Fuzz(func(t *testing.T, id, source, kind, key, name, value string, data []byte) {
		if !sdkevents.Allowed(id, source, kind, key) || !sdkevents.IsURI(source) {
			return
		}
		sent := relay.Record{
			Destination: subject, Key: key, ContentType: "application/json", Body: data, Headers: map[string]string{name: value},
			Attributes: map[string]string{"specversion": "1.0", "id": id, "source": source, "type": kind, "partitionkey": key},
		}
		if errs := at.publisher.Publish(t.Context(), []relay.Record{sent}); len(errs) > 0 && errs[0] != nil {
			t.Fatal(errs[0])
		}
		m := <-raw
		headers := make(map[string]string)
		for name, values := range m.Header {
			if headers[name] = values[0]; strings.HasPrefix(name, "ce-") {
				headers[name] = decoded(t, values[0])
			}
		}
		read, err := protocol.Read(headers, m.Data)
		if err != nil {
			t.Fatalf("the SDK: got %v of %q, want it read", err, headers)
		}
		if read.ID() != id || read.Source() != source || read.Type() != kind || read.Extensions()["partitionkey"] != key || len(read.Extensions()) != 1 ||
			read.DataContentType() != "application/json" || string(read.Data()) != string(data) {
			t.Errorf("the SDK: got %s of %q, want %+v", read, headers, sent)
		}
		equal(t, <-records, sent)

		event := sdk.New()
		event.SetID(id)
		event.SetSource(source)
		event.SetType(kind)
		event.SetExtension("partitionkey", key)
		event.SetDataContentType("application/json")
		event.DataEncoded = data
		headers, body, err := protocol.Write(event)
		if err != nil {
			t.Fatal(err)
		}
		others := &nats.Msg{Subject: subject, Header: nats.Header{}, Data: body}
		for name, value := range headers {
			if strings.HasPrefix(name, "ce-") {
				value = url.PathEscape(value)
			}
			others.Header[name] = []string{value}
		}
		if err := at.nc.PublishMsg(others); err != nil {
			t.Fatal(err)
		}
		<-raw
		sent.Headers = nil
		equal(t, <-records, sent)
	})
}

func decoded(t *testing.T, text string) string {
	t.Helper()
	plain, err := url.PathUnescape(text)
	if err != nil {
		t.Fatalf("%q is not percent-encoded: %v", text, err)
	}
	return plain
}

func equal(t *testing.T, got, want relay.Record) {
	t.Helper()
	if got.Destination != want.Destination || got.Key != want.Key || got.ContentType != want.ContentType ||
		string(got.Body) != string(want.Body) || !maps.Equal(got.Attributes, want.Attributes) || !maps.Equal(got.Headers, want.Headers) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
