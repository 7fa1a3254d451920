package sdkevents_test

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/broker/kafka"
	"github.com/asyncmonolith/asyncmonolith-go/integration/broker/sdkevents"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// FuzzKafka: what the adapter writes the SDK of CloudEvents reads, and the other way round.
func FuzzKafka(f *testing.F) {
	seed(f)
	f.Add("1", "/", "t", "k", "ce_id", "x", []byte{})
	f.Add("1", "/", "t", "k", "asyncmonolith-h-content-type", "%zz", []byte{})
	const topic = "events"
	fake := testapp.Must[*kfake.Cluster](f)(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic)))
	f.Cleanup(fake.Close)
	addresses := fake.ListenAddrs()
	publisher := testapp.Must[*kafka.Publisher](f)(kafka.NewPublisher(kafka.PublisherConfig{Brokers: addresses, Timeout: 10 * time.Second}))
	f.Cleanup(publisher.Close)
	raw := testapp.Must[*kgo.Client](f)(kgo.NewClient(kgo.SeedBrokers(addresses...), kgo.ConsumeTopics(topic), kgo.ProducerLinger(0)))
	f.Cleanup(raw.Close)
	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{Brokers: addresses, Group: "events", Topics: []string{topic}})
	if err != nil {
		f.Fatal(err)
	}
	records := subscribed(f, subscriber)
	protocol := sdkevents.Protocol{Prefix: "ce_", ContentType: "content-type"}
	fuzz(f, func(t *testing.T, e example) {
		sent := e.record(topic)
		if errs := publisher.Publish(t.Context(), []broker.Record{sent}); len(errs) > 0 && errs[0] != nil {
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
		if !e.isIn(read) || string(m.Key) != e.key {
			t.Errorf("the SDK: got %s of %q, want %q", read, headers, sent)
		}
		equal(t, <-records, sent)

		headers, body, err := protocol.Write(e.event())
		if err != nil {
			t.Fatal(err)
		}
		others := &kgo.Record{Topic: topic, Key: []byte(e.key), Value: body}
		for name, value := range headers {
			others.Headers = append(others.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		isOurs := strings.HasPrefix(e.name, "ce_") || strings.HasPrefix(e.name, "asyncmonolith-") || e.name == "content-type"
		if sent.Headers = nil; !isOurs {
			others.Headers = append(others.Headers, kgo.RecordHeader{Key: e.name, Value: []byte(e.value)})
			sent.Headers = map[string]string{e.name: e.value}
		}
		testapp.OK(t, raw.ProduceSync(t.Context(), others).FirstErr())
		nextRaw(t, raw)
		equal(t, <-records, sent)
	})
}

// nextRaw is what is on the wire.
func nextRaw(t *testing.T, raw *kgo.Client) *kgo.Record {
	t.Helper()
	fetches := raw.PollRecords(t.Context(), 1)
	testapp.OK(t, fetches.Err())
	return fetches.Records()[0]
}
