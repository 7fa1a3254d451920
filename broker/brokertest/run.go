package brokertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// Setup is a fresh destination at a broker, with what publishes to it and subscribes to it. What is
// optional and not given leaves out the cases that need it.
type Setup struct {
	// Publisher publishes to Destination. Required.
	Publisher broker.Publisher
	// Subscriber receives everything that was published to Destination since the subscription was
	// created, and nothing else. The suite calls Subscribe several times, one after another.
	// Required.
	Subscriber broker.Subscriber
	// Destination exists, and no other Setup uses it. Required.
	Destination string

	// Missing is a destination that does not exist, if the broker reports that. Optional.
	Missing string
	// TooLarge is the length of a body of zero bytes that the broker rejects. Optional.
	TooLarge int
	// NoSubscription subscribes to something that does not exist. Optional.
	NoSubscription broker.Subscriber

	// Timeout is how long Publisher waits for a broker that does not answer. Defaults to 5 s.
	Timeout time.Duration
	// Redelivery is how long the broker waits for an acknowledgement before it redelivers. Defaults
	// to 0: it redelivers once a subscriber has disconnected.
	Redelivery time.Duration
	// MaxWait limits each wait of the suite. Defaults to 15 s.
	MaxWait time.Duration

	// Disconnect closes all connections; the broker stays. Optional.
	Disconnect func() error
	// Stop kills the broker. Optional, with Start.
	Stop func() error
	// Freeze makes the broker stop answering without closing its connections. Optional, with Start.
	Freeze func() error
	// Start brings back a broker that was stopped or frozen, with its data.
	Start func() error
}

// Run runs every case, one after another, each with a Setup that open makes for it. open stops what
// it starts with t.Cleanup; a goroutine that still runs after that fails the case.
func Run(t *testing.T, open func(t *testing.T) Setup) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			left := leftovers()
			t.Cleanup(func() { // after those of open
				if t.Failed() {
					return // a case that gave up waiting leaves goroutines
				}
				if err := left(); err != nil {
					t.Error(err)
				}
			})
			if err := c.check(t, open(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// leftovers returns a function that lists goroutines that have come since, and stay.
func leftovers() func() error {
	before := goleak.IgnoreCurrent()
	return func() error {
		if err := goleak.Find(before); err != nil {
			return fmt.Errorf("goroutines are left: %w", err)
		}
		return nil
	}
}

// aCase is one part of the contract.
type aCase struct {
	name string
	// applies says whether the setup has what the case needs. Nil for always.
	applies func(s Setup) bool
	run     func(c *trial) error
}

func cases() []aCase {
	return slices.Concat(contentCases(), resultCases(), deliveryCases(), endCases(), outageCases())
}

func (a aCase) check(t *testing.T, setup Setup) error {
	if setup.Publisher == nil || setup.Subscriber == nil || setup.Destination == "" {
		return errors.New("brokertest: Publisher, Subscriber and Destination are required")
	}
	if a.applies != nil && !a.applies(setup) {
		t.Logf("not asked of this broker: %s", a.name)
		return nil
	}
	setup.Timeout, setup.MaxWait = cmp.Or(setup.Timeout, 5*time.Second), cmp.Or(setup.MaxWait, 15*time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &trial{Setup: setup, ctx: ctx}
	return errors.Join(a.run(c), c.stopAll())
}
