package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// resultCases: each record has a result of its own, and it is the right one.
func resultCases() []aCase {
	return []aCase{
		{
			name:    "a record that is too large is refused, and no other",
			applies: func(s Setup) bool { return s.TooLarge > 0 },
			run: func(c *trial) error {
				return c.amidGood(broker.ErrRejected, func(r *broker.Record) { r.Body = make([]byte, c.TooLarge) })
			},
		},
		{
			name:    "headers that make a record too large have it refused",
			applies: func(s Setup) bool { return s.TooLarge > 0 && s.TooLarge <= 1<<21 },
			run: func(c *trial) error {
				return c.amidGood(broker.ErrRejected, func(r *broker.Record) {
					r.Headers = map[string]string{"large": string(make([]byte, c.TooLarge))}
				})
			},
		},
		{
			name:    "a record without a destination waits, and no other",
			applies: func(s Setup) bool { return s.Missing != "" },
			run: func(c *trial) error {
				return c.amidGood(broker.ErrNoDestination, func(r *broker.Record) { r.Destination = c.Missing })
			},
		},
		{
			name:    "bad records of both kinds share a batch with good ones",
			applies: func(s Setup) bool { return s.Missing != "" && s.TooLarge > 0 },
			run:     bothKinds,
		},
		{
			name:    "who publishes in order sends nothing behind a record that fails",
			applies: func(s Setup) bool { _, ok := s.Publisher.(broker.OrderedPublisher); return ok && s.TooLarge > 0 },
			run:     behindABad,
		},
		{name: "several publish at once", run: severalAtOnce},
		{name: "a ctx that has ended publishes nothing unsaid", run: endedContext},
	}
}

// amidGood publishes a batch of which spoil has made one record bad, and wants that one to have the
// error, and the others to arrive. The good ones are published again, as a relay does after an error.
func (c *trial) amidGood(want error, spoil func(r *broker.Record)) error {
	records := c.make(9)
	const bad = 4
	spoil(&records[bad])
	results := c.Publisher.Publish(c.ctx, records)
	if err := wanted(records, results, map[int]error{bad: want}); err != nil {
		return err
	}
	return c.onlyGood(records, map[int]error{bad: want})
}

func bothKinds(c *trial) error {
	records := c.make(12)
	records[0].Destination = c.Missing
	records[5].Body = make([]byte, c.TooLarge)
	records[11].Destination = c.Missing
	want := map[int]error{0: broker.ErrNoDestination, 5: broker.ErrRejected, 11: broker.ErrNoDestination}
	results := c.Publisher.Publish(c.ctx, records)
	if err := wanted(records, results, want); err != nil {
		return err
	}
	return c.onlyGood(records, want)
}

// wanted compares the results of a batch: the error for those in bad, nil for the others.
func wanted(records []broker.Record, results []error, bad map[int]error) error {
	if len(results) != len(records) {
		return fmt.Errorf("publish of %d records, %d of them bad: got %d results", len(records), len(bad), len(results))
	}
	var errs []error
	for i, got := range results {
		want := bad[i]
		if want == nil && got != nil {
			errs = append(errs, fmt.Errorf("result %d: got %w, want nil: the record is good", i, got))
		}
		for _, class := range []error{broker.ErrUnavailable, broker.ErrNoDestination, broker.ErrRejected} {
			if want != nil && errors.Is(got, class) != (class == want) {
				errs = append(errs, fmt.Errorf("result %d: got %v, want %w alone", i, got, want))
			}
		}
	}
	return errors.Join(errs...)
}

// onlyGood returns an error unless exactly the records that are not bad arrived.
func (c *trial) onlyGood(records []broker.Record, bad map[int]error) error {
	var good, others []broker.Record
	for i, record := range records {
		if bad[i] == nil {
			good = append(good, record)
		} else {
			others = append(others, record)
		}
	}
	last := c.make(1) // what comes after it was not sent before it
	if err := c.publish(last...); err != nil {
		return fmt.Errorf("publish after a batch with bad records: %w", err)
	}
	w := c.subscribe(take)
	if err := w.awaitAll(append(good, last...)); err != nil {
		return err
	}
	if n := len(missing(others, w.brought())); n != len(others) {
		return fmt.Errorf("%d of %d bad records came, want none", len(others)-n, len(others))
	}
	return nil
}

// behindABad publishes a batch with one bad record in order. The records before it must arrive in
// order, and none after it.
func behindABad(c *trial) error {
	records := c.make(9)
	const bad = 4
	records[bad].Body = make([]byte, c.TooLarge)
	sequencer := c.Publisher.(broker.OrderedPublisher)
	for done := 0; done < bad; {
		n, err := sequencer.PublishInOrder(c.ctx, records[done:])
		done += n
		if done > bad || err != nil && (done < bad || !errors.Is(err, broker.ErrRejected)) || n == 0 && err == nil {
			return fmt.Errorf("publish in order: got %d records published and error %v, want the %d before the bad one and ErrRejected",
				done, err, bad)
		}
	}
	if n, err := sequencer.PublishInOrder(c.ctx, records[bad:]); n != 0 || !errors.Is(err, broker.ErrRejected) {
		return fmt.Errorf("publish in order from the bad record on: got %d records published and error %v, want none and ErrRejected", n, err)
	}
	last := c.make(1)
	if n, err := sequencer.PublishInOrder(c.ctx, last); n != 1 || err != nil {
		return fmt.Errorf("publish in order after a bad record: got %d records published and error %v, want 1", n, err)
	}
	w := c.subscribe(take)
	if err := w.awaitAll(last); err != nil {
		return err
	}
	var came []string
	for _, record := range w.brought() {
		came = append(came, record.ID)
	}
	var want []string
	for _, record := range append(records[:bad:bad], last...) {
		want = append(want, record.ID)
	}
	if !slices.Equal(came, want) {
		return fmt.Errorf("publish in order, the fifth of nine is bad: got %q, want %q", came, want)
	}
	return nil
}

func severalAtOnce(c *trial) error {
	const publishers, batches, size = 6, 8, 20
	var (
		all  []broker.Record
		errs [publishers]error
		wg   sync.WaitGroup
	)
	for p := range publishers {
		own := c.make(batches * size)
		all = append(all, own...)
		wg.Go(func() {
			for b := range batches {
				errs[p] = errors.Join(errs[p], c.publish(own[b*size:(b+1)*size]...))
			}
		})
	}
	w := c.subscribe(take)
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("publish by %d at once: %w", publishers, err)
	}
	return w.awaitAll(all)
}

// endedContext: what is said to be there has to be there.
func endedContext(c *trial) error {
	ctx, cancel := context.WithCancel(c.ctx)
	cancel()
	records := c.make(20)
	results := c.Publisher.Publish(ctx, records)
	if len(results) == 0 {
		results = make([]error, len(records))
	}
	if len(results) != len(records) {
		return fmt.Errorf("publish with a ctx that has ended: got %d results, want %d", len(results), len(records))
	}
	var said []broker.Record
	for i, err := range results {
		if err == nil {
			said = append(said, records[i])
		} else if !errors.Is(err, broker.ErrUnavailable) {
			return fmt.Errorf("publish with a ctx that has ended: got %w, want ErrUnavailable", err)
		}
	}
	last := c.make(1)
	if err := c.publish(last...); err != nil {
		return fmt.Errorf("publish after one whose ctx had ended: %w", err)
	}
	return c.subscribe(take).awaitAll(append(said, last...))
}
