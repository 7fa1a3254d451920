package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
)

// JetStream is NATS servers of this program.
type JetStream struct {
	servers  *servers
	replicas int
	nc       *nats.Conn
	js       jetstream.JetStream
}

// StartJetStream starts so many servers, on each of which a stream has a replica.
func StartJetStream(nodes int) (_ *JetStream, err error) {
	s, err := startServers(nodes)
	if err != nil {
		return nil, err
	}
	j := &JetStream{servers: s, replicas: nodes}
	defer func() {
		if err != nil {
			err = errors.Join(err, j.Close())
		}
	}()
	if j.nc, err = nats.Connect(s.url(), amnats.Options()...); err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	j.js, err = jetstream.New(j.nc)
	return j, err
}

// CPU returns the processor time that the servers have used, 0 when that is not known.
func (j *JetStream) CPU() time.Duration { return j.servers.cpu() }

// Close ends the servers, and removes what they have.
func (j *JetStream) Close() error {
	if j.nc != nil {
		j.nc.Close()
	}
	return j.servers.close()
}

// Place makes a stream.
func (j *JetStream) Place(ctx context.Context) (Place, error) {
	name := rand.Text()
	err := eventually(ctx, func(ctx context.Context) error {
		_, err := j.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: []string{name + ".>"}, Replicas: j.replicas, AllowAtomicPublish: true,
		})
		return err
	})
	if err != nil {
		return Place{}, fmt.Errorf("make a stream: %w", err)
	}
	return Place{Address{URLs: []string{j.servers.url()}, Name: name, Destination: name + ".signups"}, &stream{j.js, name}}, nil
}

// Subscription makes a consumer of all that is in the stream, and returns the address of that.
func (j *JetStream) Subscription(ctx context.Context, at Address, name string) (Address, error) {
	_, err := j.js.CreateConsumer(
		ctx, at.Name, jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1},
	)
	at.Subscription = name
	return at, err
}

// Waiting returns how many records of a subscription are not acknowledged.
func (j *JetStream) Waiting(ctx context.Context, at Address) (int, error) {
	consumer, err := j.js.Consumer(ctx, at.Name, at.Subscription) // which asks for its state
	if err != nil {
		return 0, err
	}
	info := consumer.CachedInfo()
	return int(info.NumPending) + info.NumAckPending, nil
}

// Fill publishes as a client does that has nothing else to do: asynchronously, a thousand at a time.
func (j *JetStream) Fill(ctx context.Context, at Address, n int, message func(i int) *nats.Msg) error {
	js, err := jetstream.New(j.nc, jetstream.WithPublishAsyncMaxPending(1000))
	if err != nil {
		return err
	}
	acks := make([]jetstream.PubAckFuture, n)
	for i := range n {
		m := message(i)
		m.Subject = at.Destination
		if acks[i], err = js.PublishMsgAsync(m); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return fmt.Errorf("publish: %w", err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// stream is the place.
type stream struct {
	js   jetstream.JetStream
	name string
}

// Count implements place.
func (s *stream) Count(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, request)
	defer cancel()
	stream, err := s.js.Stream(ctx, s.name)
	if err != nil {
		return 0, err
	}
	return int(stream.CachedInfo().State.Msgs), nil
}

// Read implements place.
func (s *stream) Read(ctx context.Context, fn func(Record) error) error {
	left, err := s.Count(ctx)
	if err != nil {
		return err
	}
	consumer, err := s.js.OrderedConsumer(ctx, s.name, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(5000))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for ; left > 0; left-- {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		if err := fn(Record{Subject: m.Subject(), Headers: m.Headers(), Body: m.Data()}); err != nil {
			return err
		}
	}
	return nil
}

// Drop implements place.
func (s *stream) Drop(ctx context.Context) error { return s.js.DeleteStream(ctx, s.name) }
