package outbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Stopped is what came of [Admin.Stop].
type Stopped string

// The answers of [Admin.Stop].
const (
	// StopCancelled: the message is gone without having been done. It did not run, or its
	// consumer returned an error when it was asked to end.
	StopCancelled Stopped = "cancelled"
	// StopTooLate: the run had an outcome of its own. The message is done, or poisoned, or stays
	// since it has failed or was snoozed.
	StopTooLate Stopped = "too late"
)

const (
	// stopLook is the wait between looks for an answer.
	stopLook = 100 * time.Millisecond
	// stopAnswer is for how long an answer may come once the message is gone.
	stopAnswer = 5 * time.Second
)

// Stop deletes a message as [Admin.Cancel] does, and if a process holds it, asks that process
// to end its run: the consumer's context is cancelled with bus.ErrCancelled. It waits for the
// outcome until ctx ends, and then returns the context's error; the request stays, and the
// process may still act on it. A process looks for requests with each of its polls, once a
// second by default. A consumer that ignores its context runs on.
//
// To stop one message of a batch that runs is to end the whole call; the others of it run again, with
// no attempt counted. It returns [ErrNotFound] when no message with that id is pending.
func (a *Admin) Stop(ctx context.Context, db *bun.DB, id int64) (Stopped, error) {
	st, _, err := a.stores.Of(db, errAdminUnmade)
	if err != nil {
		return "", dberr.Wrap(err, "outbox: admin: stop %d", id)
	}
	stopped, err := a.stop(ctx, st, db, id)
	return stopped, dberr.Wrap(err, "outbox: admin: stop %d", id)
}

func (a *Admin) stop(ctx context.Context, st *store.Store, db *bun.DB, id int64) (Stopped, error) {
	asked := ""
	var gone time.Time // since when the message is
	for {
		changed, err := st.ChangePending(ctx, db, []int64{id}, store.PendingChange{Cancel: true})
		switch {
		case err != nil:
			return "", err
		case len(changed.IDs) > 0:
			return StopCancelled, forget(ctx, st, db, id, asked)
		case len(changed.Missing) > 0 && asked == "":
			return "", ErrNotFound
		}
		request, _, err := st.StopAnswer(ctx, db, id)
		if err != nil {
			return "", err
		}
		if asked != "" && request.Outcome != "" {
			return Stopped(request.Outcome), forget(ctx, st, db, id, asked)
		}
		if len(changed.Missing) > 0 {
			if gone = cmp.Or(gone, time.Now()); time.Since(gone) > stopAnswer { // no answer will come any more
				return StopTooLate, forget(ctx, st, db, id, asked)
			}
		} else if asked, err = a.askToStop(ctx, st, db, id, asked); err != nil {
			return "", err
		}
		if !outage.Pause(ctx, stopLook) {
			return "", fmt.Errorf("no answer yet from owner %s: %w", asked, context.Cause(ctx))
		}
	}
}

// askToStop asks the process that holds the message now, unless it was asked before, and returns
// which.
func (a *Admin) askToStop(ctx context.Context, st *store.Store, db *bun.DB, id int64, asked string) (string, error) {
	owner, _, err := st.Holder(ctx, db, id)
	if err != nil || owner == "" || owner == asked {
		return asked, err
	}
	return owner, st.AskToStop(ctx, db, id, owner)
}

// forget removes a request that was made.
func forget(ctx context.Context, st *store.Store, db *bun.DB, id int64, asked string) error {
	if asked == "" {
		return nil
	}
	return st.ForgetStop(ctx, db, id)
}

// stops are the requests that this process acts on: those whose answers are not settled yet.
type stops struct {
	mu    sync.Mutex
	asked map[int64]bool
}

// begin notes a request, and returns false for one that is known.
func (s *stops) begin(id int64) bool {
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
func (s *stops) drop(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.asked, id)
}

// known reports whether there are requests.
func (s *stops) known() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked) > 0
}

// lookForStops acts on requests to end runs, and reports whether some are open.
func (r *run) lookForStops(ctx context.Context) (open bool) {
	if len(r.ledger.held()) == 0 && !r.stops.known() {
		return false
	}
	requests, err := ask(ctx, r, "look for stops", statementTimeout, func(ctx context.Context) ([]int64, error) { return r.store.StopRequests(ctx, r.db, r.owner) })
	if err != nil {
		return false
	}
	for _, id := range requests {
		if r.stops.begin(id) && !r.stopMessage(id) {
			r.stops.drop(id) // it is over, or about to start: the next look tells
		}
	}
	return r.stops.known()
}

// errStopped is the outcome error of a message that was to be stopped, and did not run.
var errStopped = bus.Discard(bus.ErrCancelled)

// stopMessage ends the run of a message, or has it not begin. False means that this process
// does not have it.
func (r *run) stopMessage(id int64) bool {
	is := func(t *task) bool { return t.row.ID == id }
	for _, t := range r.dispatcher.withdraw(is) {
		t.stopped.Store(true)
		r.settled(t, errStopped)
		return true
	}
	for _, w := range r.slots {
		head := w.current.Load()
		if head == nil {
			continue
		}
		for _, t := range append([]*task{head}, head.others...) {
			if is(t) {
				if t.stopped.Store(true); t.over.Load() { // its outcome is known already
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

// asStopped is what to make of the error of a run that was asked to end.
func (t *task) asStopped(err error) error {
	if !t.stopped.Load() || err == nil || bus.OutcomeOf(err).Outcome != bus.Errored {
		return err
	}
	return bus.Discard(fmt.Errorf("%w: %w", bus.ErrCancelled, err))
}

// besideStopped gives the others of a call back of which one was asked to end.
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
