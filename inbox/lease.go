package inbox

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
	// leaseDuration is how long others wait if the process that receives is killed.
	leaseDuration = 10 * time.Second
	leaseRenewal  = 2 * time.Second
	leaseRetry    = time.Second
)

// errLeaseLost is returned when another process receives.
var errLeaseLost = errors.New("inbox: another process now holds the receiver's lease")

// lease makes one process at a time receive, for a receiver that appends to the log. For any other
// receiver it does nothing. Its row is stored with those of projections.
type lease struct {
	*services
	receiver *receiver
	state    *state
}

func (l *lease) row() store.Subscription {
	return store.Subscription{Name: l.receiver.consumerName(), Version: 1, Shards: 1, Filter: "{}"}
}

// create creates the row unless it exists.
func (l *lease) create(ctx context.Context) error {
	if !l.receiver.exclusive() {
		return nil
	}
	if err := txn.InTx(ctx, l.db, func(tx bun.Tx) error { return l.store.Readers.Subscribe(ctx, tx, l.row()) }); err != nil {
		return fmt.Errorf("receiver %q: %w", l.receiver.name, err)
	}
	return nil
}

// await waits until no other process receives. It returns false when ctx has ended.
func (l *lease) await(ctx context.Context) bool {
	if !l.receiver.exclusive() {
		return ctx.Err() == nil
	}
	defer l.state.standBy(false)
	for ctx.Err() == nil {
		held, err := l.take(ctx)
		switch {
		case ctx.Err() != nil:
			if held {
				l.release(ctx)
			}
			return false
		case err != nil:
			l.outage.Failed("take the receiver's lease", err, leaseRetry)
			l.state.failed(err)
		case held:
			l.state.pause("")
			return true
		default:
			l.state.standBy(true)
		}
		if !outage.Pause(ctx, leaseRetry) {
			return false
		}
	}
	return false
}

// take takes or renews the lease and reports whether this process has it.
func (l *lease) take(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	_, held, err := l.store.Readers.Lease(ctx, l.db, l.row(), l.owner, leaseDuration)
	return held, err
}

// keep renews the lease until ctx ends, and calls lost if another process has it.
func (l *lease) keep(ctx context.Context, lost func(error)) {
	for outage.Pause(ctx, leaseRenewal) {
		held, err := l.take(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil: // it may still be held: see holds
			l.outage.Failed("renew the receiver's lease", err, leaseRenewal)
		case !held:
			lost(&pausedError{errLeaseLost})
			return
		default:
			l.outage.Recovered()
		}
	}
}

// holds checks, at the end of a transaction, that it commits before another process can receive.
func (l *lease) holds(ctx context.Context, tx bun.Tx) error {
	if !l.receiver.exclusive() {
		return nil
	}
	held, err := l.store.Readers.HoldLeased(ctx, tx, l.row(), l.owner)
	if err == nil && !held {
		err = errLeaseLost
	}
	return err
}

// release returns the lease, so that others need not wait for its end.
func (l *lease) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	if err := l.store.Readers.ReturnLeases(ctx, l.db, []string{l.receiver.consumerName()}, l.owner); err != nil {
		l.outage.Failed("release the receiver's lease", err)
	}
}
