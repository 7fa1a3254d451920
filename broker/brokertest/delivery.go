package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// deliveryCases: what becomes of a batch is what fn says.
func deliveryCases() []aCase {
	return []aCase{
		{name: "what is acknowledged does not come again", run: acknowledgedOnce},
		{name: "what is given back comes again, all of it", run: givenBack},
		{name: "what is given back often comes again", run: givenBackOften},
		{name: "batches follow one another", run: oneAfterAnother},
		{name: "records of a key come in their order", run: inOrder},
		{name: "what fn is given is its own", run: itsOwn},
		{name: "a record comes soon to who waits", run: comesSoon},
		{
			name:    "a subscription that does not exist is an error",
			applies: func(s Setup) bool { return s.NoSubscription != nil },
			run:     noSubscription,
		},
	}
}

func acknowledgedOnce(c *trial) error {
	records := c.make(30)
	if err := c.publish(records...); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	first := c.subscribe(take)
	if err := errors.Join(first.awaitAll(records), first.stop()); err != nil {
		return err
	}
	if c.Redelivery > 0 { // nothing shows that something will not happen
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
	if n := len(second.brought()) - 1; n != 0 {
		return fmt.Errorf("the second Subscribe got %d records that the first had acknowledged", n)
	}
	return nil
}

func givenBack(c *trial) error {
	records := c.make(10)
	if err := c.publish(records...); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	var refused []broker.Record // by the one Subscribe, which calls fn one at a time
	var again atomic.Bool
	w := c.subscribe(func(_ context.Context, got []broker.Record) error {
		if again.Swap(true) {
			return nil
		}
		for _, record := range got {
			refused = append(refused, clone(record))
		}
		return errGivenBack
	})
	return w.await("what was given back, again", func(got []broker.Record) bool {
		if len(missing(records, got)) > 0 || len(got) < len(records)+1 {
			return false
		}
		return len(missing(refused, got[len(refused):])) == 0
	})
}

func givenBackOften(c *trial) error {
	records := c.make(3)
	if err := c.publish(records...); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	var times atomic.Int32
	w := c.subscribe(func(context.Context, []broker.Record) error {
		if times.Add(1) <= 4 {
			return errGivenBack
		}
		return nil
	})
	return w.await("a fifth call of fn, and all records", func(got []broker.Record) bool {
		return times.Load() >= 5 && len(missing(records, got)) == 0
	})
}

func oneAfterAnother(c *trial) error {
	var inside, overlaps atomic.Int32
	w := c.subscribe(func(context.Context, []broker.Record) error {
		if inside.Add(1) > 1 {
			overlaps.Add(1)
		}
		<-time.After(20 * time.Millisecond) // the time in which a second call would come
		inside.Add(-1)
		return nil
	})
	for range 20 {
		records := c.make(5)
		for i := range records {
			records[i].Key = "one"
		}
		if err := errors.Join(c.publish(records...), w.awaitAll(records)); err != nil { // while fn has them
			return err
		}
	}
	if n := overlaps.Load(); n > 0 {
		return fmt.Errorf("fn was called %d times while it ran, with records of one key", n)
	}
	return nil
}

func inOrder(c *trial) error {
	records := c.make(600)
	for i := range records {
		records[i].Key = "one"
	}
	for _, batch := range [][]broker.Record{records[:1], records[1:300], records[300:]} {
		if err := c.publish(batch...); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	w := c.subscribe(take)
	if err := w.awaitAll(records); err != nil {
		return err
	}
	seen := make(map[string]bool)
	next := 0
	for _, got := range w.brought() {
		if seen[got.ID] {
			continue // again
		}
		seen[got.ID] = true
		if got.ID != records[next].ID {
			return fmt.Errorf("record %s came as the %dth, want %s", got.ID, next+1, records[next].ID)
		}
		next++
	}
	return nil
}

func itsOwn(c *trial) error {
	records := c.make(3)
	for i := range records {
		records[i].Headers = map[string]string{"a": "1"}
	}
	if err := c.publish(records...); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	var times atomic.Int32
	w := c.subscribe(func(_ context.Context, got []broker.Record) error {
		for i := range got {
			clear(got[i].Headers)
			clear(got[i].Attributes)
			clear(got[i].Body)
			got[i] = broker.Record{}
		}
		if times.Add(1) == 1 {
			return errGivenBack
		}
		return nil
	})
	err := w.await("everything again, after fn has changed it", func(got []broker.Record) bool {
		return len(missing(records, got)) == 0 && len(got) > len(records)
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, got := range w.brought() {
		for _, record := range records {
			if record.ID == got.ID || got.ID == "" {
				errs = append(errs, compare(got, record))
			}
		}
	}
	return errors.Join(errs...)
}

// comesSoon: a batch that is not full is not waited for.
func comesSoon(c *trial) error {
	w := c.subscribe(take)
	warm := c.make(1)
	if err := errors.Join(c.publish(warm...), w.awaitAll(warm)); err != nil {
		return err
	}
	const soon = 2 * time.Second
	for range 3 {
		records := c.make(2)
		began := time.Now()
		if err := errors.Join(c.publish(records...), w.awaitAll(records)); err != nil {
			return err
		}
		if took := time.Since(began); took > soon {
			return fmt.Errorf("two records came after %s, want at most %s", took, soon)
		}
	}
	return nil
}

func noSubscription(c *trial) error {
	ended := make(chan error, 1) // Subscribe may outlast this case
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	go func() { ended <- c.NoSubscription.Subscribe(ctx, take) }()
	select {
	case err := <-ended:
		if err == nil {
			return errors.New("subscribe to what does not exist: got nil, want an error")
		}
		return nil
	case <-time.After(c.MaxWait):
		cancel()
		<-ended
		return fmt.Errorf("subscribe to what does not exist has not returned after %s", c.MaxWait)
	}
}
