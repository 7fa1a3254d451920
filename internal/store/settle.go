package store

import (
	"context"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Finish ends claims whose messages are all done, and removes the messages. Claims that it does not
// return were no longer held; nothing of them was written. If another transaction keeps a message
// locked, nothing is written at all, and the error is [dberr.IsLockTimeout].
func (s *ClaimStore) Finish(ctx context.Context, db *bun.DB, owner string, claims []int64) ([]dialect.Finished, error) {
	return retried(ctx, db, func(db bun.IDB) ([]dialect.Finished, error) { return s.dialect.Finish(ctx, db, owner, claims) })
}

// Settle writes results of any number of claims, each message at most once, and what they keep. A
// result counts only while its message is in a claim of the owner, so settling twice, late or out of
// order changes nothing. Live claims get a new lease. If another transaction keeps a message locked, nothing is
// written at all, and the error is [dberr.IsLockTimeout]: [ClaimStore.SettleFree] writes the others.
func (s *ClaimStore) Settle(
	ctx context.Context, db *bun.DB, owner string, lease time.Duration, results []dialect.Result,
) (settled dialect.Settled, err error) {
	return s.settleWith(ctx, db, owner, lease, results, false)
}

// SettleFree is Settle without waiting for locked messages: their results are
// [dialect.Settled.Busy], and they stay in their claims. Where one writer locks the whole database
// it is the same as Settle.
func (s *ClaimStore) SettleFree(
	ctx context.Context, db *bun.DB, owner string, lease time.Duration, results []dialect.Result,
) (dialect.Settled, error) {
	return s.settleWith(ctx, db, owner, lease, results, true)
}

func (s *ClaimStore) settleWith(
	ctx context.Context, db *bun.DB, owner string, lease time.Duration, results []dialect.Result, freeOnly bool,
) (dialect.Settled, error) {
	return retried(ctx, db, func(db bun.IDB) (settled dialect.Settled, err error) {
		if !slices.ContainsFunc(results, func(r dialect.Result) bool { return r.Recent != nil || r.Stop != "" }) {
			return s.dialect.Settle(ctx, db, owner, lease, results, freeOnly)
		}
		err = txn.InTx(ctx, db, func(tx bun.Tx) (err error) {
			if settled, err = s.dialect.Settle(ctx, tx, owner, lease, results, freeOnly); err != nil {
				return err
			}
			applied := appliedOf(results, settled)
			if recent := consumed(applied); len(recent) > 0 {
				err = s.outbox.Remember(ctx, tx, recent)
			}
			for _, r := range applied {
				if err == nil && r.Stop != "" {
					err = s.operations.answerStop(ctx, tx, r.Message, owner, r.Stop)
				}
			}
			return err
		})
		return settled, err
	})
}

// appliedOf returns the results that count: their claims were live and their messages not locked.
func appliedOf(results []dialect.Result, settled dialect.Settled) (applied []dialect.Result) {
	for _, r := range results {
		busy := slices.ContainsFunc(settled.Busy, func(b dialect.Result) bool { return b.Message == r.Message })
		if !busy && slices.Contains(settled.Live, r.Claim) {
			applied = append(applied, r)
		}
	}
	return applied
}

// BeginRun begins a transaction in which consumers run. It ends with ctx at the latest. Plans are to
// be closed once it is over.
func (s *ClaimStore) BeginRun(ctx context.Context, db *bun.DB) (dialect.RunTx, error) {
	return s.dialect.BeginRun(ctx, db)
}

// Fence locks claimed messages for the rest of the transaction, and returns those that are still
// ours to run. It waits a while for a message that another transaction has locked, and then returns
// none: roll back. Among several it leaves locked ones out.
func (s *ClaimStore) Fence(ctx context.Context, tx bun.IDB, f dialect.Fence) (held []int64, err error) {
	held, err = s.dialect.Fence(ctx, tx, f)
	if dberr.IsLockTimeout(err) {
		return nil, nil
	}
	return held, err
}

// Interrupt ends the statement, and maybe the whole session, of an abandoned transaction, so that
// it can be rolled back. ended is when its context was cancelled or its connection lost: it began
// no statement after that.
func (s *ClaimStore) Interrupt(ctx context.Context, db *bun.DB, session dialect.Session, ended time.Time) error {
	if session == (dialect.Session{}) {
		return nil
	}
	return s.dialect.Interrupt(ctx, db, session, ended)
}

// Remove deletes messages that were fenced in a session, with the search_path and role that its
// transaction began with: a consumer's changes to them no longer count. It returns how many
// messages there were.
func (s *ClaimStore) Remove(ctx context.Context, tx bun.IDB, session dialect.Session, ids ...int64) (int, error) {
	return s.dialect.Remove(ctx, tx, session, ids)
}

// Replaced reports whether another message has replaced one, under any of the consumer's names. The
// transaction has locked or removed that one, so it has replaced it itself.
func (s *ClaimStore) Replaced(ctx context.Context, tx bun.IDB, id int64, insertID string, consumer []string) (bool, error) {
	if insertID == "" {
		return false, nil
	}
	var there int
	err := s.names.Query(ctx, tx, `SELECT count(*) FROM {messages} m WHERE {keyed} AND m.consumer_type IN (?) AND m.id <> ?`, insertID, bun.List(consumer), id).
		Scan(ctx, &there)
	return there > 0, err
}

// Savepoint marks the state of a fenced transaction for [ClaimStore.Undo], instead of the one before.
// It returns an error if the transaction has ended and later statements would commit by themselves.
func (s *ClaimStore) Savepoint(ctx context.Context, tx bun.IDB) error {
	return s.dialect.Savepoint(ctx, tx)
}

// Undo rolls back to the savepoint, which remains.
func (s *ClaimStore) Undo(ctx context.Context, tx bun.IDB) error {
	_, err := tx.NewRaw(`ROLLBACK TO SAVEPOINT ` + dialect.Savepoint).Exec(ctx)
	return err
}

// Exists waits until no transaction is undecided about a message, and reports whether it still
// exists.
func (s *ClaimStore) Exists(ctx context.Context, db *bun.DB, id int64) (bool, error) {
	_, exists, err := first[int64](ctx, s.tables, db, s.names.Exists, id)
	return exists, err
}
