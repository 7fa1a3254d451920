package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/alarm"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	maxSettle      = settleBatch / 2 // results in one statement
	maxSettleTexts = 4 << 20         // bytes of errors and reasons in one statement
)

// errLocked is returned if a stop would have had to wait for other transactions.
var errLocked = errors.New("outbox: settle: some outcomes were not written: " +
	"other transactions have locked their messages, or the database did not accept the outcomes")

// settler writes the results of the ledger to the database.
type settler struct {
	store      *store.Store
	db         *bun.DB
	owner      string
	config     *ProcessorConfig
	ledger     *ledger
	dispatcher *dispatcher
	recorder   *recorder
	outage     *outage.Outage
	alarm      *alarm.Alarm // of the poller
	warnings   *warnings
	groups     *groupSweeper
}

// loop writes results as they come in. Once finish is closed, it writes the rest and returns.
// When ctx ends, it no longer waits, even for locked messages.
func (st *settler) loop(ctx context.Context, finish <-chan struct{}) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	finishing := false
	for {
		b, wait := st.ledger.collect(time.Now(), finishing)
		switch {
		case !b.empty():
			err := st.settle(ctx, b)
			if err != nil && b.freeOnly && ctx.Err() != nil && st.outage.Err() == nil {
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
		case <-st.ledger.flush:
		case <-finish:
			finishing, finish = true, nil
		case <-ctx.Done():
			return errLocked
		}
	}
}

// settle writes one batch, again and again while the database does not answer. Sending a batch
// twice is harmless, so an unknown outcome needs no care. Results that the database does not take
// are settled separately, in ever smaller parts, and at last put aside. They hold up no others.
func (st *settler) settle(ctx context.Context, b batch) error {
	var finished []store.Finished
	var renewed time.Time
	if len(b.finished) > 0 {
		ids := store.Each(b.finished, func(l *lease) int64 { return l.id })
		err := st.persist(ctx, func(ctx context.Context) (err error) {
			finished, err = st.store.Claims.Finish(ctx, st.db, st.owner, ids)
			return err
		})
		if err != nil && ctx.Err() == nil {
			b, err = b.byResult(), nil
		}
		if err != nil {
			return err
		}
	}
	s := &settlement{settler: st, freeOnly: b.freeOnly}
	if len(b.results) > 0 {
		renewed = time.Now().Add(st.config.LeaseDuration)
		if err := s.settleResults(ctx, b.results); err != nil {
			return err
		}
	}
	b.aside = s.aside
	st.recorder.withdraw(&st.warnings.takenAway, st.ledger.confirm(b, finished, s.Settled, renewed))
	st.dispatcher.freed(append(b.finished, b.settling...), b.results)
	st.expectReturns(b.results)
	st.groups.settled(b)
	return nil
}

// expectReturns has the poller look again when messages that were just snoozed or retried become
// due.
func (st *settler) expectReturns(results []store.Result) {
	now := time.Now()
	for _, result := range results {
		switch result.Outcome {
		case store.Failed, store.Snoozed:
			if result.Delay < st.config.PollInterval {
				st.alarm.By(now.Add(max(result.Delay, pollFloor)))
			}
		}
	}
}

// settlement collects the outcomes of results that are sent.
type settlement struct {
	settler *settler
	store.Settled
	freeOnly bool // some messages are locked: no statement may wait for them
	aside    bool // some busy results are not locked: the database did not take them
}

// settleResults writes results in statements that a database can finish in time: after an outage
// there can be many, and error texts are long.
func (s *settlement) settleResults(ctx context.Context, results []store.Result) error {
	for len(results) > 0 {
		n := settleable(results)
		if err := s.settlePart(ctx, results[:n], false); err != nil {
			return err
		}
		s.freeOnly = s.freeOnly || len(s.Busy) > 0
		results = results[n:]
	}
	return nil
}

// settleable returns how many of the results fit into one statement.
func settleable(results []store.Result) int {
	size := 0
	for i, result := range results {
		size += len(result.Errors) + len(result.Reason)
		if result.Kept != nil {
			size += result.Kept.Size()
		}
		if i > 0 && (i == maxSettle || size > maxSettleTexts) {
			return i
		}
	}
	return len(results)
}

