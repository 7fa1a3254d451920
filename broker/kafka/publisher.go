package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/broker/internal/adapter"
)

// PublisherConfig configures a [Publisher].
type PublisherConfig struct {
	// Brokers are the addresses, "host:port", of some brokers of the cluster. Required.
	Brokers []string
	// Options configure the client: TLS, SASL, limits, logs. They cannot change what the publisher
	// relies on: all in-sync replicas acknowledge, and the deadline also ends requests in flight.
	Options []kgo.Opt
	// Timeout limits the wait for the acknowledgements of a batch. Defaults to 5 s.
	Timeout time.Duration
}

// Publisher publishes records to Kafka. A record's Destination is the topic, and records with the
// same Key go to the same partition. It is safe for concurrent use. Close it.
type Publisher struct {
	client  *kgo.Client
	timeout time.Duration
	back    *adapter.Reconnect
}

// NewPublisher makes a Publisher. It connects at the first use.
func NewPublisher(config PublisherConfig) (*Publisher, error) {
	var errs []error
	if len(config.Brokers) == 0 {
		errs = append(errs, errors.New("kafka: PublisherConfig.Brokers is required"))
	}
	if config.Timeout < 0 {
		errs = append(errs, fmt.Errorf("kafka: PublisherConfig.Timeout %s: 0 or more is allowed", config.Timeout))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if config.Timeout == 0 {
		config.Timeout = 5 * time.Second
	}
	options := []kgo.Opt{kgo.SeedBrokers(config.Brokers...), kgo.MetadataMinAge(250 * time.Millisecond)}
	options = append(options, config.Options...)
	options = append(options,
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.AllowIdempotentProduceCancellation(), // what is given up is published again, and known by its id
		kgo.ProducerLinger(0),                    // batches come as such
		kgo.UnknownTopicRetries(1),
	)
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("kafka: new publisher: %w", err)
	}
	return &Publisher{client: client, timeout: config.Timeout, back: adapter.NewReconnect(client.Ping)}, nil
}

// OnReconnect implements broker.ReconnectNotifier. While the brokers are unavailable, a goroutine
// polls until one answers.
func (p *Publisher) OnReconnect(f func()) { p.back.OnReconnect(f) }

// Close closes the connections. Running publishes fail.
func (p *Publisher) Close() {
	p.client.Close()
	p.back.Close() // what it waits for has ended with the client
}

// Publish implements broker.Publisher. The error is broker.ErrNoDestination for a topic that does
// not exist or that the publisher may not write to, and broker.ErrRejected for a record that is
// larger than the client, the topic or the broker allows.
func (p *Publisher) Publish(ctx context.Context, records []broker.Record) []error {
	if len(records) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeout, fmt.Errorf("no answer within %s", p.timeout))
	defer cancel()
	errs := p.send(ctx, records)
	p.sendLarge(ctx, records, errs)
	reason := p.back.Reason()
	for i, err := range errs {
		if err == nil {
			continue
		}
		err = classified(ctx, err)
		if reason != nil && errors.Is(err, broker.ErrUnavailable) { // the client itself does not say that credentials are refused
			err = fmt.Errorf("%w (last ping: %w)", err, reason)
		}
		errs[i] = fmt.Errorf("kafka: publish to %.200q: %w", records[i].Destination, err)
	}
	p.back.Note(errs...)
	return errs
}

// sendLarge sends those again, one by one, that were too large: brokers say so of all that came in one
// request.
func (p *Publisher) sendLarge(ctx context.Context, records []broker.Record, errs []error) {
	for i, err := range errs {
		if errors.Is(err, kerr.MessageTooLarge) {
			errs[i] = p.send(ctx, records[i:i+1])[0]
		}
	}
}

// pending is what is known of the records of a send.
type pending struct {
	mu   sync.Mutex
	errs []error
	left int
	done chan struct{} // closed when nothing is left
}

// send sends records and waits for what becomes of them, or for the end of ctx. What the client
// reports later is dropped: it has been told to give up.
func (p *Publisher) send(ctx context.Context, records []broker.Record) []error {
	b := &pending{errs: make([]error, len(records)), left: len(records), done: make(chan struct{})}
	for i := range b.errs {
		b.errs[i] = errUnknown
	}
	if ctx.Err() != nil {
		return b.errs // what is given up now would take with it what others send next
	}
	for i, record := range records {
		// TryProduce never waits: a client that is full of what waits for its brokers says so.
		p.client.TryProduce(ctx, message(record), func(_ *kgo.Record, err error) { b.tell(i, err) })
	}
	select {
	case <-b.done:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.errs)
}

// errUnknown: a record of which nothing is known yet.
var errUnknown = errors.New("no result for the record yet")

func (b *pending) tell(i int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.errs[i] = err
	if b.left--; b.left == 0 {
		close(b.done)
	}
}

// classified wraps what the client or a broker says with what it is to a relay.
func classified(ctx context.Context, err error) error {
	var answer *kerr.Error
	switch {
	case errors.Is(err, errUnknown):
		return fmt.Errorf("%w: %w", context.Cause(ctx), broker.ErrUnavailable)
	case !errors.As(err, &answer):
		return fmt.Errorf("%w: %w", err, broker.ErrUnavailable)
	}
	switch answer.Code {
	case kerr.MessageTooLarge.Code, kerr.RecordListTooLarge.Code, kerr.InvalidRecord.Code, kerr.InvalidTopicException.Code:
		return fmt.Errorf("%w: %w", err, broker.ErrRejected)
	case kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code, kerr.TopicAuthorizationFailed.Code:
		return fmt.Errorf("%w: %w", err, broker.ErrNoDestination)
	}
	if answer.Retriable || errors.Is(err, kerr.SaslAuthenticationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
		return fmt.Errorf("%w: %w", err, broker.ErrUnavailable)
	}
	return err
}
