package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// ErrNotInTx is returned when the context belongs to a transaction of the library, but a method that
// writes gets a *bun.DB or bun.Conn, or would begin another transaction. [Producer.RunInTx],
// [Producer.Within], eventlog.Log.RunInTx, transactional consumers and projections pass such a context
// to your function. Pass the transaction instead. To write outside it on purpose, use another context.
var ErrNotInTx = txn.ErrNotInTx

// Within is [Producer.RunInTx] for a transaction that fn begins and commits: of database/sql, pgx or
// another library. When fn returns nil, Within wakes this process's processors for what fn produced
// with its context. With the context of a transaction of the library it returns [ErrNotInTx].
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
// back otherwise. Unlike db.RunInTx, it wakes this process's processors after the commit, for what
// fn produced with its context. On PostgreSQL a processor on the same db starts such messages at
// once if it has room: the transaction has claimed them for it. With that context, passing a
// *bun.DB or nesting RunInTx returns [ErrNotInTx].
//
// The errors of fn and of the database are returned unchanged. RunInTx does not retry. A panic of
// fn rolls back and propagates.
func (p *Producer) RunInTx(ctx context.Context, db *bun.DB, fn func(ctx context.Context, tx bun.Tx) error) error {
	switch {
	case p == nil || p.registry == nil:
		return fmt.Errorf("outbox: run in tx: %w", errUnmade)
	case db == nil:
		return errors.New("outbox: run in tx: the database handle is nil")
	case fn == nil:
		return errors.New("outbox: run in tx: the function is nil")
	}
	if _, err := txn.HandleIn(ctx, db); err != nil {
		return fmt.Errorf("outbox: run in tx: %w", err)
	}
	ctx, wakeups := txn.WithWakeups(ctx)
	if err := p.runInTx(ctx, db, wakeups, fn); err != nil {
		return err
	}
	wakeups.Send(p.registry)
	return nil
}

// runInTx hands messages off to a processor of this process, if one runs on the same pool.
func (p *Producer) runInTx(
	ctx context.Context, db *bun.DB, wakeups *txn.Wakeups, fn func(ctx context.Context, tx bun.Tx) error,
) error {
	receiver := access.HandOffs(p.registry).Of(db)
	if receiver == nil {
		return txn.RunInTx(ctx, db, nil, fn)
	}
	s, _, err := p.stores.Of(db, errUnmade)
	if err != nil {
		return fmt.Errorf("outbox: run in tx: %w", err)
	}
	tx, err := s.Outbox.BeginProducing(ctx, db)
	if err != nil { // it can be about the preparation
		return txn.RunInTx(ctx, db, nil, fn)
	}
	defer wakeups.Abandon()
	wakeups.HandOffTo(receiver, tx.Tx, tx.Plans != nil)
	if err := runAndCommit(ctx, tx, wakeups, fn); err != nil {
		return err
	}
	// The connection is back in the pool: what could not be handed over is given back with another.
	wakeups.Committed()
	return nil
}

func runAndCommit(
	ctx context.Context, tx store.RunTx, wakeups *txn.Wakeups, fn func(ctx context.Context, tx bun.Tx) error,
) error {
	if tx.Plans != nil {
		defer tx.Plans.Close() //nolint:errcheck // the connection returns to the pool
	}
	done := false
	defer func() { // also when fn panics
		if !done {
			_ = tx.Rollback()
		}
	}()
	if err := fn(ctx, tx.Tx); err != nil {
		return err
	}
	lost := wakeups.BeforeCommit(ctx, tx.Tx)
	done = true
	err := tx.Commit()
	if lost != nil && tx.Plans != nil {
		_ = tx.Plans.Lost(ctx, lost) // the next transaction plans anew, or nothing
	}
	return err
}
