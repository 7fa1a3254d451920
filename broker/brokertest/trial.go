package brokertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// errGivenBack is what a function says that wants its batch again.
var errGivenBack = errors.New("brokertest: returned on purpose")

// trial is one run of a case.
type trial struct {
	Setup
	ctx     context.Context
	running []*watched
}

// make returns n records for the destination, with ids of their own.
func (c *trial) make(n int) []broker.Record {
	prefix := rand.Text()
	records := make([]broker.Record, n)
	for i := range records {
		id := prefix + "-" + strconv.Itoa(i)
		records[i] = broker.Record{
			Destination: c.Destination,
			ID:          id,
			ContentType: "application/json",
			Attributes:  map[string]string{"specversion": "1.0", "id": id, "source": "/brokertest", "type": "Numbered"},
			Body:        []byte(strconv.Itoa(i)),
		}
	}
	return records
}

// publish publishes the records and wants the broker to have each.
func (c *trial) publish(records ...broker.Record) error {
	errs := c.Publisher.Publish(c.ctx, records)
	if len(errs) != 0 && len(errs) != len(records) {
		return fmt.Errorf("publish of %d records: got %d results, want as many or none", len(records), len(errs))
	}
	return errors.Join(errs...)
}

// persist publishes the records, and those again that the broker was not there for, until it has all.
func (c *trial) persist(records []broker.Record) error {
	deadline := time.Now().Add(c.MaxWait)
	for {
		errs := c.Publisher.Publish(c.ctx, records)
		var again []broker.Record
		for i, err := range errs {
			switch {
			case err == nil:
			case errors.Is(err, broker.ErrUnavailable), errors.Is(err, broker.ErrNoDestination):
				again = append(again, records[i])
			default:
				return fmt.Errorf("publish while the broker comes back: got %w, want nil, ErrUnavailable or ErrNoDestination", err)
			}
		}
		if len(again) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("publish still fails %s after the broker is back: %w", c.MaxWait, errors.Join(errs...))
		}
		records = again
		<-time.After(50 * time.Millisecond)
	}
}

// watched is a Subscribe that runs, and what it has brought.
type watched struct {
	trial  *trial
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // of Subscribe, once ended is closed

	mu     sync.Mutex
	got    []broker.Record
	change chan struct{} // closed at the next batch, and when that is done
}

// subscribe starts Subscribe. What answer says is what fn returns.
func (c *trial) subscribe(answer func(ctx context.Context, records []broker.Record) error) *watched {
	ctx, cancel := context.WithCancel(c.ctx)
	w := &watched{trial: c, cancel: cancel, ended: make(chan struct{}), change: make(chan struct{})}
	c.running = append(c.running, w)
	go func() {
		defer close(w.ended)
		w.err = c.Subscriber.Subscribe(ctx, func(ctx context.Context, records []broker.Record) error {
			w.add(records)
			defer w.add(nil) // who waits may wait for what answer does
			return answer(ctx, records)
		})
	}()
	return w
}

// take is an answer that acknowledges everything.
func take(context.Context, []broker.Record) error { return nil }

func (w *watched) add(records []broker.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, record := range records {
		w.got = append(w.got, clone(record))
	}
	close(w.change)
	w.change = make(chan struct{})
}

// brought returns what has come, in order.
func (w *watched) brought() []broker.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.got)
}

// await waits until done says of what has come that it is enough.
func (w *watched) await(what string, done func(got []broker.Record) bool) error {
	timeout := time.After(w.trial.MaxWait)
	for {
		w.mu.Lock()
		got, change := slices.Clone(w.got), w.change
		w.mu.Unlock()
		if done(got) {
			return nil
		}
		select {
		case <-change:
		case <-w.ended:
			return fmt.Errorf("subscribe returned %v while waiting for %s", w.err, what)
		case <-timeout:
			return fmt.Errorf("waited %s for %s: got %d deliveries", w.trial.MaxWait, what, len(got))
		}
	}
}

// awaitAll waits until each of the records has come at least once.
func (w *watched) awaitAll(records []broker.Record) error {
	return w.await(fmt.Sprintf("all of %d records", len(records)), func(got []broker.Record) bool {
		return len(missing(records, got)) == 0
	})
}

// stop ends Subscribe and wants it to return nil, soon.
func (w *watched) stop() error {
	w.cancel()
	select {
	case <-w.ended:
	case <-time.After(w.trial.MaxWait):
		return fmt.Errorf("subscribe has not returned %s after its ctx ended", w.trial.MaxWait)
	}
	if w.err != nil {
		return fmt.Errorf("subscribe after its ctx ended: got %w, want nil", w.err)
	}
	return nil
}

// stopAll ends what a case has left running.
func (c *trial) stopAll() error {
	var errs []error
	for _, w := range c.running {
		errs = append(errs, w.stop())
	}
	return errors.Join(errs...)
}

// missing returns the ids of the records that are not in got.
func missing(records, got []broker.Record) (ids []string) {
	have := make(map[string]bool, len(got))
	for _, record := range got {
		have[record.ID] = true
	}
	for _, record := range records {
		if !have[record.ID] {
			ids = append(ids, record.ID)
		}
	}
	return ids
}

// held publishes records and ends Subscribe while fn has some of them. release has fn return.
func (c *trial) held(n int, answer error) (records []broker.Record, w *watched, release func(), err error) {
	records = c.make(n)
	if err := c.publish(records...); err != nil {
		return nil, nil, nil, fmt.Errorf("publish: %w", err)
	}
	let, inside := make(chan struct{}), make(chan struct{}, 1) // one is enough to know
	w = c.subscribe(func(context.Context, []broker.Record) error {
		select {
		case inside <- struct{}{}:
		default:
		}
		<-let
		return answer
	})
	select {
	case <-inside:
	case <-w.ended:
		err = fmt.Errorf("subscribe returned %v before it delivered a record", w.err)
	case <-time.After(c.MaxWait):
		err = fmt.Errorf("waited %s for the first batch", c.MaxWait)
	}
	if err != nil {
		close(let)
		return nil, nil, nil, err
	}
	w.cancel()
	return records, w, func() { close(let) }, nil
}
