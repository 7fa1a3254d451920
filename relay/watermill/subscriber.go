package watermill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/asyncmonolith/asyncmonolith-go/relay"
	"github.com/asyncmonolith/asyncmonolith-go/relay/internal/adapter"
)

// SubscriberConfig configures a [Subscriber].
type SubscriberConfig struct {
	// Topic is what is subscribed to. Required.
	Topic string
}

// Subscriber brings the messages of one of Watermill's subscribers, one at a time. It is as safe for
// concurrent use as that is.
type Subscriber struct {
	subscriber message.Subscriber
	config     SubscriberConfig
}

// NewSubscriber makes a Subscriber by one of Watermill's, which stays the application's.
func NewSubscriber(subscriber message.Subscriber, config SubscriberConfig) (*Subscriber, error) {
	var errs []error
	if subscriber == nil {
		errs = append(errs, errors.New("watermill: the subscriber is nil"))
	}
	if config.Topic == "" {
		errs = append(errs, errors.New("watermill: SubscriberConfig.Topic is required"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Subscriber{subscriber: subscriber, config: config}, nil
}

// farewell is how long Watermill's subscriber has to pass on the last acknowledgement: it does not
// say when it has.
const farewell = 100 * time.Millisecond

// Subscribe implements [relay.Subscriber]: fn gets one record at a time. After an error of fn it
// waits, 100 ms at first and 5 s at last. Reconnecting is up to Watermill's subscriber; Subscribe
// returns an error if that ends the subscription.
func (s *Subscriber) Subscribe(ctx context.Context, fn func(context.Context, []relay.Record) error) error {
	// Not ctx itself: what fn has taken when that ends is still acknowledged.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	messages, err := s.subscriber.Subscribe(inner, s.config.Topic)
	if err != nil {
		return fmt.Errorf("watermill: subscribe to %q: %w", s.config.Topic, err)
	}
	failures := 0
	for ctx.Err() == nil {
		select {
		case m, ok := <-messages:
			if !ok {
				return fmt.Errorf("watermill: subscribe to %q: %w", s.config.Topic, errEnded)
			}
			if ctx.Err() != nil {
				m.Nack()
				break
			}
			if fn(ctx, []relay.Record{toRecord(s.config.Topic, m)}) == nil {
				failures = 0
				m.Ack()
				continue
			}
			m.Nack()
			failures++
			adapter.PauseAfter(ctx, failures)
		case <-ctx.Done():
		}
	}
	select {
	case m, ok := <-messages: // it brings the next only after it has passed on the last
		if ok {
			m.Nack()
		}
	case <-time.After(farewell):
	}
	return nil
}

// errEnded: Watermill's subscriber has closed its channel.
var errEnded = errors.New("its channel was closed")
