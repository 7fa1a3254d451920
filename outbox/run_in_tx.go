package outbox

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// RunInTx runs fn in a transaction of default isolation, commits when fn
// returns nil and rolls back otherwise. It is db.RunInTx, and in addition wakes
// this process's processors as soon as what fn produced is committed. Produce
// with the context that fn is given.
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
