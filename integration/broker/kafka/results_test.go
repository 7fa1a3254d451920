//go:build unix

package kafka_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/broker/kafka"
	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// TestATopicWithALowerLimitRefusesOnlyWhatIsAboveIt: a broker says that it is too large of all that
// came in one request.
func TestATopicWithALowerLimitRefusesOnlyWhatIsAboveIt(t *testing.T) {
	fake := brokers.StartKfake(t, 1)
	topic := rand.Text()
	createTopic(t, fake, topic, 1, "max.message.bytes", "20000")
	publisher := newPublisher(t, fake, 5*time.Second)
	records := make([]broker.Record, 100)
	for i := range records {
		records[i] = broker.Record{Destination: topic, ID: rand.Text(), Body: []byte(strings.Repeat(rand.Text(), 40))}
	}
	records[50].Body = make([]byte, 50_000)
	if _, err := rand.Read(records[50].Body); err != nil { // what compresses well may fit
		t.Fatal(err)
	}
	for i, err := range publisher.Publish(t.Context(), records) {
		if want := i == 50; errors.Is(err, broker.ErrRejected) != want || !want && err != nil {
			t.Errorf("record %d: got %v, want it refused: %t", i, err, want)
		}
	}
}

func TestConfigurationsAreChecked(t *testing.T) {
	t.Parallel()
	if _, err := kafka.NewPublisher(kafka.PublisherConfig{Timeout: -1}); err == nil || !strings.Contains(err.Error(), "Brokers") ||
		!strings.Contains(err.Error(), "Timeout") {
		t.Errorf("a publisher without brokers and with a negative timeout: got %v, want both said", err)
	}
	_, err := kafka.NewSubscriber(kafka.SubscriberConfig{Batch: -1})
	for _, want := range []string{"Brokers", "Group", "Topics", "Batch"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("an empty subscriber: got %v, want %s said", err, want)
		}
	}
}

// TestWrongCredentialsAreSaid: a publisher waits, since passwords change, and a subscriber ends.
func TestWrongCredentialsAreSaid(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "right"),
		kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	// The fake hangs up; Kafka says why.
	cluster.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		request := r.(*kmsg.SASLAuthenticateRequest)
		if bytes.HasSuffix(request.SASLAuthBytes, []byte("right")) {
			return nil, nil, false
		}
		response := request.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		response.ErrorCode = kerr.SaslAuthenticationFailed.Code
		return response, nil, true
	})
	with := func(password string) []kgo.Opt {
		return []kgo.Opt{kgo.SASL(plain.Auth{User: "u", Pass: password}.AsMechanism())}
	}
	for _, password := range []string{"right", "secret"} {
		publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: cluster.ListenAddrs(), Options: with(password),
			Timeout: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer publisher.Close()
		publisher.OnReconnect(func() {})
		for range 10 { // the first only finds that there is no answer
			err = publisher.Publish(t.Context(), []broker.Record{{Destination: "orders", ID: "1"}})[0]
			if err == nil || errors.Is(err, kerr.SaslAuthenticationFailed) {
				break
			}
		}
		if password == "right" {
			if err != nil {
				t.Errorf("the right password: got %v, want nil", err)
			}
			continue
		}
		if !errors.Is(err, broker.ErrUnavailable) || !errors.Is(err, kerr.SaslAuthenticationFailed) || strings.Contains(err.Error(), password) {
			t.Errorf("Publish: got %v, want ErrUnavailable and the credentials blamed, and not told", err)
		}
		subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{Brokers: cluster.ListenAddrs(), Group: "g",
			Topics: []string{"orders"}, Options: with(password)})
		if err != nil {
			t.Fatal(err)
		}
		err = subscriber.Subscribe(t.Context(), func(context.Context, []broker.Record) error { return nil })
		if !errors.Is(err, kerr.SaslAuthenticationFailed) || strings.Contains(err.Error(), password) {
			t.Errorf("Subscribe: got %v, want the credentials blamed, and not told", err)
		}
	}
}

// TestNothingIsLostWhenMembersComeAndGo: partitions move from one subscriber to another while records
// are in hand.
func TestNothingIsLostWhenMembersComeAndGo(t *testing.T) {
	fake := brokers.StartKfake(t, 3)
	topic := rand.Text()
	createTopic(t, fake, topic, 6)
	publisher := newPublisher(t, fake, 5*time.Second)
	var (
		mu      sync.Mutex
		taken   = make(map[string]bool)
		calls   int
		members sync.WaitGroup
	)
	const batches, size = 40, 50
	all, done := context.WithCancel(t.Context())
	defer done()
	answer := func(_ context.Context, records []broker.Record) error {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls%7 == 0 {
			return errors.New("given back")
		}
		for _, record := range records {
			taken[record.ID] = true
		}
		if len(taken) == batches*size {
			done()
		}
		return nil
	}
	join := func(ctx context.Context) {
		members.Go(func() {
			if err := newSubscriber(t, fake, "members", topic).Subscribe(ctx, answer); err != nil {
				t.Error(err)
			}
		})
	}
	join(all)
	for range batches {
		records := make([]broker.Record, size)
		for i := range records {
			records[i] = broker.Record{Destination: topic, ID: rand.Text(), Key: rand.Text()}
		}
		testapp.OK(t, errors.Join(publisher.Publish(t.Context(), records)...))
		brief, leave := context.WithTimeout(all, 300*time.Millisecond)
		defer leave()
		join(brief)
		<-time.After(50 * time.Millisecond) // members overlap
	}
	select {
	case <-all.Done():
	case <-time.After(time.Minute):
		mu.Lock()
		t.Errorf("%d of %d records were taken after a minute", len(taken), batches*size)
		mu.Unlock()
		done()
	}
	members.Wait()
}

// TestWhatASenderHasTakenBackIsNotBrought: other senders publish in transactions, and may abort them.
func TestWhatASenderHasTakenBackIsNotBrought(t *testing.T) {
	fake := brokers.StartKfake(t, 1)
	topic := rand.Text()
	createTopic(t, fake, topic, 1)
	sender, err := kgo.NewClient(kgo.SeedBrokers(fake.Brokers()...), kgo.TransactionalID(topic), kgo.DefaultProduceTopic(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	for body, end := range map[string]kgo.TransactionEndTry{"taken back": kgo.TryAbort, "kept": kgo.TryCommit} {
		testapp.OK(t, sender.BeginTransaction())
		err := sender.ProduceSync(t.Context(), kgo.StringRecord(body)).FirstErr()
		testapp.OK(t, errors.Join(err, sender.EndTransaction(t.Context(), end)))
	}
	var got []string
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	publisher := newPublisher(t, fake, 5*time.Second)
	testapp.OK(t, publisher.Publish(t.Context(), []broker.Record{{Destination: topic, ID: "1", Body: []byte("last")}})[0])
	err = newSubscriber(t, fake, "group-"+topic, topic).Subscribe(ctx, func(_ context.Context, records []broker.Record) error {
		for _, r := range records {
			if got = append(got, string(r.Body)); got[len(got)-1] == "last" {
				cancel()
			}
		}
		return nil
	})
	if want := []string{"kept", "last"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
