package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// memory is a broker with one queue, which may have one flaw.
type memory struct {
	flaw    string
	timeout time.Duration

	mu       sync.Mutex
	queue    []broker.Record
	unsaid   []broker.Record // what Subscribe should have acknowledged
	tries    map[string]int
	batches  int
	away     bool
	hangs    bool
	wasAway  bool
	cuts     int
	tell     []func()      // that it is back
	watch    []func(error) // whether it answers
	change   chan struct{} // closed when anything above changes
	nowhere  string
	tooLarge int
}

func newMemory(flaw string) *memory {
	return &memory{flaw: flaw, timeout: time.Second, tries: make(map[string]int), change: make(chan struct{}), nowhere: "nowhere",
		tooLarge: 1 << 20}
}

// setup is what a test of an adapter would make.
func (m *memory) setup(*testing.T) Setup {
	return Setup{
		Publisher: m, Subscriber: m, Destination: "here", Missing: m.nowhere, TooLarge: m.tooLarge,
		NoSubscription: noQueue{m.flaw}, Timeout: m.timeout, MaxWait: 5 * time.Second,
		Disconnect: func() error { return m.become(func() { m.cuts++ }) },
		Stop:       func() error { return m.become(m.stop) },
		Freeze:     func() error { return m.become(func() { m.away, m.hangs, m.wasAway = true, true, true }) },
		Start:      m.start,
	}
}

// OnOutage implements broker.OutageNotifier.
func (m *memory) OnOutage(f func(error)) { _ = m.become(func() { m.watch = append(m.watch, f) }) }

// said tells those who watch whether it answers.
func (m *memory) said(err error) {
	m.mu.Lock()
	watch := slices.Clone(m.watch)
	m.mu.Unlock()
	if err == nil && m.flaw == "is away for ever" {
		return
	}
	for _, f := range watch {
		f(err)
	}
}

func (m *memory) stop() {
	m.away, m.wasAway = true, true
	if m.flaw == "keeps records in memory only" {
		m.queue = nil
	}
}

func (m *memory) start() error {
	_ = m.become(func() { m.away, m.hangs = false, false })
	if m.flaw != "does not say that it is back" {
		m.sayBack()
	}
	return nil
}

// OnReconnect implements broker.ReconnectNotifier.
func (m *memory) OnReconnect(f func()) {
	_ = m.become(func() {
		if m.flaw == "tells the last who asked alone" {
			m.tell = nil
		}
		m.tell = append(m.tell, f)
	})
}

