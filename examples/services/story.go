package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/examples/services/orders"
	"github.com/asyncmonolith/asyncmonolith-go/examples/services/service"
	"github.com/asyncmonolith/asyncmonolith-go/examples/services/shipping"
)

// story is what happens, and what the services tell of it.
type story struct {
	ctx       context.Context // ends when a service ends by itself
	fail      context.CancelCauseFunc
	out       io.Writer
	begun     time.Time
	processes []*process

	mu      sync.Mutex
	heard   heard
	changed chan struct{} // closed and replaced whenever something is heard
}

// heard is what the services have told so far.
type heard struct {
	placed, published, held, shipped int
	spans                            []service.Span
}

func newStory(ctx context.Context, out io.Writer) *story {
	st := &story{out: out, begun: time.Now(), changed: make(chan struct{})}
	st.ctx, st.fail = context.WithCancelCause(ctx)
	return st
}

// tellAll is the story.
func (st *story) tellAll(b *broker, d *databases) error {
	settings := func(name, database string) service.Settings {
		return service.Settings{Name: name, Database: database, Broker: b.server.ClientURL()}
	}
	st.tell("broker", "JetStream at %s has a stream, and a consumer for shipping", b.server.ClientURL())
	ordering, err := st.start(settings("orders", d.ordersAt), d.kind())
	if err != nil {
		return err
	}
	if err := st.wait("100 records", func(h heard) bool { return h.published >= 100 }); err != nil {
		return err
	}
	st.tell("orders", "%d orders are placed and published, and wait at the broker: shipping does not run yet", st.now().published)
	first := settings("shipping", d.shippingAt)
	first.HoldAt = 3
	doomed, err := st.start(first, "SQLite")
	if err != nil {
		return err
	}
	// Of three batches more than two are shipped: so some of the third are.
	if err := st.wait("a batch that is held", func(h heard) bool { return h.held > 0 && h.shipped > 2*shipping.Batch }); err != nil {
		return err
	}
	if err := doomed.kill(); err != nil {
		return err
	}
	then := st.now()
	st.tell("shipping", "KILLED (SIGKILL): %d records are committed here, and the broker does not know", then.held)
	// On a slow machine all may be placed by now.
	if err := st.wait("50 more orders", func(h heard) bool { return h.placed >= min(then.placed+50, orders.Total) }); err != nil {
		return err
	}
	st.tell("orders", "%d orders are placed: orders does not notice that shipping is away", st.now().placed)
	again, err := st.start(settings("shipping", d.shippingAt), "SQLite")
	if err != nil {
		return err
	}
	if err := st.wait("all orders", func(h heard) bool { return h.placed == orders.Total }); err != nil {
		return err
	}
	st.tell("orders", "all %d orders are placed", orders.Total)
	if err := st.settle(b, d); err != nil {
		return err
	}
	st.tell("shipping", "nothing is left to ship, and the broker has all acknowledgements")
	return errors.Join(ordering.stop(), again.stop())
}

// start starts a service.
func (st *story) start(s service.Settings, database string) (*process, error) {
	p, err := startProcess(s, st.hear, st.fail)
	if err != nil {
		return nil, err
	}
	st.processes = append(st.processes, p)
	st.tell(s.Name, "runs as process %d, on %s", p.cmd.Process.Pid, database)
	return p, nil
}

// killAll ends what still runs, which is nothing unless the story went wrong.
func (st *story) killAll() (err error) {
	for _, p := range st.processes {
		err = errors.Join(err, p.kill())
	}
	st.fail(nil)
	return err
}

// settle waits until all records are acknowledged, and all messages consumed.
func (st *story) settle(b *broker, d *databases) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		records, _, open, err := b.counts(st.ctx)
		if err != nil {
			return err
		}
		if records == orders.Total && open == 0 {
			waiting, err := d.shipping.NewSelect().Table("consumer_messages").Count(st.ctx)
			if err != nil || waiting == 0 {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-st.ctx.Done():
			return fmt.Errorf("wait until all is shipped: %w", context.Cause(st.ctx))
		}
	}
}

// tell prints a line.
func (st *story) tell(who, format string, args ...any) {
	fmt.Fprintf(st.out, "%5.2fs  %-8s  %s\n", time.Since(st.begun).Seconds(), who, fmt.Sprintf(format, args...))
}

// hear takes in what a service tells.
func (st *story) hear(e service.Event) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.heard.placed = max(st.heard.placed, e.Placed)
	st.heard.held += e.Held
	if e.Span != nil {
		st.heard.spans = append(st.heard.spans, *e.Span)
		switch e.Span.Consumer {
		case "to-broker":
			st.heard.published++
		case "ship":
			st.heard.shipped++
		}
	}
	close(st.changed)
	st.changed = make(chan struct{})
}

func (st *story) now() heard {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.heard
}

func (st *story) spans() []service.Span { return slices.Clone(st.now().spans) }

// wait waits until something has been heard.
func (st *story) wait(what string, happened func(heard) bool) error {
	for {
		st.mu.Lock()
		h, changed := st.heard, st.changed
		st.mu.Unlock()
		if happened(h) {
			return nil
		}
		select {
		case <-changed:
		case <-st.ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(st.ctx))
		}
	}
}
