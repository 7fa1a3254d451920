package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	maxSettle      = 2 * settleBatch // results in one statement
	maxSettleTexts = 4 << 20         // bytes of errors and reasons in one statement
)

// errLocked is for a stop that would have had to wait for others.
var errLocked = errors.New("outbox: settle: some outcomes were not written, since other transactions keep their messages locked, or the database did not take them")

// settled enters the outcome of a message; the settler writes it.
func (r *run) settled(t *task, err error) {
	result := t.result(err, t.consumer.settings.AttemptDelay)
	if uncounted := result.Outcome == store.Snoozed && result.Errors != ""; t.consumer.transactional && !uncounted && (t.committed || result.Outcome != store.Release) {
		r.streaks.forget(t.row.ID)
		r.unstarted.forget(t.row.ID)
	}
	r.ledger.add(t.lease, result)
}

// settler writes results as they come in. Once finish is closed it writes what
// is left and returns; ctx ends its patience, also with messages that are locked.
func (r *run) settler(ctx context.Context, finish <-chan struct{}) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	finishing := false
	for {
		b, wait := r.ledger.collect(time.Now(), finishing)
		switch {
		case !b.empty():
			err := r.settle(ctx, b)
			if err != nil && b.freeOnly && ctx.Err() != nil && r.outage.Err() == nil {
				err = errLocked // the statement was cut off
			}
			if err != nil {
				return err
			}
			continue
		case finishing && wait < 0:
			return nil
		case wait < 0:
			wait = time.Hour // the first result signals
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-r.ledger.flush:
		case <-finish:
			finishing, finish = true, nil
		case <-ctx.Done():
			return errLocked
		}
	}
}

// outcome is what became of results that were sent.
type outcome struct {
	store.Settled
	kept  []int64 // claims of busy results that are still held, as far as is known, but were not renewed
	aside bool    // some of the busy are not locked: the database did not take them
}

// settle writes one batch, again and again while the database does not answer. Sending a
// batch twice is harmless, so an unknown outcome needs no thought. What the database
// does not take is settled apart, in ever smaller parts, and put aside in the end: it
// holds up nobody else.
func (r *run) settle(ctx context.Context, b batch) error {
	var finished []store.Finished
	var settled outcome
	var renewed time.Time
	if len(b.finished) > 0 {
		ids := make([]int64, len(b.finished))
		for i, entry := range b.finished {
			ids[i] = entry.id
		}
		err := r.persist(ctx, func(ctx context.Context) (err error) {
			finished, err = r.store.Finish(ctx, r.db, r.owner, ids)
			return err
		})
		if err != nil && ctx.Err() == nil {
			b, err = b.byResult(), nil
		}
		if err != nil {
			return err
		}
	}
	if len(b.results) > 0 {
		renewed = time.Now().Add(r.config.LeaseDuration)
		var err error
		if settled, err = r.settleResults(ctx, b.results, b.freeOnly); err != nil {
			return err
		}
	}
	b.aside, b.kept = settled.aside, settled.kept
	r.lost(r.ledger.confirm(b, finished, settled.Settled, renewed))
	r.expectReturns(b.results)
	return nil
}

// expectReturns has the poller look again when messages are due that were just
// snoozed or are to be retried.
func (r *run) expectReturns(results []store.Result) {
	now := time.Now()
	for _, result := range results {
		switch result.Outcome {
		case store.Failed, store.Snoozed:
			if result.Delay < r.config.PollInterval {
				r.alarm.By(now.Add(max(result.Delay, pollFloor)))
			}
		}
	}
}

// settleResults writes results in statements that a database can finish in time:
// after an outage there can be many, and the texts of errors are long.
func (r *run) settleResults(ctx context.Context, results []store.Result, freeOnly bool) (settled outcome, err error) {
	for len(results) > 0 {
		n := settleable(results)
		part, err := r.settlePart(ctx, results[:n], freeOnly, false)
		if err != nil {
			return outcome{}, err
		}
		settled = together(settled, part)
		freeOnly = freeOnly || len(part.Busy) > 0
		results = results[n:]
	}
	return settled, nil
}

func together(a, b outcome) outcome {
	return outcome{
		Settled: store.Settled{Live: append(a.Live, b.Live...), Applied: a.Applied + b.Applied, Busy: append(a.Busy, b.Busy...)},
		kept:    append(a.kept, b.kept...),
		aside:   a.aside || b.aside,
	}
}

// settleable tells how many of the results go into one statement.
func settleable(results []store.Result) int {
	size := 0
	for i, result := range results {
		size += len(result.Errors) + len(result.Reason)
		if i > 0 && (i == maxSettle || size > maxSettleTexts) {
			return i
		}
	}
	return len(results)
}

