package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// ErrNotInTx is returned when a method that writes gets a database handle although its context
// belongs to a transaction of the library. The library begins such transactions in
// [Producer.RunInTx], [Producer.Within] and eventlog.Log.RunInTx, for transactional consumers, and for projections.
// The write would commit, or wait for locks, outside that transaction. Pass the transaction. To
// write outside it on purpose, use a context from outside.
var ErrNotInTx = txn.ErrNotInTx

// Within is [Producer.RunInTx] for a transaction that fn itself begins and commits: of database/sql,
// pgx or another library. When fn returns nil, it wakes this process's processors for what fn
// produced with its context. Inside a transaction that the library began it returns [ErrNotInTx].
func (p *Producer) Within(ctx context.Context, fn func(ctx context.Context) error) error {
	switch {
	case p == nil || p.registry == nil:
		return fmt.Errorf("outbox: within: %w", errUnmade)
	case fn == nil:
		return errors.New("outbox: within: the function is nil")
	case txn.IsWithin(ctx):
		return fmt.Errorf("outbox: within: %w", ErrNotInTx)
	}
	ctx, wakeups := txn.WithWakeups(ctx)
	if err := fn(ctx); err != nil {
		return err
	}
	wakeups.Send(p.registry)
	return nil
}

// RunInTx runs fn in a transaction of default isolation. It commits if fn returns nil, and rolls
// back otherwise. It is db.RunInTx, and wakes this process's processors after the commit. Only
// messages produced with the context passed to fn wake them; others wait for the next poll. With
// that context only tx is accepted: see [ErrNotInTx], which a nested RunInTx returns too.
//
// The errors of fn and of the database are returned unchanged. RunInTx does not retry. A panic of
// fn rolls back and propagates.
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
