package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// endCases: what happens when the ctx of Subscribe ends.
func endCases() []aCase {
	return []aCase{
		{name: "Subscribe waits for fn", run: waitsForFn},
		{name: "what the end interrupts comes again", run: interruptedComesAgain},
		{name: "what fn has taken at the end is acknowledged", run: takenAtTheEnd},
		{name: "Subscribe with nothing to bring ends at once", run: endsIdle},
		{name: "nothing is lost over many ends", run: manyEnds},
	}
}

func waitsForFn(c *trial) error {
	_, w, release, err := c.held(5, nil)
	if err != nil {
		return err
	}
	select {
	case <-w.ended:
		err = errors.New("subscribe returned while fn ran")
	case <-time.After(200 * time.Millisecond): // the time in which it would return
	}
	release()
	return errors.Join(err, w.stop())
}

func interruptedComesAgain(c *trial) error {
	records, w, release, err := c.held(40, errGivenBack)
	if err != nil {
		return err
	}
	release()
	if err := w.stop(); err != nil {
		return err
	}
	return c.subscribe(take).awaitAll(records)
}

func takenAtTheEnd(c *trial) error {
	records, w, release, err := c.held(1, nil)
	if err != nil {
		return err
	}
	release()
	if err := w.stop(); err != nil {
		return err
	}
	if c.Redelivery > 0 {
		<-time.After(c.Redelivery + c.Redelivery/2)
	}
	last := c.make(1)
	if err := c.publish(last...); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	second := c.subscribe(take)
	if err := second.awaitAll(last); err != nil {
		return err
	}
	if len(missing(records, second.brought())) == 0 {
		return errors.New("a record was delivered again, although fn had returned nil after ctx ended")
	}
	return nil
}

func endsIdle(c *trial) error {
	w := c.subscribe(take)
	records := c.make(1)
	if err := errors.Join(c.publish(records...), w.awaitAll(records)); err != nil {
		return err
	}
	began := time.Now()
	if err := w.stop(); err != nil {
		return err
	}
	if took := time.Since(began); took > 3*time.Second {
		return fmt.Errorf("subscribe returned %s after its ctx ended, want at most 3 s", took)
	}
	return nil
}

// manyEnds subscribes again and again while records are published, and gives every third batch back.
func manyEnds(c *trial) error {
	const rounds = 6
	var all []broker.Record
	taken := make(map[string]bool) // one Subscribe at a time, which calls fn one at a time
	var calls atomic.Int32
	answer := func(_ context.Context, got []broker.Record) error {
		if calls.Add(1)%3 == 0 {
			return errGivenBack
		}
		for _, record := range got {
			taken[record.ID] = true
		}
		return nil
	}
	for range rounds {
		before := calls.Load()
		w := c.subscribe(answer)
		for range 3 {
			records := c.make(50)
			all = append(all, records...)
			if err := c.publish(records...); err != nil {
				return fmt.Errorf("publish: %w", err)
			}
		}
		if err := w.await("a batch", func([]broker.Record) bool { return calls.Load() > before }); err != nil {
			return err
		}
		if err := w.stop(); err != nil {
			return err
		}
	}
	rest := slices.DeleteFunc(all, func(record broker.Record) bool { return taken[record.ID] })
	return c.subscribe(take).awaitAll(rest)
}
