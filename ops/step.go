package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

const (
	stepSize = 500 // messages in one transaction
	stepTime = 10 * time.Second
	// mostDeaths is how many processes in a row may die while they run an operation without
	// progress. The operation may cause the crashes, and would crash every process in turn.
	mostDeaths = 3
)

var errStepTime = errors.New("a step of an operation takes longer than 10 s") // immutable

// step does the next step and returns how long to wait for the following one. It finishes the step
// even if ctx ends meanwhile.
func (w *work) step(ctx context.Context) (wait time.Duration, over bool, err error) {
	within, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stepTime, errStepTime)
	defer cancel()
	rows, err := w.service.store.Operations.List(within, w.service.config.DB, store.OperationFilter{ID: w.id}, 1)
	if err != nil || len(rows) == 0 || !w.workOn(rows[0]) {
		return 0, err == nil, err
	}
	row := rows[0]
	if row.Deaths >= mostDeaths {
		err := w.pause(within, fmt.Sprintf("paused after %d processes died while running it", row.Deaths))
		return 0, err == nil, err
	}
	if tried(row) {
		if w.leave() {
			w.look() // other operations can run meanwhile
		}
		wait := trialTick
		if longCanary(row) != "" {
			wait = lease / 3
		}
		return wait, false, w.judge(within, row)
	}
	if !w.enter() {
		return trialTick, false, w.change(within, store.OperationChange{Lease: lease})
	}
	kind := kinds()[Action(row.Kind)]
	target, err := targetOf(row)
	if err != nil {
		err = w.pause(within, "invalid target"+foreign+said(err))
		return 0, err == nil, err
	}
	if kind.apply != nil {
		if ours, err := w.begun(ctx); err != nil || !ours { // it was undone or taken over
			return 0, err == nil, err
		}
		return 0, true, w.apply(ctx, kind, target)
	}
	if paused, err := w.comesBack(within, row); err != nil || paused {
		return 0, paused, err
	}
	if w.pace.now(row.Rate) < 1 {
		return tick, false, nil
	}
	after, err := w.move(within, kind, target)
	switch {
	case err != nil || !w.workOn(after):
		return 0, err == nil, err
	case tried(after):
		return trialTick, false, nil
	case w.pace.left >= stepSize:
		return 0, false, nil
	}
	return tick, false, nil
}

// workOn reports whether this runner may work on the operation.
func (w *work) workOn(row store.Operation) bool {
	state := OperationState(row.State)
	return row.LeasedBy == w.owner && row.LeasedUntil.After(row.Now.Time) && (state == Waiting || state == Canary || state == Running)
}

// move changes the next messages and records the progress, in one transaction that locks the
// operation. Stop waits for that lock; after it, nothing more changes. move returns the operation
// as it is then.
func (w *work) move(ctx context.Context, kind kind, target pinnedTarget) (after store.Operation, err error) {
	ctx, wakeups := txn.WithWakeups(txn.Own(ctx))
	n := 0
	err = txn.InTx(ctx, w.service.config.DB, func(tx bun.Tx) error {
		locked, found, err := w.service.store.Operations.Hold(ctx, tx, w.id)
		if err != nil || !found || !w.workOn(locked) { // it was stopped, or the lease has expired
			after, n = locked, 0
			return err
		}
		after, n, err = w.part(ctx, tx, kind, step{row: locked, target: target})
		return err
	})
	if err != nil {
		return store.Operation{}, err
	}
	w.pace.passed(n)
	wakeups.Send(w.service.config.Registry)
	if after.State == string(Done) {
		w.log.Info("operation done", "changed", after.Changed)
	}
	return after, nil
}

// moved is the result of one step.
type moved struct {
	last    int64 // last id processed
	end     bool  // nothing is left
	changed int
	alone   int     // messages left unchanged
	ids     []int64 // of requeued messages
}

// part changes as many messages as the pace allows, and the locked operation. It returns the
// operation as it is then, and the number of messages.
func (w *work) part(ctx context.Context, tx bun.Tx, kind kind, s step) (store.Operation, int, error) {
	row := s.row
	s.limit = min(w.pace.now(row.Rate), stepSize)
	if s.limit < 1 { // the rate was lowered meanwhile
		return row, 0, nil
	}
	trial := trialOf(row)
	change := store.OperationChange{State: string(Running), Lease: lease}
	if missing := int(row.Canary) - len(trial.IDs); missing > 0 && row.State != string(Running) {
		s.limit, change.State = min(s.limit, missing), string(Canary)
	}
	done, err := kind.step(ctx, w.service, tx, s)
	if err != nil {
		return row, 0, err
	}
	change.AfterID, change.Changed, change.LeftAlone = done.last, int64(done.changed), int64(done.alone)
	if trial.add(row, done, change.State == string(Canary)) {
		if change.Canaries, err = asJSON(trial); err != nil {
			return row, 0, err
		}
	}
	switch whole := int64(len(trial.IDs)); {
	case !done.end:
	case change.State == string(Canary) && whole > 0: // fewer messages exist than were to be canaries
		change.Canary = &whole
	default:
		change.State, change.Finished, change.Free, change.Lease = string(Done), true, true, 0
	}
	if _, err := w.service.store.Operations.Change(ctx, tx, w.own(), change); err != nil {
		return row, 0, err
	}
	after, _, err := w.service.store.Operations.Lock(ctx, tx, w.id)
	return after, done.changed + done.alone, err
}
