package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// slack is how much later than its deadline Publish may return, on a busy machine.
const slack = 2 * time.Second

// outageCases: the broker is away, and comes back.
func outageCases() []aCase {
	stops := func(s Setup) bool { return s.Stop != nil && s.Start != nil }
	hangs := func(s Setup) bool { return s.Freeze != nil && s.Start != nil }
	tells := func(s Setup) bool { _, ok := s.Publisher.(broker.ReconnectNotifier); return ok }
	watches := func(s Setup) bool { _, ok := s.Subscriber.(broker.OutageNotifier); return ok }
	return []aCase{
		{name: "what the broker has said it has survives its crash", applies: stops, run: survivesCrash},
		{name: "a broker that is gone is unavailable, in time", applies: stops, run: func(c *trial) error { return c.away(c.Stop) }},
		{name: "a broker that hangs is unavailable, in time", applies: hangs, run: func(c *trial) error { return c.away(c.Freeze) }},
		{name: "what fills every buffer on the way to a broker that hangs is unavailable, in time", applies: hangs, run: fillsBuffers},
		{name: "the ctx of Publish is a deadline for a broker that hangs", applies: hangs, run: keepsDeadline},
		{name: "Subscribe ends while the broker is gone", applies: stops, run: func(c *trial) error { return c.endsAway(c.Stop) }},
		{name: "Subscribe ends while the broker hangs", applies: hangs, run: func(c *trial) error { return c.endsAway(c.Freeze) }},
		{name: "all goes on by itself after the broker was gone", applies: stops, run: func(c *trial) error { return c.goesOn(c.Stop) }},
		{name: "all goes on by itself after the broker hung", applies: hangs, run: func(c *trial) error { return c.goesOn(c.Freeze) }},
		{
			name: "it is told that the broker is back after it was gone", applies: func(s Setup) bool { return stops(s) && tells(s) },
			run: func(c *trial) error { return c.toldBack(c.Stop) },
		},
		{
			name: "it is told that the broker is back after it hung", applies: func(s Setup) bool { return hangs(s) && tells(s) },
			run: func(c *trial) error { return c.toldBack(c.Freeze) },
		},
		{
			name:    "who subscribes is told that the broker is gone, and back",
			applies: func(s Setup) bool { return stops(s) && watches(s) }, run: func(c *trial) error { return c.toldAway(c.Stop) },
		},
		{
			name:    "who subscribes is told that the broker hangs, and is back",
			applies: func(s Setup) bool { return hangs(s) && watches(s) }, run: func(c *trial) error { return c.toldAway(c.Freeze) },
		},
		{
			name:    "nothing is lost when connections break",
			applies: func(s Setup) bool { return s.Disconnect != nil },
			run:     cuts,
		},
	}
}

// without runs f while the broker is away, and brings it back.
func (c *trial) without(leave func() error, f func() error) error {
	if err := leave(); err != nil {
		return fmt.Errorf("take the broker away: %w", err)
	}
	err := f()
	if startErr := c.Start(); startErr != nil {
		return errors.Join(err, fmt.Errorf("bring the broker back: %w", startErr))
	}
	return err
}

func survivesCrash(c *trial) error {
	records := c.make(300)
	if err := c.publish(records...); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if err := c.without(c.Stop, func() error { return nil }); err != nil {
		return err
	}
	return c.subscribe(take).awaitAll(records)
}

// away wants ErrUnavailable of each record, in time, several times.
func (c *trial) away(leave func() error) error {
	if err := c.publish(c.make(1)...); err != nil { // a connection is there
		return fmt.Errorf("publish: %w", err)
	}
	return c.without(leave, func() error {
		for range 2 {
			if err := c.unavailable(c.ctx, c.make(20), c.Timeout+slack); err != nil {
				return err
			}
		}
		return nil
	})
}

// unavailable publishes records, and wants ErrUnavailable of each within a time.
func (c *trial) unavailable(ctx context.Context, records []broker.Record, within time.Duration) error {
	n := len(records)
	answered := make(chan []error, 1) // Publish may outlast the wait
	began := time.Now()
	go func() { answered <- c.Publisher.Publish(ctx, records) }()
	select {
	case results := <-answered:
		if took := time.Since(began); took > within {
			return fmt.Errorf("publish to a broker that is away returned after %s, want at most %s", took, within)
		}
		if len(results) != n {
			return fmt.Errorf("publish of %d records to a broker that is away: got %d results", n, len(results))
		}
		for i, err := range results {
			if !errors.Is(err, broker.ErrUnavailable) {
				return fmt.Errorf("result %d of a broker that is away: got %v, want ErrUnavailable", i, err)
			}
		}
		return nil
	case <-time.After(within + c.MaxWait):
		return fmt.Errorf("publish to a broker that is away has not returned after %s", within+c.MaxWait)
	}
}

