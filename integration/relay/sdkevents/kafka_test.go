package sdkevents_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/asyncmonolith/asyncmonolith-go/integration/relay/sdkevents"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
	"github.com/asyncmonolith/asyncmonolith-go/relay/kafka"
)

// FuzzKafka: what the adapter writes the SDK of CloudEvents reads, and the other way round.
func FuzzKafka(f *testing.F) {
	f.Add("1", "/shop/orders", "order.placed", "customer:1", "tenant", "acme", []byte(`{"id":"1"}`))
	f.Add("é \"' <&>%41", "https://shop.example/o?a=b", "a b", "ключ", "odd name", "a\r\nb", []byte("\xff\x00"))
	f.Add("1", "/", "t", "k", "ce_id", "x", []byte{})
	f.Add("1", "/", "t", "k", "asyncmonolith-h-content-type", "%zz", []byte{})
	const topic = "events"
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(fake.Close)
	addresses := fake.ListenAddrs()
	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: addresses, Timeout: 10 * time.Second})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(publisher.Close)
	raw, err := kgo.NewClient(kgo.SeedBrokers(addresses...), kgo.ConsumeTopics(topic), kgo.ProducerLinger(0))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(raw.Close)
	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{Brokers: addresses, Group: "events", Topics: []string{topic}})
	if err != nil {
		f.Fatal(err)
	}
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
	protocol := sdkevents.Protocol{Prefix: "ce_", ContentType: "content-type"}
	f.Fuzz(func(t *testing.T, id, source, kind, key, name, value string, data []byte) {
		if !sdkevents.Allowed(id, source, kind, key) || !sdkevents.IsURI(source) {
			return
		}
		sent := relay.Record{
			Destination: topic, Key: key, ID: id, ContentType: "application/json", Body: data, Headers: map[string]string{name: value},
			Attributes: map[string]string{"specversion": "1.0", "id": id, "source": source, "type": kind, "partitionkey": key},
		}
		if errs := publisher.Publish(t.Context(), []relay.Record{sent}); len(errs) > 0 && errs[0] != nil {
			t.Fatal(errs[0])
		}
		m := nextRaw(t, raw)
		headers := make(map[string]string)
		for _, h := range m.Headers {
			headers[h.Key] = string(h.Value)
		}
		read, err := protocol.Read(headers, m.Value)
		if err != nil {
			t.Fatalf("the SDK: got %v of %q, want it read", err, headers)
		}
		if read.ID() != id || read.Source() != source || read.Type() != kind || read.Extensions()["partitionkey"] != key || len(read.Extensions()) != 1 ||
			read.DataContentType() != "application/json" || string(read.Data()) != string(data) || string(m.Key) != key {
			t.Errorf("the SDK: got %s of %q, want %q", read, headers, sent)
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
		others := &kgo.Record{Topic: topic, Key: []byte(key), Value: body}
		for name, value := range headers {
			others.Headers = append(others.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		isOurs := strings.HasPrefix(name, "ce_") || strings.HasPrefix(name, "asyncmonolith-") || name == "content-type"
		if sent.Headers = nil; !isOurs {
			others.Headers = append(others.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
			sent.Headers = map[string]string{name: value}
		}
		if err := raw.ProduceSync(t.Context(), others).FirstErr(); err != nil {
			t.Fatal(err)
		}
		nextRaw(t, raw)
		equal(t, <-records, sent)
	})
}

// nextRaw is what is on the wire.
func nextRaw(t *testing.T, raw *kgo.Client) *kgo.Record {
	t.Helper()
	fetches := raw.PollRecords(t.Context(), 1)
	if err := fetches.Err(); err != nil {
		t.Fatal(err)
	}
	return fetches.Records()[0]
}

func equal(t *testing.T, got, want relay.Record) {
	t.Helper()
	if got.Destination != want.Destination || got.Key != want.Key || got.ID != want.ID || got.ContentType != want.ContentType ||
		string(got.Body) != string(want.Body) || !maps.Equal(got.Attributes, want.Attributes) || !maps.Equal(got.Headers, want.Headers) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