// settlePart narrows a failed statement down to the result at fault, so that it does not hold up
// the others: one that the database refuses, that takes too long, or whose message is locked.
// special means that others were written meanwhile, so one of these results must be at fault.
func (s *settlement) settlePart(ctx context.Context, results []store.Result, special bool) error {
	results, behind := splitBehind(results, s.Busy)
	s.Busy = append(s.Busy, behind...)
	if len(results) == 0 {
		return nil
	}
	if s.freeOnly { // nothing may be written that comes behind a locked one
		if first, rest := firstOfKeys(results); len(rest) > 0 {
			return s.settleBoth(ctx, first, rest, special)
		}
	}
	err := s.send(ctx, results, s.freeOnly)
	switch class := dberr.ClassOf(err); {
	case err == nil, ctx.Err() != nil:
		return err
	case class == dberr.LockTimeout && !s.freeOnly:
		s.freeOnly = true
		return s.settlePart(ctx, results, special)
	case len(results) > 1 && !special && (class == dberr.Other || class == dberr.Schema) && !sharesKey(results):
		return s.settleEnds(ctx, results, err)
	case len(results) > 1:
		return s.settleBoth(ctx, results[:len(results)/2], results[len(results)/2:], special)
	case class == dberr.LockTimeout:
		s.Busy = append(s.Busy, results...)
	case class == dberr.Refused:
		return s.settleBare(ctx, results[0], err)
	default:
		s.setAside(results, err)
	}
	return nil
}

func (s *settlement) settleBoth(ctx context.Context, one, other []store.Result, special bool) error {
	if err := s.settlePart(ctx, one, special); err != nil {
		return err
	}
	return s.settlePart(ctx, other, special)
}

// settleEnds finds out whether an error concerns some results or all. If the first and the last
// fail alike, it does not try the others.
func (s *settlement) settleEnds(ctx context.Context, results []store.Result, cause error) error {
	first, rest, last := results[:1], results[1:len(results)-1], results[len(results)-1:]
	busy, aside := len(s.Busy), s.aside
	s.aside = false
	err := s.settleBoth(ctx, first, last, true)
	alike := s.aside && len(s.Busy) == busy+2
	s.aside = s.aside || aside
	switch {
	case err != nil || len(rest) == 0:
		return err
	case alike:
		s.setAside(rest, cause)
		return nil
	}
	return s.settlePart(ctx, rest, true)
}

// send writes results in one statement.
func (s *settlement) send(ctx context.Context, results []store.Result, freeOnly bool) error {
	settle := s.settler.store.Claims.Settle
	if freeOnly {
		settle = s.settler.store.Claims.SettleFree
	}
	return s.settler.persist(ctx, func(ctx context.Context) error {
		part, err := settle(ctx, s.settler.db, s.settler.owner, s.settler.config.LeaseDuration, results)
		if err == nil {
			s.Applied += part.Applied
			s.Live, s.Busy = append(s.Live, part.Live...), append(s.Busy, part.Busy...)
		}
		return err
	})
}

// setAside keeps results that the database does not accept now, to be written later.
func (s *settlement) setAside(results []store.Result, err error) {
	if dberr.IsRefused(err) { // other errors were reported before
		s.settler.outage.Failed("settle", err, maxAside)
	}
	s.Busy, s.aside = append(s.Busy, results...), true
}

// settleBare writes the outcome without its texts and what it keeps, the only parts that a database
// can refuse. If even that fails, the result is set aside.
func (s *settlement) settleBare(ctx context.Context, result store.Result, cause error) error {
	s.settler.config.Logger.Error("outcome refused by the database, written without its error text and the kept message",
		"row", result.Message, "error", errorlog.Text(cause))
	result.Errors, result.Reason, result.Kept = "", "see the log", nil
	bare := []store.Result{result}
	err := s.send(ctx, bare, true)
	if err != nil && ctx.Err() == nil {
		s.setAside(bare, err)
		return nil
	}
	return err
}

// persist repeats a statement while the database does not answer. It returns any other error, and
// the error when ctx ends.
func (st *settler) persist(ctx context.Context, statement func(context.Context) error) error {
	retry := outage.NewRetry()
	for {
		attempt, cancel := context.WithTimeout(ctx, statementTimeout)
		err := statement(attempt)
		cancel()
		if err == nil {
			st.outage.Recovered()
			return nil
		}
		switch class := dberr.ClassOf(err); {
		case class == dberr.LockTimeout && ctx.Err() != nil:
			return errLocked
		case class == dberr.Refused, class == dberr.LockTimeout:
			return err
		}
		wait := retry.NextBackOff()
		if ctx.Err() == nil && !st.outage.Failed("settle", err, wait) {
			return err
		}
		if !outage.Pause(ctx, wait) {
			return fmt.Errorf("outbox: settle: %w", err)
		}
	}
}
