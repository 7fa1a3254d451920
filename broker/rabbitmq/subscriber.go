package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/asyncmonolith/asyncmonolith-go/broker/internal/adapter"
)

// SubscriberConfig configures a [Subscriber].
type SubscriberConfig struct {
	// URLs are the URLs of the cluster's nodes, "amqp://user:password@host:5672/vhost". They are
	// tried in turn. Required.
	URLs []string
	// TLS configures connections to amqps URLs. Defaults to the system's settings.
	TLS *tls.Config
	// Queue is the name of an existing queue. Several subscribers may share one. Required.
	Queue string
	// Batch is the maximum number of records in one call of fn. Twice as many are prefetched.
	// Defaults to 256.
	Batch int
}

// Subscriber receives the messages of a queue. It is safe for concurrent use: each Subscribe
// receives other messages.
type Subscriber struct {
	config SubscriberConfig
	away   adapter.Outage
}

// OnOutage implements broker.OutageNotifier. A broker is unavailable from the end of a connection
// until a new one receives from the queue.
func (s *Subscriber) OnOutage(f func(err error)) { s.away.OnOutage(f) }

const maxBatch = 10_000

// NewSubscriber makes a Subscriber. Subscribe connects.
func NewSubscriber(config SubscriberConfig) (*Subscriber, error) {
	errs := []error{checkURLs("SubscriberConfig.URLs", config.URLs)}
	if config.Queue == "" || len(config.Queue) > maxShort {
		errs = append(errs, fmt.Errorf("rabbitmq: SubscriberConfig.Queue has %d bytes, 1 to %d are allowed", len(config.Queue), maxShort))
	}
	if config.Batch == 0 {
		config.Batch = 256
	}
	if config.Batch < 1 || config.Batch > maxBatch {
		errs = append(errs, fmt.Errorf("rabbitmq: SubscriberConfig.Batch %d: 1 to %d is allowed", config.Batch, maxBatch))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Subscriber{config: config}, nil
}

// Subscribe implements broker.Subscriber. A batch has the messages that have arrived, and is
// acknowledged after fn. After an error of fn it waits, first 100 ms and at most 5 s. Subscribe
// returns an error if the queue does not exist, or if the broker refuses the credentials five times
// in a row, which takes about two seconds.
func (s *Subscriber) Subscribe(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
	failures, refusals := 0, 0
	for ctx.Err() == nil {
		worked, err := s.session(ctx, fn)
		if ctx.Err() != nil {
			return nil
		}
		if refusals++; !isRefusal(err) {
			refusals = 0
		}
		if refusals == mostRefusals {
			return fmt.Errorf("rabbitmq: subscribe to queue %q: %w", s.config.Queue, err)
		}
		s.away.Note(err)
		if worked {
			failures = 0
		}
		failures++
		adapter.PauseAfter(ctx, failures)
	}
	return nil
}

// mostRefusals is how often in a row the broker refuses before there is no hope. A node that starts or ends says such
// things, too, and the client takes a connection that ends while it signs in for wrong credentials.
const mostRefusals = 5

// dialTimeout is how long the nodes have to take a connection.
const dialTimeout = 10 * time.Second

// session consumes over one connection, until that or ctx ends. worked says whether it began.
func (s *Subscriber) session(ctx context.Context, fn func(context.Context, []broker.Record) error) (worked bool, err error) {
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	l, err := dial(dialCtx, s.config.URLs, s.config.TLS)
	if err != nil {
		return false, err
	}
	defer l.close()
	stop := context.AfterFunc(dialCtx, l.cut) // what follows waits for the broker, too
	channel, deliveries, err := s.consume(l)
	if !stop() && err == nil {
		err = context.Cause(dialCtx)
	}
	if err != nil {
		return false, err
	}
	s.away.Note(nil)
	failures := 0
	for {
		batch := s.gather(ctx, deliveries)
		if len(batch) == 0 {
			return true, amqp.ErrClosed
		}
		if err := hand(ctx, channel, batch, fn); err == nil {
			failures = 0
		} else {
			failures++
			adapter.PauseAfter(ctx, failures)
		}
	}
}

func (s *Subscriber) consume(l *link) (*amqp.Channel, <-chan amqp.Delivery, error) {
	channel, err := l.conn.Channel()
	if err != nil {
		return nil, nil, fmt.Errorf("open a channel: %w", err)
	}
	if err := channel.Qos(2*s.config.Batch, 0, false); err != nil {
		return nil, nil, fmt.Errorf("set the prefetch: %w", err)
	}
	deliveries, err := channel.Consume(s.config.Queue, "", false, false, false, false, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("consume: %w", err)
	}
	return channel, deliveries, nil
}

// lull is how long nothing has come when a batch is taken for complete.
const lull = time.Millisecond

// gather waits for a delivery and takes what follows at once. It returns none if ctx or the
// connection has ended.
func (s *Subscriber) gather(ctx context.Context, deliveries <-chan amqp.Delivery) (batch []amqp.Delivery) {
	select {
	case <-ctx.Done():
		return nil
	default:
	}
	var quiet <-chan time.Time // there is no wait for more before there is one
	for len(batch) < s.config.Batch {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return batch
			}
			batch = append(batch, d)
			quiet = time.After(lull)
		case <-quiet:
			return batch
		case <-ctx.Done():
			return nil // the broker gives to others what was not acknowledged
		}
	}
	return batch
}

// hand gives a batch to fn, and sends the broker what it returns. What does not arrive there is as if it
// had not been said: the batch comes again.
func hand(ctx context.Context, channel *amqp.Channel, batch []amqp.Delivery, fn func(context.Context, []broker.Record) error) error {
	records := make([]broker.Record, len(batch))
	for i := range batch {
		records[i] = record(&batch[i])
	}
	last := batch[len(batch)-1].DeliveryTag
	if err := fn(ctx, records); err != nil {
		_ = channel.Nack(last, true, true)
		return err
	}
	_ = channel.Ack(last, true)
	return nil
}

// isRefusal reports whether the broker says no, rather than nothing: trying again will hardly do.
func isRefusal(err error) bool {
	if errors.Is(err, amqp.ErrCredentials) || errors.Is(err, amqp.ErrVhost) {
		return true
	}
	var reason *amqp.Error
	if !errors.As(err, &reason) {
		return false
	}
	switch reason.Code {
	case amqp.NotFound: // said of a queue whose node is away, too
		return !strings.Contains(reason.Reason, "down or inaccessible")
	case amqp.AccessRefused, amqp.NotAllowed:
		return true
	}
	return false
}
