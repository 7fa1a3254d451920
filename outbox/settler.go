package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	maxSettle      = 2 * settleBatch // results in one statement
	maxSettleTexts = 4 << 20         // bytes of errors and reasons in one statement
)

// settled enters the outcome of a message; the settler writes it.
func (r *run) settled(t *task, err error) {
	r.ledger.add(t.lease, t.result(err, t.consumer.settings.AttemptDelay))
}

// settler writes results as they come in. Once finish is closed it writes what
// is left and returns; ctx ends its patience.
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
		case finishing:
			return nil
		case wait < 0:
			wait = time.Hour // the first result signals
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-r.ledger.flush:
		case <-finish:
			finishing = true
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
		if err != nil {
			return err
		}
	}
	if len(b.results) > 0 {
		renewed = time.Now().Add(r.config.LeaseDuration)
		var err error
		if settled, err = r.settleResults(ctx, b.results); err != nil {
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
func (r *run) settleResults(ctx context.Context, results []store.Result) (settled store.Settled, err error) {
	for len(results) > 0 {
		n := settleable(results)
		part, err := r.settlePart(ctx, results[:n])
		if err != nil {
			return store.Settled{}, err
		}
		settled.Live = append(settled.Live, part.Live...)
		settled.Applied += part.Applied
		results = results[n:]
	}
	return settled, nil
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
// does not like, so that one cannot hold up the others.
func (r *run) settlePart(ctx context.Context, results []store.Result) (settled store.Settled, err error) {
	err = r.persist(ctx, "settle", func(ctx context.Context) (err error) {
		settled, err = r.store.Settle(ctx, r.db, r.owner, r.config.LeaseDuration, results)
		return err
	})
	if err == nil || ctx.Err() != nil {
		return settled, err
	}
	if len(results) == 1 {
		return r.settleBare(ctx, results[0], err)
	}
	half := len(results) / 2
	first, err := r.settlePart(ctx, results[:half])
	if err != nil {
		return store.Settled{}, err
	}
	second, err := r.settlePart(ctx, results[half:])
	if err != nil {
		return store.Settled{}, err
	}
	return store.Settled{Live: append(first.Live, second.Live...), Applied: first.Applied + second.Applied}, nil
}

// settleBare writes the outcome without its texts, which are all that could
// displease a database. If even that fails, the message stays in its claim,
// which the keeper gives back.
func (r *run) settleBare(ctx context.Context, result store.Result, cause error) (settled store.Settled, err error) {
	r.config.Logger.Error("outcome refused by the database, written without its error text", "row", result.Message, "error", cause)
	result.Errors, result.Reason = "", "see the log"
	err = r.persist(ctx, "settle", func(ctx context.Context) (err error) {
		settled, err = r.store.Settle(ctx, r.db, r.owner, r.config.LeaseDuration, []store.Result{result})
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
// database refuses the values, which no other try can cure, or when ctx ends.
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
		if store.IsRefused(err) {
			return err
		}
		r.outage.Noticed(what, err)
		if !outage.Pause(ctx, retry.NextBackOff()) {
			return fmt.Errorf("outbox: %s: %w", what, err)
		}
	}
}
