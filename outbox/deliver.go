package outbox

import (
	"context"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// recorder writes the events of a batch.
type recorder = func(db bun.IDB, registry *bus.Registry, batch []*bus.Message) error

// deliver sends a batch through the chain and returns the receipts by message id.
func (p *Producer) deliver(
	ctx context.Context, db bun.IDB, batch []*bus.Message, record recorder,
) (receipts map[uuid.UUID]Receipt, err error) {
	db, err = txn.HandleIn(ctx, db)
	if err != nil || len(batch) == 0 {
		return nil, err
	}
	receipts = make(map[uuid.UUID]Receipt, len(batch))
	send := func(ctx context.Context, db bun.IDB) error {
		return access.RunProduce(ctx, p.chain, batch, func(ctx context.Context, batch []*bus.Message) error {
			return p.write(ctx, db, batch, record, receipts)
		})
	}
	if len(p.config.Middleware) == 0 {
		return receipts, send(ctx, db)
	}
	// A layer may send a batch in parts, and fail after the inner layers have written.
	var wakeups *txn.Wakeups
	var asGiven []*bus.Message
	if _, isTx := db.(bun.Tx); !isTx {
		ctx, wakeups = txn.WithWakeups(ctx)
		asGiven = store.Each(batch, access.Clone)
	}
	err = txn.InTx(txn.WithIdle(ctx, 0), db, func(tx bun.Tx) error {
		clear(receipts)
		for i := range asGiven { // undo changes by layers if the transaction is repeated
			*batch[i] = *access.Clone(asGiven[i])
		}
		return send(ctx, tx)
	})
	if err == nil && wakeups != nil {
		wakeups.Send(p.registry)
	}
	return receipts, err
}
