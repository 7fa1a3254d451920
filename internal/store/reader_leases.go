package store

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Rewound is the Mark of a shard whose position applies even if the broker has later records.
const Rewound int64 = -1

const leaseSubscription = `UPDATE {subscriptions} SET owner = ?, leased_until = ?
WHERE name = ? AND version = ? AND shard = ? AND status = ? AND next_at <= {now} AND (owner = ? OR leased_until IS NULL OR leased_until <= {now})
RETURNING name, version, shard, shards, filter, position, status, attempts, mark, {last} AS head`

// Lease leases a shard to an owner, or extends its lease, without a transaction that
// stays open. It returns false if another owner has it, or if it must not run now. Reads after that
// see all events up to its Head.
func (s *ReaderStore) Lease(
	ctx context.Context, db bun.IDB, sub Subscription, owner string, lease time.Duration,
) (leased Subscription, ok bool, err error) {
	err = retry(ctx, db, func(db bun.IDB) error {
		var rows []Subscription
		err := s.names.Query(ctx, db, leaseSubscription, owner, bun.Safe(s.names.After(ctx, lease)), sub.Name, sub.Version, sub.Shard,
			Running, owner).
			Scan(ctx, &rows)
		if ok = len(rows) > 0; ok {
			leased = rows[0]
		}
		return err
	})
	if err != nil {
		return Subscription{}, false, fmt.Errorf("lease subscription: %w", err)
	}
	return leased, ok, nil
}

const moveLeased = `UPDATE {subscriptions} SET position = ?, mark = ?, attempts = 0, last_error = NULL, moved_at = {now}
WHERE name = ? AND version = ? AND shard = ? AND position = ? AND filter = ? AND status = ? AND owner = ?`

// MoveLeased moves a shard from where its owner has read it to another position, and records the
// broker's revision of its last record. It returns false if another owner has the shard, if it is
// at another position, or if its reader selects something else: skipped events may have to be read.
func (s *ReaderStore) MoveLeased(ctx context.Context, db bun.IDB, sub Subscription, owner string, to, mark int64) (moved bool, err error) {
	return retried(ctx, db, func(db bun.IDB) (bool, error) {
		return dialect.AffectedOne(
			s.names.Query(ctx, db, moveLeased, to, mark, sub.Name, sub.Version, sub.Shard, sub.Position, sub.Filter, Running, owner).Exec(ctx),
		)
	})
}

// FailLeased records that a shard could not go on from where its owner has read it. It returns
// false and writes nothing if another owner has the shard, or if it is at another position.
func (s *ReaderStore) FailLeased(ctx context.Context, db bun.IDB, sub Subscription, owner string, f Failure) (failed bool, err error) {
	text := `UPDATE {subscriptions} SET status = ?, attempts = ?, next_at = ` + s.names.After(ctx, f.Delay) + `, last_error = ?
WHERE name = ? AND version = ? AND shard = ? AND position = ? AND status = ? AND owner = ?`
	return retried(ctx, db, func(db bun.IDB) (bool, error) {
		return dialect.AffectedOne(
			s.names.Query(ctx, db, text, f.Status, f.Attempts, errorlog.Clean(f.Error, errorlog.MaxBytes), sub.Name, sub.Version,
				sub.Shard, sub.Position, Running, owner).
				Exec(ctx),
		)
	})
}

const leaveLeased = `UPDATE {subscriptions} SET owner = '', leased_until = NULL, last_error = ?
WHERE name = ? AND version = ? AND shard = ? AND owner = ?`

// LeaveLeased releases a shard at once and records why its owner does not go on.
func (s *ReaderStore) LeaveLeased(ctx context.Context, db bun.IDB, sub Subscription, owner, reason string) error {
	return retry(ctx, db, func(db bun.IDB) error {
		_, err := s.names.Query(ctx, db, leaveLeased, errorlog.Clean(reason, errorlog.MaxBytes), sub.Name, sub.Version, sub.Shard, owner).
			Exec(ctx)
		return err
	})
}

// SetFilter changes what the shards of a reader select, if they still select before. It returns how
// many it changed.
func (s *ReaderStore) SetFilter(ctx context.Context, db bun.IDB, name string, version int, before, after string) (n int, err error) {
	return retried(ctx, db, func(db bun.IDB) (int, error) {
		return dialect.Affected(
			s.names.Query(ctx, db, `UPDATE {subscriptions} SET filter = ? WHERE name = ? AND version = ? AND filter = ?`, after, name, version, before).
				Exec(ctx),
		)
	})
}

const holdLeased = `UPDATE {subscriptions} SET moved_at = {now} WHERE name = ? AND version = ? AND shard = ? AND owner = ?`

// HoldLeased keeps other owners from leasing a shard until the end of the transaction. It returns
// false if another owner has it by now.
func (s *ReaderStore) HoldLeased(ctx context.Context, tx bun.Tx, sub Subscription, owner string) (held bool, err error) {
	held, err = dialect.AffectedOne(s.names.Query(ctx, tx, holdLeased, sub.Name, sub.Version, sub.Shard, owner).Exec(ctx))
	if err != nil {
		return false, fmt.Errorf("hold a lease: %w", err)
	}
	return held, nil
}

// ReturnLeases releases the shards of these readers that an owner has.
func (s *ReaderStore) ReturnLeases(ctx context.Context, db bun.IDB, names []string, owner string) error {
	return retry(ctx, db, func(db bun.IDB) error {
		_, err := s.names.Query(ctx, db, `UPDATE {subscriptions} SET owner = '', leased_until = NULL WHERE name IN (?) AND owner = ?`, bun.List(names), owner).
			Exec(ctx)
		return err
	})
}