func keepsDeadline(c *trial) error {
	if err := c.publish(c.make(1)...); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return c.without(c.Freeze, func() error {
		deadline := c.Timeout / 10
		ctx, cancel := context.WithTimeout(c.ctx, deadline)
		defer cancel()
		return c.unavailable(ctx, c.make(20), deadline+min(slack, c.Timeout/2))
	})
}

// fillsBuffers sends more than a connection holds on its way: to send waits, too.
func fillsBuffers(c *trial) error {
	if err := c.publish(c.make(1)...); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	records := c.make(250)
	for i := range records {
		records[i].Body = make([]byte, 60_000)
	}
	return c.without(c.Freeze, func() error { return c.unavailable(c.ctx, records, c.Timeout+slack) })
}

func (c *trial) endsAway(leave func() error) error {
	w := c.subscribe(take)
	records := c.make(1)
	if err := errors.Join(c.publish(records...), w.awaitAll(records)); err != nil {
		return err
	}
	return c.without(leave, w.stop)
}

// goesOn has a subscriber run through an outage, and publishes before, in and after it.
func (c *trial) goesOn(leave func() error) error {
	w := c.subscribe(take)
	before := c.make(20)
	if err := errors.Join(c.publish(before...), w.awaitAll(before)); err != nil {
		return err
	}
	during := c.make(20)
	err := c.without(leave, func() error {
		if errs := c.Publisher.Publish(c.ctx, during); len(errs) != len(during) {
			return fmt.Errorf("publish of %d records to a broker that is away: got %d results", len(during), len(errs))
		}
		return nil
	})
	if err != nil {
		return err
	}
	after := c.make(20)
	if err := c.persist(append(during, after...)); err != nil {
		return err
	}
	return w.awaitAll(append(during, after...))
}

// toldBack wants two who asked for it to hear that the broker is back, and nothing before that.
func (c *trial) toldBack(leave func() error) error {
	told := make(chan struct{}, 2) // of both
	for range cap(told) {
		c.Publisher.(broker.ReconnectNotifier).OnReconnect(sync.OnceFunc(func() { told <- struct{}{} }))
	}
	if err := c.publish(c.make(1)...); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	err := c.without(leave, func() error {
		for range 2 {
			if err := c.unavailable(c.ctx, c.make(20), c.Timeout+slack); err != nil {
				return err
			}
		}
		select {
		case <-told:
			return errors.New("OnReconnect was called while the broker was down")
		case <-time.After(c.Timeout / 2): // the time in which it would be told
			return nil
		}
	})
	if err != nil {
		return err
	}
	for n := range cap(told) {
		select {
		case <-told:
		case <-time.After(c.MaxWait):
			return fmt.Errorf("%d of %d functions passed to OnReconnect were called after %s", n, cap(told), c.MaxWait)
		}
	}
	return c.persist(c.make(20))
}

// toldAway wants to hear that the broker is away while it is, and that it is not as soon as it is back.
func (c *trial) toldAway(leave func() error) error {
	said := make(chan error, 1) // the last word
	c.Subscriber.(broker.OutageNotifier).OnOutage(func(err error) {
		select {
		case <-said:
		default:
		}
		said <- err
	})
	await := func(what string, wanted func(error) bool) error {
		timeout := time.After(c.MaxWait)
		for {
			select {
			case err := <-said:
				if wanted(err) {
					return nil
				}
			case <-timeout:
				return fmt.Errorf("OnOutage did not report within %s that the broker %s", c.MaxWait, what)
			}
		}
	}
	w := c.subscribe(take)
	records := c.make(1)
	if err := errors.Join(c.publish(records...), w.awaitAll(records)); err != nil {
		return err
	}
	select {
	case err := <-said:
		if err != nil {
			return fmt.Errorf("OnOutage reported an outage while the broker answered: %w", err)
		}
	default:
	}
	err := c.without(leave, func() error { return await("is away", func(err error) bool { return err != nil }) })
	if err != nil {
		return err
	}
	return await("is back", func(err error) bool { return err == nil })
}

// cuts breaks the connections again and again while records go in and out.
func cuts(c *trial) error {
	w := c.subscribe(take)
	var all []broker.Record
	for range 4 {
		records := c.make(400)
		all = append(all, records...)
		done := make(chan error, 1) // received below
		go func() { done <- c.persist(records) }()
		cutErr := c.Disconnect()
		if err := errors.Join(<-done, cutErr); err != nil {
			return err
		}
	}
	return w.awaitAll(all)
}