func (m *memory) sayBack() {
	m.mu.Lock()
	tell := slices.Clone(m.tell)
	m.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

func (m *memory) become(f func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	close(m.change)
	m.change = make(chan struct{})
	return nil
}

func (m *memory) Publish(ctx context.Context, records []broker.Record) []error {
	if len(records) == 0 {
		if m.flaw == "fails for no records" {
			return []error{errors.New("nothing to do")}
		}
		return nil
	}
	switch {
	case ctx.Err() != nil && m.flaw == "says yes although ctx has ended":
		return nil
	case ctx.Err() != nil:
		return all(records, broker.ErrUnavailable)
	}
	if err := m.reach(ctx); err != nil {
		if m.flaw == "says that it is back too early" {
			m.sayBack()
		}
		return all(records, err)
	}
	errs := make([]error, len(records))
	_ = m.become(func() {
		m.batches++
		for i, record := range records {
			errs[i] = m.put(i, record)
		}
	})
	if joined := errors.Join(errs...); joined != nil && m.flaw == "has one result for all" {
		return all(records, joined)
	}
	return errs
}

// PublishInOrder implements broker.OrderedPublisher.
func (m *memory) PublishInOrder(ctx context.Context, records []broker.Record) (n int, err error) {
	for n, record := range records {
		switch err := m.Publish(ctx, []broker.Record{record})[0]; {
		case err != nil && m.flaw == "sends what is behind a record that fails":
			_ = m.Publish(ctx, records[n+1:])
			return n, err
		case err != nil && m.flaw == "passes over a record that fails":
		case err != nil:
			return n, err
		}
	}
	return len(records), nil
}

// reach waits for the broker, as long as it may.
func (m *memory) reach(ctx context.Context) error {
	timeout := time.After(m.timeout)
	for {
		m.mu.Lock()
		away, hangs, change := m.away, m.hangs, m.change
		m.mu.Unlock()
		switch {
		case !away:
			return nil
		case m.flaw == "refuses while it is away":
			return broker.ErrRejected
		case !hangs:
			return broker.ErrUnavailable
		case m.flaw == "waits for ever":
			timeout = nil
		}
		done := ctx.Done()
		if m.flaw == "knows only its own deadline" {
			done, timeout = nil, time.After(2250*time.Millisecond)
		}
		select {
		case <-change:
		case <-timeout:
			return broker.ErrUnavailable
		case <-done:
			return broker.ErrUnavailable
		}
	}
}

// put is called under the lock.
func (m *memory) put(i int, record broker.Record) error {
	size := len(record.Body)
	if m.flaw != "does not count headers" {
		for name, value := range record.Headers {
			size += len(name) + len(value)
		}
	}
	switch {
	case record.Destination == m.nowhere && m.flaw == "drops what has no destination":
		return nil
	case record.Destination == m.nowhere && m.flaw == "has no class for a missing destination":
		return errors.New("no such queue")
	case record.Destination == m.nowhere:
		return broker.ErrNoDestination
	case size >= m.tooLarge && m.flaw == "calls too large unavailable":
		return broker.ErrUnavailable
	case size >= m.tooLarge:
		return broker.ErrRejected
	case i >= 1000 && m.flaw == "has room for 1000 in a batch",
		m.batches == 30 && m.flaw == "loses one of many batches",
		m.cuts > 0 && i%50 == 0 && m.flaw == "says yes while the connection breaks":
		return nil
	case m.flaw == "writes into records" && record.Headers != nil:
		record.Headers["stamp"] = "1"
	}
	m.queue = append(m.queue, m.spoiled(clone(record)))
	return nil
}

// spoiled is what a flaw of the mapping makes of a record.
func (m *memory) spoiled(record broker.Record) broker.Record {
	switch m.flaw {
	case "loses keys":
		record.Key = ""
	case "takes a missing body for an empty one":
		record.Body = append([]byte{}, record.Body...)
	case "replaces line breaks":
		for name, value := range record.Headers {
			record.Headers[name] = strings.ReplaceAll(value, "\n", " ")
		}
	case "takes headers for attributes":
		for name, value := range record.Headers {
			if attribute, ok := strings.CutPrefix(name, "ce-"); ok {
				record.Attributes[attribute] = value
			}
		}
	}
	return record
}

func (m *memory) Subscribe(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() {
		_ = m.become(func() { m.queue, m.unsaid = append(m.unsaid, m.queue...), nil })
	}()
	for {
		batch, ok := m.take(ctx)
		if !ok {
			return nil
		}
		given := batch
		if m.flaw != "gives what it keeps" {
			given = make([]broker.Record, len(batch))
			for i := range batch {
				given[i] = clone(batch[i])
			}
		}
		switch m.flaw {
		case "calls fn for several batches at once":
			wg.Go(func() { m.settle(ctx, batch, fn(ctx, given)) })
			continue
		case "leaves while fn runs":
			returned := make(chan struct{})
			go func() {
				defer close(returned)
				m.settle(ctx, batch, fn(ctx, given))
			}()
			select {
			case <-returned:
			case <-ctx.Done():
				return nil
			}
			continue
		}
		m.settle(ctx, batch, fn(ctx, given))
	}
}

// take waits for records, and takes them from the queue.
func (m *memory) take(ctx context.Context) ([]broker.Record, bool) {
	for {
		m.mu.Lock()
		n := min(len(m.queue), 256)
		away, change, done := m.away, m.change, ctx.Done()
		if m.flaw == "does not come back" {
			away = m.wasAway
		}
		if away && m.flaw == "waits for the broker at its end" {
			done = nil
		}
		if ctx.Err() == nil && !away && n > 0 {
			batch := slices.Clone(m.queue[:n])
			if m.flaw == "brings the newest first" {
				slices.Reverse(batch)
			}
			m.queue = slices.Clone(m.queue[n:])
			m.mu.Unlock()
			if m.flaw == "waits for a full batch" && n < 256 {
				<-time.After(2100 * time.Millisecond)
			}
			return batch, true
		}
		m.mu.Unlock()
		switch {
		case away && m.flaw != "does not say that it is away", m.flaw == "is always away":
			m.said(broker.ErrUnavailable)
		case !away:
			m.said(nil)
		}
		select {
		case <-change:
		case <-done:
			if m.flaw == "notices its end late" {
				<-time.After(3100 * time.Millisecond)
			}
			return nil, false
		}
	}
}

// settle does what fn has said.
func (m *memory) settle(ctx context.Context, batch []broker.Record, err error) {
	ended := ctx.Err() != nil
	switch {
	case m.flaw == "acknowledges before fn", ended && m.flaw == "acknowledges at its end":
		err = nil
	case ended && m.flaw == "gives back at its end":
		err = errGivenBack
	case err == nil && m.flaw == "does not acknowledge":
		m.unsaid = append(m.unsaid, batch...)
	}
	if err == nil {
		return
	}
	_ = m.become(func() {
		for i := len(batch) - 1; i >= 0; i-- {
			m.tries[batch[i].ID]++
			if m.tries[batch[i].ID] < 3 || m.flaw != "drops after three times" {
				m.queue = append([]broker.Record{batch[i]}, m.queue...)
			}
		}
	})
}

// noQueue subscribes to nothing.
type noQueue struct{ flaw string }

func (q noQueue) Subscribe(ctx context.Context, _ func(context.Context, []broker.Record) error) error {
	if q.flaw == "waits for a subscription that never was" {
		<-ctx.Done()
		return nil
	}
	return fmt.Errorf("no such queue")
}

// all gives each record one error.
func all(records []broker.Record, err error) []error {
	return slices.Repeat([]error{err}, len(records))
}
