package watermill_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/asyncmonolith/asyncmonolith-go/relay"
	"github.com/asyncmonolith/asyncmonolith-go/relay/relaytest"
	amwatermill "github.com/asyncmonolith/asyncmonolith-go/relay/watermill"
)

// TestConformance runs the suite on a fake. What a real broker does is up to Watermill's package for
// it.
func TestConformance(t *testing.T) {
	relaytest.Run(t, func(t *testing.T) relaytest.Setup {
		q := newQueue()
		t.Cleanup(func() { _ = q.Close() })
		const timeout = time.Second
		return relaytest.Setup{
			Publisher: publisher(t, q, timeout), Subscriber: subscriber(t, q, topic), NoSubscription: subscriber(t, q, "nowhere"),
			Destination: topic, Missing: "nowhere", TooLarge: tooMuch, Timeout: timeout,
			Stop:  func() error { return q.become(func() { q.away = true }) },
			Hang:  func() error { return q.become(func() { q.away, q.hangs = true, true }) },
			Start: func() error { return q.become(func() { q.away, q.hangs = false, false }) },
		}
	})
}

func publisher(t *testing.T, inner message.Publisher, timeout time.Duration) *amwatermill.Publisher {
	t.Helper()
	p, err := amwatermill.NewPublisher(inner, amwatermill.PublisherConfig{Timeout: timeout, Classify: classify})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// classify is what an application would write for this publisher.
func classify(err error) error {
	class := relay.ErrUnavailable
	switch {
	case errors.Is(err, errNoTopic):
		class = relay.ErrNoDestination
	case errors.Is(err, errTooMuch):
		class = relay.ErrRefused
	}
	return fmt.Errorf("%w: %w", err, class)
}

func subscriber(t *testing.T, inner message.Subscriber, from string) *amwatermill.Subscriber {
	t.Helper()
	s, err := amwatermill.NewSubscriber(inner, amwatermill.SubscriberConfig{Topic: from})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// answers is a publisher that does what a function says.
type answers func() error

func (a answers) Publish(string, ...*message.Message) error { return a() }
func (a answers) Close() error                              { return nil }

func TestErrorsWithoutAClassAreAttempts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		publish     answers
		unavailable bool
	}{
		{"of a deadline", func() error { return context.DeadlineExceeded }, true},
		{"of anything", func() error { return errors.New("odd") }, false},
		{"that are panics", func() error { panic("odd") }, false},
	} {
		p, err := amwatermill.NewPublisher(c.publish, amwatermill.PublisherConfig{})
		if err != nil {
			t.Fatal(err)
		}
		errs := p.Publish(t.Context(), make([]relay.Record, 2))
		for _, err := range errs {
			if err == nil || errors.Is(err, relay.ErrUnavailable) != c.unavailable {
				t.Errorf("errors %s: got %v, want unavailable %t", c.name, err, c.unavailable)
			}
		}
	}
}

func TestConfigurationsAreChecked(t *testing.T) {
	t.Parallel()
	_, err := amwatermill.NewPublisher(nil, amwatermill.PublisherConfig{Timeout: -1})
	_, other := amwatermill.NewSubscriber(nil, amwatermill.SubscriberConfig{})
	text := fmt.Sprint(err, other)
	for _, want := range []string{"publisher is nil", "Timeout", "subscriber is nil", "Topic"} {
		if !strings.Contains(text, want) {
			t.Errorf("got %q, want %q in it", text, want)
		}
	}
}
