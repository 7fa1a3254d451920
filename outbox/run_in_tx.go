package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// ErrNotInTx: whatever of the library writes was given a database handle although its
// context belongs to a transaction that the library has begun, by [Producer.RunInTx] or
// eventlog.Log.RunInTx, for a transactional consumer or a projection. What is written
// would commit, or wait for locks, apart from that transaction. Pass the
// transaction; to write apart from it on purpose, use a context from outside.
var ErrNotInTx = txn.ErrNotInTx

// RunInTx runs fn in a transaction of default isolation, commits when fn
// returns nil and rolls back otherwise. It is db.RunInTx, and in addition wakes
// this process's processors as soon as what fn produced is committed. That works
// for what is produced with the context that fn is given; what is not is found
// by the next poll. Only tx is accepted with that context: see [ErrNotInTx], which
// is also what a second RunInTx with it returns.
//
// The error of fn is returned as it is, and so is the database's. It is not
// retried. A panic of fn rolls back and goes on.
func (p *Producer) RunInTx(ctx context.Context, db *bun.DB, fn func(ctx context.Context, tx bun.Tx) error) error {
	switch {
	case db == nil:
		return errors.New("outbox: run in tx: the database handle is nil")
	case fn == nil:
		return errors.New("outbox: run in tx: the function is nil")
	}
	if _, err := txn.HandleIn(ctx, db); err != nil {
		return fmt.Errorf("outbox: run in tx: %w", err)
	}
	ctx, wakeups := txn.WithWakeups(ctx)
	if err := txn.RunInTx(ctx, db, nil, fn); err != nil {
		return err
	}
	wakeups.Send(p.registry)
	return nil
}
