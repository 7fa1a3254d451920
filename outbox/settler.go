package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	maxSettle      = 2 * settleBatch // results in one statement
	maxSettleTexts = 4 << 20         // bytes of errors and reasons in one statement
)

// errLocked is for a stop that would have had to wait for others.
var errLocked = errors.New("outbox: settle: some outcomes were not written, since other transactions keep their messages locked")

// settled enters the outcome of a message; the settler writes it.
func (r *run) settled(t *task, err error) {
	r.ledger.add(t.lease, t.result(err, t.consumer.settings.AttemptDelay))
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
			if err := r.settle(ctx, b); err != nil {
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

// settle writes one batch, again and again until the database has taken it.
// Sending a batch twice is harmless, so an unknown outcome needs no thought.
func (r *run) settle(ctx context.Context, b batch) error {
	var finished []store.Finished
	var settled store.Settled
	var renewed time.Time
	if len(b.finished) > 0 {
		ids := make([]int64, len(b.finished))
		for i, entry := range b.finished {
			ids[i] = entry.id
		}
		err := r.persist(ctx, "settle", func(ctx context.Context) (err error) {
			finished, err = r.store.Finish(ctx, r.db, r.owner, ids)
			return err
		})
		if store.IsLockTimeout(err) && ctx.Err() == nil {
			b, err = b.apart(), nil
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
	r.lost(r.ledger.confirm(b, finished, settled, renewed))
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
			if result.Delay < r.config.ProcessorMaxDelay {
				r.alarm.By(now.Add(max(result.Delay, pollFloor)))
			}
		}
	}
}

// settleResults writes results in statements that a database can finish in time:
// after an outage there can be many, and the texts of errors are long.
func (r *run) settleResults(ctx context.Context, results []store.Result, freeOnly bool) (settled store.Settled, err error) {
	for len(results) > 0 {
		n := settleable(results)
		part, err := r.settlePart(ctx, results[:n], freeOnly)
		if err != nil {
			return store.Settled{}, err
		}
		settled = together(settled, part)
		freeOnly = freeOnly || len(part.Busy) > 0
		results = results[n:]
	}
	return settled, nil
}

func together(a, b store.Settled) store.Settled {
	return store.Settled{Live: append(a.Live, b.Live...), Applied: a.Applied + b.Applied, Busy: append(a.Busy, b.Busy...)}
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

// settlePart narrows a statement that the database refuses down to the result it
// does not like, or whose message is locked, so that one cannot hold up the others.
func (r *run) settlePart(ctx context.Context, results []store.Result, freeOnly bool) (settled store.Settled, err error) {
	settle := r.store.Settle
	if freeOnly {
		settle = r.store.SettleFree
	}
	err = r.persist(ctx, "settle", func(ctx context.Context) (err error) {
		settled, err = settle(ctx, r.db, r.owner, r.config.LeaseDuration, results)
		return err
	})
	switch locked := store.IsLockTimeout(err); {
	case err == nil, ctx.Err() != nil:
		return settled, err
	case locked && !freeOnly:
		return r.settlePart(ctx, results, true)
	case locked && len(results) == 1:
		return store.Settled{Live: []int64{results[0].Claim}, Busy: results}, nil
	case len(results) == 1:
		return r.settleBare(ctx, results[0], err)
	}
	half := len(results) / 2
	first, err := r.settlePart(ctx, results[:half], freeOnly)
	if err != nil {
		return store.Settled{}, err
	}
	second, err := r.settlePart(ctx, results[half:], freeOnly)
	if err != nil {
		return store.Settled{}, err
	}
	return together(first, second), nil
}

// settleBare writes the outcome without its texts, which are all that could
// displease a database. If even that fails, the message stays in its claim,
// which the keeper gives back.
func (r *run) settleBare(ctx context.Context, result store.Result, cause error) (settled store.Settled, err error) {
	r.config.Logger.Error("outcome refused by the database, written without its error text", "row", result.Message, "error", cause)
	result.Errors, result.Reason = "", "see the log"
	err = r.persist(ctx, "settle", func(ctx context.Context) (err error) {
		settled, err = r.store.SettleFree(ctx, r.db, r.owner, r.config.LeaseDuration, []store.Result{result})
		return err
	})
	if err != nil && ctx.Err() == nil {
		r.config.Logger.Error("outcome refused by the database", "row", result.Message, "error", err)
		r.strays.Store(true)
		return store.Settled{}, nil
	}
	return settled, err
}

// persist repeats a statement until the database takes it. It gives up when the
// database refuses the values, which no other try can cure, when it has waited for a
// lock in vain, or when ctx ends.
func (r *run) persist(ctx context.Context, what string, statement func(context.Context) error) error {
	retry := outage.NewRetry()
	for {
		attempt, cancel := context.WithTimeout(ctx, statementTimeout)
		err := statement(attempt)
		cancel()
		if err == nil {
			r.outage.Over()
			return nil
		}
		switch {
		case store.IsLockTimeout(err) && ctx.Err() != nil:
			return errLocked
		case store.IsRefused(err), store.IsLockTimeout(err):
			return err
		}
		r.outage.Noticed(what, err)
		if !outage.Pause(ctx, retry.NextBackOff()) {
			return fmt.Errorf("outbox: %s: %w", what, err)
		}
	}
}
