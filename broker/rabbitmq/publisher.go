package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/broker/internal/adapter"
)

// PublisherConfig configures a [Publisher].
type PublisherConfig struct {
	// URLs are the URLs of the cluster's nodes, "amqp://user:password@host:5672/vhost". They are
	// tried in turn. Required.
	URLs []string
	// TLS configures connections to amqps URLs. Defaults to the system's settings.
	TLS *tls.Config
	// Exchange is the exchange to publish to. Defaults to the default exchange, where a routing key
	// is the name of a queue.
	Exchange string
	// Timeout limits the wait for the confirmation of a batch. Defaults to 5 s.
	Timeout time.Duration
}

// Publisher publishes records to an exchange. A record's Destination is the routing key. It is safe
// for concurrent use. It connects at the first use, and again whenever the connection is lost.
// Close it.
type Publisher struct {
	config PublisherConfig
	state  chan *publishing // holds the one there is: who has it, has the lock
	back   *adapter.Reconnect
}

// publishing is the connection of a Publisher.
type publishing struct {
	link   *link
	closed bool
}

// NewPublisher makes a Publisher.
func NewPublisher(config PublisherConfig) (*Publisher, error) {
	errs := []error{checkURLs("PublisherConfig.URLs", config.URLs)}
	if config.Timeout < 0 {
		errs = append(errs, fmt.Errorf("rabbitmq: PublisherConfig.Timeout %s: 0 or more is allowed", config.Timeout))
	}
	if len(config.Exchange) > maxShort {
		errs = append(errs, fmt.Errorf("rabbitmq: PublisherConfig.Exchange has %d bytes, at most %d are allowed", len(config.Exchange), maxShort))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if config.Timeout == 0 {
		config.Timeout = 5 * time.Second
	}
	p := &Publisher{config: config, state: make(chan *publishing, 1)} // one: it is a lock
	p.state <- &publishing{}
	p.back = adapter.NewReconnect(p.ping)
	return p, nil
}

// OnReconnect implements broker.ReconnectNotifier. While the broker is unavailable, a goroutine
// tries to connect. A broker that blocks publishers counts as unavailable.
func (p *Publisher) OnReconnect(f func()) { p.back.OnReconnect(f) }

// ping reports whether there is a channel, or one can be had.
func (p *Publisher) ping(ctx context.Context) error {
	lane, err := p.take(ctx)
	if err == nil {
		lane.link.giveBack(lane)
	}
	return err
}

// Close closes the connection. Running and later publishes fail.
func (p *Publisher) Close() {
	p.back.Close()
	s := <-p.state
	s.closed = true
	if s.link != nil {
		s.link.close()
	}
	s.link = nil
	p.state <- s
}

// Publish implements broker.Publisher. A failed record does not delay the others.
//
// The error is broker.ErrNoDestination for a record that is routed to no queue, whose exchange does
// not exist, whose routing key is forbidden, or that a full queue rejects. It is broker.ErrRejected
// for a record that is larger than the broker or AMQP allows. It is broker.ErrUnavailable at once
// while the broker blocks publishers because it lacks memory or disk space.
//
// A queue that has lost its leader also rejects records, which is broker.ErrUnavailable. It looks
// like a full queue. So a rejection within 5 s of the beginning of a connection counts as
// ErrUnavailable. Later, without an Exchange, Publish looks at the queue; with an Exchange it does
// not know the queue, and assumes that it is full.
//
// If a deadline ends, Publish closes the connection: nothing else cancels requests in flight.
func (p *Publisher) Publish(ctx context.Context, records []broker.Record) []error {
	if len(records) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.config.Timeout, fmt.Errorf("no confirmation within %s", p.config.Timeout))
	defer cancel()
	errs := p.sift(ctx, records, make(map[string]error))
	p.back.Note(errs...)
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("rabbitmq: publish to %.200q: %w", records[i].Destination, err)
		}
	}
	return errs
}

// PublishInOrder implements broker.OrderedPublisher: a queue that rejects a record may accept the
// next one, so it waits for each. That allows some hundred records a second. Its errors are those
// of Publish.
func (p *Publisher) PublishInOrder(ctx context.Context, records []broker.Record) (n int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.config.Timeout, fmt.Errorf("no confirmation within %s", p.config.Timeout))
	defer cancel()
	return adapter.InOrder(ctx, records, func(record broker.Record) error {
		errs := p.attempt(ctx, []broker.Record{record})
		if p.back.Note(errs...); errs[0] != nil {
			return fmt.Errorf("rabbitmq: publish to %.200q: %w", record.Destination, errs[0])
		}
		return nil
	})
}

// sift publishes records, and finds by halves those for which the broker has closed the channel. It does not say
// which they are, and those behind them are lost. forbidden are the routing keys that are found to be.
func (p *Publisher) sift(ctx context.Context, records []broker.Record, forbidden map[string]error) []error {
	errs := p.attempt(ctx, records)
	var suspects []int
	for i, err := range errs {
		if _, ok := errors.AsType[*blameError](err); ok {
			suspects = append(suspects, i)
		}
	}
	if len(suspects) == 1 { // what was confirmed is not to blame
		blamed := suspects[0]
		if errors.Is(errs[blamed], broker.ErrNoDestination) {
			forbidden[records[blamed].Destination] = errs[blamed]
		}
		return errs
	}
	middle := len(suspects) / 2
	for _, half := range [][]int{suspects[:middle], suspects[middle:]} {
		var some []broker.Record
		var places []int
		for _, i := range half {
			if errs[i] = forbidden[records[i].Destination]; errs[i] == nil {
				some, places = append(some, records[i]), append(places, i)
			}
		}
		if len(some) == 0 {
			continue
		}
		for n, err := range p.sift(ctx, some, forbidden) {
			errs[places[n]] = err
		}
	}
	return errs
}

// attempt publishes records on a channel that is used for nothing else.
func (p *Publisher) attempt(ctx context.Context, records []broker.Record) []error {
	lane, err := p.take(ctx)
	if err != nil {
		return slices.Repeat([]error{err}, len(records))
	}
	stop := context.AfterFunc(ctx, lane.link.cut)
	errs := lane.publish(ctx, p.config.Exchange, records)
	if lane.rejected {
		_ = lane.channel.Close() // the next one asks anew who leads the queue
	}
	if stop() {
		lane.link.giveBack(lane)
	}
	return errs
}

// take returns a channel, and connects if there is no connection.
func (p *Publisher) take(ctx context.Context) (*lane, error) {
	var s *publishing
	select {
	case s = <-p.state:
		defer func() { p.state <- s }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return nil, unavailable(context.Cause(ctx))
	}
	if s.closed {
		return nil, unavailable(errors.New("the publisher is closed"))
	}
	if s.link != nil && s.link.conn.IsClosed() {
		s.link.close()
		s.link = nil
	}
	if s.link == nil {
		l, err := dial(ctx, p.config.URLs, p.config.TLS)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", err, broker.ErrDisconnected)
		}
		s.link = l
	}
	if _, reason := s.link.block(); reason != "" {
		return nil, unavailable(errors.New(reason))
	}
	stop := context.AfterFunc(ctx, s.link.cut)
	defer stop()
	s.link.closeLeft()
	if reused := s.link.reuse(); reused != nil {
		return reused, nil
	}
	opened, err := openLane(s.link)
	if err != nil {
		return nil, unavailable(err)
	}
	return opened, nil
}
