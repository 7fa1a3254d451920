package watermill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/asyncmonolith/asyncmonolith-go/relay"
	"github.com/asyncmonolith/asyncmonolith-go/relay/internal/adapter"
)

// PublisherConfig configures a [Publisher].
type PublisherConfig struct {
	// Timeout is how long a batch may take. Defaults to 5 s.
	Timeout time.Duration
	// Classify says what an error of Watermill's publisher is to a relay, by an error that wraps one
	// of relay's. Defaults to relay.ErrUnavailable for errors of the network and of deadlines, and
	// to a failed attempt for all others: Watermill does not tell what it means.
	Classify func(err error) error
}

// Publisher publishes records by one of Watermill's publishers, one at a time. It is safe for
// concurrent use, and then, too, one at a time.
type Publisher struct {
	publisher message.Publisher
	config    PublisherConfig
	turn      chan struct{} // who has put something in may publish
}

// NewPublisher makes a Publisher by one of Watermill's, which stays the application's.
func NewPublisher(publisher message.Publisher, config PublisherConfig) (*Publisher, error) {
	var errs []error
	if publisher == nil {
		errs = append(errs, errors.New("watermill: the publisher is nil"))
	}
	if config.Timeout < 0 {
		errs = append(errs, fmt.Errorf("watermill: PublisherConfig.Timeout is %s, it must not be negative", config.Timeout))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if config.Timeout == 0 {
		config.Timeout = 5 * time.Second
	}
	if config.Classify == nil {
		config.Classify = classify
	}
	return &Publisher{publisher: publisher, config: config, turn: make(chan struct{}, 1)}, nil
}

// Publish implements [relay.Publisher]. Watermill's publishers cannot be interrupted: one that does
// not return in time is left alone, and until it does return every record is
// relay.ErrUnavailable.
func (p *Publisher) Publish(ctx context.Context, records []relay.Record) []error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.config.Timeout, fmt.Errorf("not published within %s", p.config.Timeout))
	defer cancel()
	errs := make([]error, len(records))
	for i, record := range records {
		err := p.one(ctx, record)
		if err != nil {
			errs[i] = fmt.Errorf("watermill: publish to %.200q: %w", record.Destination, err)
		}
		if errors.Is(err, errLate) { // and so is the rest
			copy(errs[i:], slices.Repeat(errs[i:i+1], len(errs)-i))
			break
		}
	}
	return errs
}

// PublishInOrder implements [relay.Sequencer].
func (p *Publisher) PublishInOrder(ctx context.Context, records []relay.Record) (n int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.config.Timeout, fmt.Errorf("not published within %s", p.config.Timeout))
	defer cancel()
	return adapter.InOrder(ctx, records, func(record relay.Record) error {
		if err := p.one(ctx, record); err != nil {
			return fmt.Errorf("watermill: publish to %.200q: %w", record.Destination, err)
		}
		return nil
	})
}

// errLate: the deadline has ended.
var errLate = fmt.Errorf("too late: %w", relay.ErrUnavailable)

// one publishes a record, when it is its turn.
func (p *Publisher) one(ctx context.Context, record relay.Record) error {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", context.Cause(ctx), errLate)
	}
	if ctx.Err() != nil {
		<-p.turn
		return fmt.Errorf("%w: %w", context.Cause(ctx), errLate)
	}
	m := toMessage(record)
	m.SetContext(ctx) // some publishers mind it
	published := make(chan error, 1)
	go func() { // waited for, unless ctx ends first: then whoever comes next waits for it
		err := p.call(record.Destination, m)
		<-p.turn
		published <- err
	}()
	select {
	case err := <-published:
		if err == nil {
			return nil
		}
		return p.config.Classify(err)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", context.Cause(ctx), errLate)
	}
}

// call makes an error of a panic, which would end the process.
func (p *Publisher) call(topic string, m *message.Message) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("the publisher panics: %v", value)
		}
	}()
	return p.publisher.Publish(topic, m)
}

// classify is the default of PublisherConfig.Classify.
func classify(err error) error {
	var network net.Error
	for _, away := range []error{context.DeadlineExceeded, context.Canceled, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed} {
		if errors.Is(err, away) {
			return fmt.Errorf("%w: %w", err, relay.ErrUnavailable)
		}
	}
	if errors.As(err, &network) {
		return fmt.Errorf("%w: %w", err, relay.ErrUnavailable)
	}
	return err
}
