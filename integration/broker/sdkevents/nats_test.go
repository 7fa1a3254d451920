package sdkevents_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/integration/broker/sdkevents"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"

	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
)

// FuzzNATS: what the adapter writes the SDK of CloudEvents reads, and the other way round.
// Attributes are percent-encoded as those of HTTP are, which the SDK leaves to others.
func FuzzNATS(f *testing.F) {
	seed(f)
	f.Add("1", "/", "t", "k", "Ce-Id", "x", []byte{})
	f.Add("1", "/", "t", "k", "Nats-Rollup", "all", []byte{})
	f.Add("1", "/", "t", "k", "Content-Type", "text/plain", []byte{})
	fake := new(fakeNATS)
	nc := testapp.Must[*nats.Conn](f)(nats.Connect("", append(amnats.Options(), nats.InProcessServer(fake))...))
	f.Cleanup(func() { nc.Close(); fake.running.Wait() })
	publisher := testapp.Must[*amnats.Publisher](f)(amnats.NewPublisher(nc, amnats.PublisherConfig{}))
	subscriber, err := amnats.NewSubscriber(nc, amnats.SubscriberConfig{Stream: fakeStream, Consumer: fakeConsumer})
	if err != nil {
		f.Fatal(err)
	}
	raw := make(chan *nats.Msg, 8)
	testapp.OK(f, testapp.Second(nc.ChanSubscribe(fakeSubject, raw)))
	records := subscribed(f, subscriber)
	protocol := sdkevents.Protocol{Prefix: "ce-", ContentType: "Content-Type"}
	fuzz(f, func(t *testing.T, e example) {
		sent := e.record(fakeSubject)
		if errs := publisher.Publish(t.Context(), []broker.Record{sent}); len(errs) > 0 && errs[0] != nil {
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
		if !e.isIn(read) {
			t.Errorf("the SDK: got %s of %q, want %+v", read, headers, sent)
		}
		equal(t, <-records, sent)

		headers, body, err := protocol.Write(e.event())
		if err != nil {
			t.Fatal(err)
		}
		others := &nats.Msg{Subject: fakeSubject, Header: nats.Header{}, Data: body}
		for name, value := range headers {
			if strings.HasPrefix(name, "ce-") {
				value = url.PathEscape(value)
			}
			others.Header[name] = []string{value}
		}
		testapp.OK(t, nc.PublishMsg(others))
		<-raw
		sent.Headers = nil
		sent.ID = "" // it is not the event's, but Nats-Msg-Id
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
