package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// stopInterval is the wait between looks for stop requests while some are open.
const stopInterval = 100 * time.Millisecond

// stopRequests are the stop requests that this process handles: those whose answers are not
// settled.
type stopRequests struct {
	mu    sync.Mutex
	asked map[int64]bool
}

// begin notes a request. It returns false for a known one.
func (s *stopRequests) begin(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked[id] {
		return false
	}
	if s.asked == nil {
		s.asked = make(map[int64]bool)
	}
	s.asked[id] = true
	return true
}

// drop forgets a request.
func (s *stopRequests) drop(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.asked, id)
}

// known reports whether there are open requests.
func (s *stopRequests) known() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked) > 0
}

// stopper handles requests to stop messages.
type stopper struct {
	store    *store.Store
	db       *bun.DB
	owner    string
	outage   *outage.Outage
	ledger   *ledger
	stops    *stopRequests
	queue    *queue
	workers  *workerPool
	recorder *recorder
}

// look handles requests to stop messages and reports whether some are open.
func (sp *stopper) look(ctx context.Context) (open bool) {
	if len(sp.ledger.held()) == 0 && !sp.stops.known() {
		return false
	}
	requests, err := ask(ctx, sp.outage, "look for stops", statementTimeout,
		func(ctx context.Context) ([]int64, error) {
			return sp.store.Operations.StopRequests(ctx, sp.db, sp.owner)
		})
	if err != nil {
		return false
	}
	for _, id := range requests {
		if sp.stops.begin(id) && !sp.stop(id) {
			sp.stops.drop(id) // it is over, or about to start: the next look decides
		}
	}
	return sp.stops.known()
}

// errStopped is the outcome error of a message that was stopped before it ran.
var errStopped = bus.Discard(bus.ErrCancelled)

// stop ends the run of a message or keeps it from starting. It returns false if this process does
// not have it.
func (sp *stopper) stop(id int64) bool {
	is := func(t *task) bool { return t.row.ID == id }
	for _, t := range sp.queue.withdraw(is) {
		t.stopped.Store(true)
		sp.recorder.record(t, errStopped)
		return true
	}
	for _, w := range sp.workers.all {
		head := w.current.Load()
		if head == nil {
			continue
		}
		for _, t := range append([]*task{head}, head.others...) {
			if is(t) {
				t.stopped.Store(true)
				if t.over.Load() { // its outcome is known already
					return false
				}
				if call := w.calling.Load(); call != nil && call.isOf(t) {
					call.stop(bus.ErrCancelled)
				}
				return true
			}
		}
	}
	return false
}

// asStopped returns the outcome error of a run whose stop was requested.
func (t *task) asStopped(err error) error {
	if !t.stopped.Load() || err == nil || bus.OutcomeOf(err).Outcome != bus.Errored {
		return err
	}
	return bus.Discard(fmt.Errorf("%w: %w", bus.ErrCancelled, err))
}

// cancelled reports whether a stop request ended the message.
func (t *task) cancelled(v bus.OutcomeError) bool {
	return v.Outcome == bus.Discarded && t.stopped.Load() && errors.Is(v.Err, bus.ErrCancelled)
}

// besideStopped releases the failed messages of a call in which another one was stopped.
func besideStopped(members []*member, errs []error) []error {
	if !slices.ContainsFunc(members, func(m *member) bool { return m.task.stopped.Load() }) {
		return errs
	}
	for i, m := range members {
		if errs[i] != nil && !m.task.stopped.Load() && bus.OutcomeOf(errs[i]).Outcome == bus.Errored {
			errs[i] = &bus.OutcomeError{Outcome: bus.Released, Err: errs[i]}
		}
	}
	return errs
}