// settlePart narrows a statement that the database does not take down to the result that
// it does not like, takes too long over, or whose message is locked, so that one cannot
// hold up the others. special says that others were taken meanwhile, so that it must be
// one of these results.
func (r *run) settlePart(ctx context.Context, results []store.Result, freeOnly, special bool) (outcome, error) {
	settled, err := r.send(ctx, results, freeOnly)
	switch class := dberr.ClassOf(err); {
	case err == nil, ctx.Err() != nil:
		return settled, err
	case class == dberr.LockTimeout && !freeOnly:
		return r.settlePart(ctx, results, true, special)
	case class == dberr.LockTimeout && len(results) == 1:
		return busy(results), nil
	case class == dberr.Refused && len(results) == 1:
		return r.settleBare(ctx, results[0], err)
	case len(results) == 1:
		return r.putAside(results, err), nil
	case !special && (class == dberr.Other || class == dberr.Schema):
		return r.settleEnds(ctx, results, freeOnly, err)
	}
	return r.settleBoth(ctx, results[:len(results)/2], results[len(results)/2:], freeOnly, special)
}

func (r *run) settleBoth(ctx context.Context, one, other []store.Result, freeOnly, special bool) (outcome, error) {
	first, err := r.settlePart(ctx, one, freeOnly, special)
	if err != nil {
		return outcome{}, err
	}
	second, err := r.settlePart(ctx, other, freeOnly, special)
	if err != nil {
		return outcome{}, err
	}
	return together(first, second), nil
}

// settleEnds finds out whether an error is one of some results or of all. When two single
// ones fail alike there is no use in trying the others.
func (r *run) settleEnds(ctx context.Context, results []store.Result, freeOnly bool, cause error) (outcome, error) {
	first, last := results[:1], results[len(results)-1:]
	ends, err := r.settleBoth(ctx, first, last, freeOnly, true)
	switch rest := results[1 : len(results)-1]; {
	case err != nil:
		return outcome{}, err
	case ends.aside && len(ends.Busy) == 2:
		return together(ends, r.putAside(rest, cause)), nil
	case len(rest) > 0:
		middle, err := r.settlePart(ctx, rest, freeOnly, true)
		if err != nil {
			return outcome{}, err
		}
		ends = together(ends, middle)
	}
	return ends, nil
}

// send writes results in one statement.
func (r *run) send(ctx context.Context, results []store.Result, freeOnly bool) (settled outcome, err error) {
	settle := r.store.Settle
	if freeOnly {
		settle = r.store.SettleFree
	}
	err = r.persist(ctx, func(ctx context.Context) (err error) {
		settled.Settled, err = settle(ctx, r.db, r.owner, r.config.LeaseDuration, results)
		return err
	})
	return settled, err
}

// busy keeps results, and the claims of their messages, for later.
func busy(results []store.Result) outcome {
	settled := outcome{Settled: store.Settled{Busy: slices.Clone(results)}} // it is appended to
	for _, result := range results {
		settled.kept = append(settled.kept, result.Claim)
	}
	return settled
}

// putAside does so for results that the database does not take now.
func (r *run) putAside(results []store.Result, err error) outcome {
	if dberr.IsRefused(err) { // else it was noticed already
		r.outage.Failed("settle", err, maxAside)
	}
	settled := busy(results)
	settled.aside = true
	return settled
}

// settleBare writes the outcome without its texts, which are all that could
// displease a database. If even that fails it is put aside.
func (r *run) settleBare(ctx context.Context, result store.Result, cause error) (outcome, error) {
	r.config.Logger.Error("outcome refused by the database, written without its error text", "row", result.Message, "error", errorlog.Text(cause))
	bare := result
	bare.Errors, bare.Reason = "", "see the log"
	settled, err := r.send(ctx, []store.Result{bare}, true)
	if err != nil && ctx.Err() == nil {
		return r.putAside([]store.Result{bare}, err), nil
	}
	return settled, err
}

// persist repeats a statement while the database does not answer. Any other error is
// the caller's to deal with; so is the end of ctx.
func (r *run) persist(ctx context.Context, statement func(context.Context) error) error {
	retry := outage.NewRetry()
	for {
		attempt, cancel := context.WithTimeout(ctx, statementTimeout)
		err := statement(attempt)
		cancel()
		if err == nil {
			r.outage.Recovered()
			return nil
		}
		switch class := dberr.ClassOf(err); {
		case class == dberr.LockTimeout && ctx.Err() != nil:
			return errLocked
		case class == dberr.Refused, class == dberr.LockTimeout:
			return err
		}
		wait := retry.NextBackOff()
		if ctx.Err() == nil && !r.outage.Failed("settle", err, wait) {
			return err
		}
		if !outage.Pause(ctx, wait) {
			return fmt.Errorf("outbox: settle: %w", err)
		}
	}
}
