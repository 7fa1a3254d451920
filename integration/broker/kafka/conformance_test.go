//go:build unix

package kafka_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/asyncmonolith/asyncmonolith-go/broker/brokertest"
	"github.com/asyncmonolith/asyncmonolith-go/broker/kafka"
	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// TestConformance runs the suite on kfake, a fake: what it says of replication is nothing.
func TestConformance(t *testing.T) {
	fake := brokers.StartKfake(t, 3)
	brokertest.Run(t, func(t *testing.T) brokertest.Setup {
		const timeout = 3 * time.Second
		topic := rand.Text()
		createTopic(t, fake, topic, 4)
		return brokertest.Setup{
			Publisher:   newPublisher(t, fake, timeout),
			Subscriber:  newSubscriber(t, fake, "group-"+topic, topic),
			Destination: topic, Missing: "nowhere-" + topic, TooLarge: 1 << 20,
			NoSubscription: newSubscriber(t, fake, "group-"+topic, "nowhere-"+topic),
			Timeout:        timeout, MaxWait: 30 * time.Second,
			Stop: fake.Kill, Freeze: fake.Pause, Start: fake.Start,
		}
	})
}

func newPublisher(t testing.TB, fake *brokers.Kfake, timeout time.Duration) *kafka.Publisher {
	t.Helper()
	p := testapp.Must[*kafka.Publisher](t)(kafka.NewPublisher(kafka.PublisherConfig{Brokers: fake.Brokers(), Timeout: timeout}))
	t.Cleanup(p.Close)
	return p
}

func newSubscriber(t testing.TB, fake *brokers.Kfake, group, topic string) *kafka.Subscriber {
	t.Helper()
	// A busy machine keeps members from leaving: they are missed no longer than this.
	options := []kgo.Opt{kgo.SessionTimeout(6 * time.Second), kgo.RebalanceTimeout(6 * time.Second)}
	s, err := kafka.NewSubscriber(kafka.SubscriberConfig{Brokers: fake.Brokers(), Group: group, Topics: []string{topic}, Options: options})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// createTopic makes a topic, with an option and its value or two.
func createTopic(t testing.TB, fake *brokers.Kfake, topic string, partitions int32, options ...string) {
	t.Helper()
	client := testapp.Must[*kgo.Client](t)(kgo.NewClient(kgo.SeedBrokers(fake.Brokers()...)))
	defer client.Close()
	one := kmsg.NewCreateTopicsRequestTopic()
	one.Topic, one.NumPartitions, one.ReplicationFactor = topic, partitions, int16(len(fake.Brokers()))
	for i := 0; i+1 < len(options); i += 2 {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = options[i], &options[i+1]
		one.Configs = append(one.Configs, config)
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = append(request.Topics, one)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	response, err := request.RequestWith(ctx, client)
	if err == nil && len(response.Topics) != 1 {
		err = errors.New("no answer for the topic")
	}
	if err == nil {
		err = kerr.ErrorForCode(response.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("create topic %s: %v", topic, err)
	}
}
