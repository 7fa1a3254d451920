package outbox

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// ErrNotInTx is returned by Produce when it is given a database handle although
// its context belongs to a transaction: the message would be committed, or wait
// for locks, apart from that transaction. Pass the transaction; to produce apart
// from it on purpose, use a context from outside.
var ErrNotInTx = errors.New("the context belongs to a transaction, but the handle does not: pass the transaction")

// RunInTx runs fn in a transaction of default isolation, commits when fn
// returns nil and rolls back otherwise. It is db.RunInTx, and in addition wakes
// this process's processors as soon as what fn produced is committed. That works
// for what is produced with the context that fn is given; what is not is found
// by the next poll.
func (p *Producer) RunInTx(ctx context.Context, db *bun.DB, fn func(ctx context.Context, tx bun.Tx) error) error {
	switch {
	case db == nil:
		return errors.New("outbox: RunInTx: the database handle is nil")
	case fn == nil:
		return errors.New("outbox: RunInTx: the function is nil")
	}
	ctx, pending := withPendingWake(ctx)
	if err := db.RunInTx(ctx, nil, fn); err != nil {
		return err
	}
	pending.send(p.registry)
	return nil
}

type pendingKey struct{}

// pendingWake collects what is produced in a transaction until it commits.
type pendingWake struct {
	mu           sync.Mutex
	payloadTypes []string
}

func withPendingWake(ctx context.Context) (context.Context, *pendingWake) {
	pending := new(pendingWake)
	return context.WithValue(ctx, pendingKey{}, pending), pending
}

func (w *pendingWake) add(payloadTypes []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, payloadType := range payloadTypes {
		if !slices.Contains(w.payloadTypes, payloadType) {
			w.payloadTypes = append(w.payloadTypes, payloadType)
		}
	}
}

func (w *pendingWake) send(registry *bus.Registry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.payloadTypes) > 0 {
		registry.Wakeups().Send(bus.Wake{PayloadTypes: w.payloadTypes})
	}
}
