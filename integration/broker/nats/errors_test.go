//go:build unix

package nats_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"

	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
)

func TestConnectionsThatLoseOrDoubleAreRefused(t *testing.T) {
	servers := brokers.StartNATS(t, 1)
	nc, err := nats.Connect(servers.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_, err = amnats.NewPublisher(nc, amnats.PublisherConfig{Timeout: -1})
	wantText(t, "a plain connection", err, "MaxReconnects(-1)", "ReconnectBufSize(-1)", "Timeout")
	_, err = amnats.NewSubscriber(nil, amnats.SubscriberConfig{Batch: -1})
	wantText(t, "no connection", err, "connection is nil", "Stream", "Consumer", "Batch")
}

func TestConsumersThatLoseAreRefused(t *testing.T) {
	at := newPlace(t, brokers.StartNATS(t, 1), 1)
	for name, c := range map[string]struct {
		config jetstream.ConsumerConfig
		want   string
	}{
		"drops":  {jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 3}, "max_deliver"},
		"forget": {jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, "explicit"},
		"bare":   {jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, HeadersOnly: true}, "headers_only"},
	} {
		c.config.Durable = name
		testapp.OK(t, testapp.Second(at.stream.CreateOrUpdateConsumer(t.Context(), c.config)))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // it does not end if it is not refused
		wantText(t, name, at.subscriber(t, name).Subscribe(ctx, never), c.want, name)
		cancel()
	}
	wantText(t, "none", at.subscriber(t, "none").Subscribe(t.Context(), never), "consumer not found", "none")
}

func never(context.Context, []broker.Record) error { return errors.New("there is nothing to bring") }

func TestSubscribeEndsWhenItsConsumerIsDeleted(t *testing.T) {
	at := newPlace(t, brokers.StartNATS(t, 1), 1)
	ended := make(chan error, 1)
	brought := make(chan struct{}, 1)
	go func() {
		ended <- at.subscriber(t, "all").Subscribe(t.Context(), func(context.Context, []broker.Record) error {
			brought <- struct{}{}
			return nil
		})
	}()
	testapp.OK(t, errors.Join(at.publisher.Publish(t.Context(), []broker.Record{{Destination: at.name + ".x", ID: "1"}})...))
	<-brought
	testapp.OK(t, at.stream.DeleteConsumer(t.Context(), "all"))
	wantText(t, "a consumer that is deleted", <-ended, "consumer not found")
}

func TestCheckTellsWhatIsWrongWithStreams(t *testing.T) {
	at := newPlace(t, brokers.StartNATS(t, 1), 1)
	for _, config := range []jetstream.StreamConfig{
		{Name: "SILENT", Subjects: []string{"silent"}, NoAck: true},
		{Name: "SHORT", Subjects: []string{"short"}, Duplicates: 200 * time.Millisecond},
	} {
		testapp.OK(t, testapp.Second(at.js.CreateStream(t.Context(), config)))
	}
	if err := at.publisher.Check(t.Context(), at.name+".placed"); err != nil {
		t.Errorf("a good stream: got %v, want nil", err)
	}
	err := at.publisher.Check(t.Context(), "silent", "short", "nowhere")
	wantText(t, "bad streams", err, "no_ack", "200ms", `"nowhere"`, "stream not found")
}

func TestRecordsOfOneIDAreKeptOnce(t *testing.T) {
	at := newPlace(t, brokers.StartNATS(t, 1), 1)
	record := broker.Record{Destination: at.name + ".x", ID: "same\nid"}
	for range 3 {
		testapp.OK(t, errors.Join(at.publisher.Publish(t.Context(), []broker.Record{record, record})...))
	}
	if info, err := at.stream.Info(t.Context()); err != nil || info.State.Msgs != 1 {
		t.Errorf("got %d messages and %v, want 1", info.State.Msgs, err)
	}
}

func TestLimitsOfStreamsHaveTheirClasses(t *testing.T) {
	at := newPlace(t, brokers.StartNATS(t, 1), 1)
	for _, config := range []jetstream.StreamConfig{
		{Name: "SMALL", Subjects: []string{"small"}, MaxMsgSize: 1000},
		{Name: "FULL", Subjects: []string{"full"}, MaxMsgs: 1, Discard: jetstream.DiscardNew},
		{Name: "SILENT", Subjects: []string{"silent"}, NoAck: true},
	} {
		testapp.OK(t, testapp.Second(at.js.CreateStream(t.Context(), config)))
	}
	large := []byte(strings.Repeat("x", 2000))
	errs := at.publisher.Publish(t.Context(), []broker.Record{
		{Destination: "small", ID: "1", Body: large},
		{Destination: "full", ID: "2"}, {Destination: "full", ID: "3"},
		{Destination: "", ID: "4"}, {Destination: "two words", ID: "5"}, {Destination: "small", ID: "6"},
	})
	for i, want := range []error{broker.ErrRejected, nil, broker.ErrNoDestination, broker.ErrRejected, broker.ErrRejected, nil} {
		if !errors.Is(errs[i], want) {
			t.Errorf("record %d: got %v, want %v", i, errs[i], want)
		}
	}
	if err := at.publisher.Publish(t.Context(), []broker.Record{{Destination: "silent", ID: "7"}})[0]; !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("a stream that does not acknowledge: got %v, want ErrUnavailable", err)
	}
}

// TestSubjectsThatNoStreamCanHaveAreRefused: a payload may be what they are made of. Taken for a stream
// without a leader they would open the circuit of all others, and a server that gets one which is too
// long ends the connection.
func TestSubjectsThatNoStreamCanHaveAreRefused(t *testing.T) {
	at := newPlace(t, brokers.StartNATS(t, 1), 1)
	shelf, appender := newShelf(t, at.servers, 1)
	long := strings.Repeat("x", 4100)
	for _, subject := range []string{at.name + "..x", at.name + ".", "." + at.name, at.name + ".*", at.name + ".>",
		at.name + ".a\r\nb", at.name + "." + long, "$JS.API.STREAM.PURGE." + at.name} {
		good := broker.Record{Destination: at.name + ".x", ID: subject + " beside"}
		errs := at.publisher.Publish(t.Context(), []broker.Record{{Destination: subject, ID: subject}, good})
		if !errors.Is(errs[0], broker.ErrRejected) || errs[1] != nil {
			t.Errorf("%.60q: got %v, want ErrRejected, and nil for the other", subject, errs)
		}
	}
	records := numbered(1, 1)
	records[0].Destination = long
	if _, err := appender.Append(t.Context(), 0, 0, records); !errors.Is(err, broker.ErrRejected) || !shelf.nc.IsConnected() {
		t.Errorf("an appender: got %v, want ErrRejected", err)
	}
}

func wantText(t *testing.T, what string, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: got %v, want %q said", what, err, part)
		}
	}
}
