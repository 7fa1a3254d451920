package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errtype"
	"github.com/asyncmonolith/asyncmonolith-go/internal/heartbeat"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// recorder enters the outcomes of messages in the ledger, from which the settler writes them.
type recorder struct {
	ledger     *ledger
	dispatcher *dispatcher
	stops      *stopRequests
	uncounted  *uncountedRuns
	reports    *heartbeat.Reporter // nil while nothing is reported
}

// record records the outcome of a message; the settler writes it.
func (rec *recorder) record(t *task, err error) {
	t.over.Store(true)
	v := bus.OutcomeOf(err)
	if t.committed && v.Outcome != bus.Done {
		t.warnOf(v)
	}
	result := t.result(v, t.consumer.settings.AttemptDelay)
	rec.count(t, v, &result)
	t.passed = t.committed || result.Outcome == store.Done
	if t.probe { // the consumer's function was not reached
		t.consumer.circuit.ReturnProbe()
	}
	if !t.called {
		rec.dispatcher.unstarted(t)
	}
	uncounted := result.Outcome == store.Snoozed && result.Errors != ""
	if !uncounted && (t.committed || result.Outcome != store.Release) {
		rec.uncounted.forget(t.row.ID)
	}
	if t.stopped.Load() {
		rec.stops.drop(t.row.ID)
		switch {
		case t.committed:
			result.Stop = store.StopTooLate
		case result.Outcome == store.Release: // it can be cancelled like any waiting message
		case result.Outcome == store.Done && errors.Is(v.Err, bus.ErrCancelled):
			result.Stop = store.StopCancelled
		default:
			result.Stop = store.StopTooLate
		}
	}
	rec.ledger.add(t.lease, result)
}

// notStarted releases a message that was claimed and has not begun.
func (rec *recorder) notStarted(t *task) {
	if t.stopped.Load() {
		rec.record(t, errStopped)
		return
	}
	rec.record(t, errUnstarted)
}

// count counts the outcome of a message that began, and sets the fingerprint of a poisoned one.
func (rec *recorder) count(t *task, v bus.OutcomeError, result *store.Result) {
	if t.committed {
		v = bus.OutcomeError{}
	}
	if v.Outcome == bus.Released {
		return
	}
	if t.consumer.tally != nil && !t.began.IsZero() {
		t.consumer.tally.Ran(v.Outcome, time.Since(t.began), t.began.Add(t.lease.ahead).Sub(t.row.AvailableAfter.Time))
	}
	switch {
	case v.Outcome == bus.Done, v.Outcome == bus.Discarded, v.Outcome == bus.Snoozed && v.Err == nil:
		return
	case rec.reports == nil && result.Outcome != store.Poison:
		return
	}
	cause := v.Err
	if cause == nil {
		cause = &v
	}
	print := errtype.Fingerprint(cause)
	if result.Outcome == store.Poison {
		result.Fingerprint = print
	}
	rec.reports.Failed(t.consumer.Name(), print, cause, t.row.ID)
}

// withdraw reports claims whose handlers the ledger has cancelled and releases their unstarted
// messages.
func (rec *recorder) withdraw(why *rateLimitedLog, leases []*lease) {
	if len(leases) == 0 {
		return
	}
	why.add(len(leases), 0)
	for _, t := range rec.dispatcher.queue.withdraw(func(t *task) bool { return slices.Contains(leases, t.lease) }) {
		rec.record(t, errUnstarted)
	}
}
