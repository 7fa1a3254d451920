package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

const (
	// turnLease is the lease of the process that receives alone: how long others wait if it is
	// killed.
	turnLease   = 10 * time.Second
	turnRenewal = 2 * time.Second
)

// errTurn is returned when another process receives.
var errTurn = errors.New("relay: another process receives by now")

// alone reports whether one process at a time receives.
func (r *receiving) alone() bool { return r.intoLog && !r.shared }

// turn is the lease row of a receiver that receives alone, stored with the readers of the log.
func (r *receiving) turn() store.Subscription {
	return store.Subscription{Name: r.consumerName(), Version: 1, Shards: 1, Filter: "{}"}
}

// enterReceivers creates the lease rows.
func (r *Runner) enterReceivers(ctx context.Context) error {
	for _, rc := range r.receivers {
		if !rc.alone() {
			continue
		}
		if err := txn.InTx(ctx, r.db, func(tx bun.Tx) error { return r.store.Subscribe(ctx, tx, rc.turn()) }); err != nil {
			return fmt.Errorf("receiver %q: %w", rc.name, err)
		}
	}
	return nil
}

// awaitTurn waits until no other process receives. It returns false when ctx has ended.
func (r *Runner) awaitTurn(ctx context.Context, rc *receiving) bool {
	if !rc.alone() {
		return ctx.Err() == nil
	}
	defer rc.runs.standBy(false)
	for ctx.Err() == nil {
		held, err := r.takeTurn(ctx, rc)
		switch {
		case ctx.Err() != nil:
			if held {
				r.endTurn(ctx, rc)
			}
			return false
		case err != nil:
			r.outage.Failed("look whether another process receives", err, roomEvery)
			rc.runs.failed(err)
		case held:
			rc.runs.pause("")
			return true
		default:
			rc.runs.standBy(true)
		}
		if !outage.Pause(ctx, roomEvery) {
			return false
		}
	}
	return false
}

func (r *Runner) takeTurn(ctx context.Context, rc *receiving) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	_, held, err := r.store.LeaseSubscription(ctx, r.db, rc.turn(), r.owner, turnLease)
	return held, err
}

// keepTurn renews the lease until ctx ends, and calls lost if another process has it.
func (r *Runner) keepTurn(ctx context.Context, rc *receiving, lost func(error)) {
	for outage.Pause(ctx, turnRenewal) {
		held, err := r.takeTurn(ctx, rc)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil: // it may still be held: see holdsTurn
			r.outage.Failed("go on receiving alone", err, turnRenewal)
		case !held:
			lost(&pausedError{errTurn})
			return
		default:
			r.outage.Recovered()
		}
	}
}

// holdsTurn checks, at the end of a transaction, that it commits before another process can
// receive.
func (r *Runner) holdsTurn(ctx context.Context, tx bun.Tx, rc *receiving) error {
	held, err := r.store.HoldLeased(ctx, tx, rc.turn(), r.owner)
	if err == nil && !held {
		err = errTurn
	}
	return err
}

// endTurn releases the lease, so that others need not wait for its end.
func (r *Runner) endTurn(ctx context.Context, rc *receiving) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	if err := r.store.ReturnLeases(ctx, r.db, []string{rc.consumerName()}, r.owner); err != nil {
		r.outage.Failed("let others receive", err)
	}
}
