package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

const stepSize = 500 // messages in one transaction

// step does what there is to do now, and tells how long to wait for the next one.
func (w *work) step(ctx context.Context) (wait time.Duration, over bool, err error) {
	rows, err := w.desk.store.Operations(ctx, w.desk.config.DB, store.OperationFilter{ID: w.id}, 1)
	if err != nil || len(rows) == 0 || !w.workOn(rows[0]) {
		return 0, err == nil, err
	}
	row := rows[0]
	kind := kinds()[Action(row.Kind)]
	if kind.apply != nil {
		return 0, true, w.apply(ctx, kind, row)
	}
	if tried(row) {
		return trialTick, false, w.judge(ctx, row)
	}
	if paused, err := w.comesBack(ctx, row); err != nil || paused {
		return 0, paused, err
	}
	for n := w.pace.now(row.Rate); n > 0; {
		var moved int
		row, moved, err = w.move(ctx, kind, row, min(n, stepSize))
		if err != nil || !w.workOn(row) {
			return 0, err == nil, err
		}
		if tried(row) {
			return trialTick, false, nil
		}
		w.pace.passed(moved)
		n -= max(moved, 1)
	}
	return tick, false, nil
}

// workOn tells whether the operation is one that we are to work on.
func (w *work) workOn(row store.Operation) bool {
	state := OperationState(row.State)
	return row.LeasedBy == w.owner && row.LeasedUntil.After(row.Now.Time) && (state == Waiting || state == Trying || state == Running)
}

// move changes the next messages and notes how far the operation is: in one transaction, or right after
// it, where doing the same again does no harm. It returns the operation as it is then, and how many
// messages it was.
func (w *work) move(ctx context.Context, kind kind, row store.Operation, limit int) (after store.Operation, n int, err error) {
	db := w.desk.config.DB
	if kind.repeatable {
		return w.part(ctx, db, kind, row, limit)
	}
	ctx, wakeups := txn.WithWakeups(ctx)
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		locked, found, err := w.desk.store.LockOperation(ctx, tx, w.id)
		if err != nil || !found || !w.workOn(locked) { // it was stopped, or the lease has run out
			after, n = locked, 0
			return err
		}
		after, n, err = w.part(ctx, tx, kind, locked, limit)
		return err
	})
	if err != nil {
		return row, 0, err
	}
	wakeups.Send(w.desk.config.Registry)
	return after, n, nil
}

// moved is what a part of an operation has done.
type moved struct {
	last    int64 // how far it has come
	end     bool  // nothing is left
	changed int
	alone   int     // messages that stay as they are
	ids     []int64 // of messages that are pending again
}

// part changes messages, and the operation.
func (w *work) part(ctx context.Context, db bun.IDB, kind kind, row store.Operation, limit int) (store.Operation, int, error) {
	trial := trialOf(row)
	change := store.OperationChange{State: string(Running), Lease: lease}
	if missing := int(row.Canary) - len(trial.IDs); missing > 0 && row.State != string(Running) {
		limit, change.State = min(limit, missing), string(Trying)
	}
	var target Target
	if err := json.Unmarshal(row.Target, &target); err != nil {
		return row, 0, fmt.Errorf("its target: %w", err)
	}
	done, err := kind.step(ctx, w.desk, db, step{row: row, target: target, limit: limit})
	if err != nil {
		return row, 0, err
	}
	change.AfterID, change.Changed, change.LeftAlone = done.last, int64(done.changed), int64(done.alone)
	if trial.add(row, done, change.State == string(Trying)) {
		change.Canaries = asJSON(trial)
	}
	switch whole := int64(len(trial.IDs)); {
	case !done.end:
	case change.State == string(Trying) && whole > 0: // there are fewer than were to go first
		change.Canary = &whole
	default:
		change.State, change.Finished, change.Free, change.Lease = string(Done), true, true, 0
		w.log.Info("an operation is done", "changed", row.Changed+change.Changed)
	}
	ours, err := w.desk.store.ChangeOperation(ctx, db, w.own(), change)
	if err != nil {
		return row, 0, err
	}
	row.State, row.AfterID, row.Changed = change.State, max(row.AfterID, done.last), row.Changed+change.Changed
	if change.Canary != nil {
		row.Canary = *change.Canary
	}
	if change.Canaries != nil {
		row.Canaries = change.Canaries
	}
	if !ours { // it was stopped meanwhile
		row.State = string(Stopped)
	}
	return row, done.changed + done.alone, nil
}

// apply does what a process with the application's code does at once.
func (w *work) apply(ctx context.Context, kind kind, row store.Operation) error {
	if err := w.change(ctx, store.OperationChange{State: string(Running), Lease: lease}); err != nil {
		return err
	}
	var target Target
	if err := json.Unmarshal(row.Target, &target); err != nil {
		return w.pause(ctx, "its target cannot be read")
	}
	ctx, end := context.WithCancel(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		w.keep(ctx)
	}()
	n, err := kind.apply(ctx, w.projections, target)
	end()
	<-kept
	ctx = context.WithoutCancel(ctx)
	if err != nil {
		return w.pause(ctx, err.Error())
	}
	w.log.Info("an operation is done", "changed", n)
	return w.change(ctx, store.OperationChange{State: string(Done), Changed: int64(n), Finished: true, Free: true})
}

// keep renews the lease until ctx ends.
func (w *work) keep(ctx context.Context) {
	ticker := time.NewTicker(lease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := w.change(ctx, store.OperationChange{Lease: lease}); err != nil && ctx.Err() == nil {
				w.log.Warn("the lease of an operation could not be renewed", "error", err.Error())
			}
		case <-ctx.Done():
			return
		}
	}
}
