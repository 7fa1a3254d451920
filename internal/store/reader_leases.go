package store

import (
	"context"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
)

// Rewound is the Mark of a shard whose position applies even if the broker has later records.
const Rewound int64 = -1

// leaseSubscription leases a shard, or shortens another owner's lease that is ahead.
const leaseSubscription = `UPDATE {subscriptions} SET owner = CASE WHEN {theirs} THEN owner ELSE ?0 END,
  leased_until = CASE WHEN {theirs} THEN {full lease} ELSE ?1 END, leased_for = CASE WHEN {theirs} THEN leased_for ELSE ?2 END
WHERE name = ?3 AND version = ?4 AND shard = ?5 AND status = ?6 AND next_at <= {now}
  AND (owner = ?0 OR leased_until IS NULL OR leased_until <= {now} OR {ahead})
RETURNING owner, name, version, shard, shards, filter, position, status, attempts, mark, {last} AS head`

// Lease leases a shard to an owner, or extends its lease, without a transaction that
// stays open. It returns false if another owner has it, or if it must not run now. Reads after that
// see all events up to its Head.
func (s *ReaderStore) Lease(
	ctx context.Context, db bun.IDB, sub Subscription, owner string, lease time.Duration,
) (leased Subscription, ok bool, err error) {
	type owned struct {
		Subscription
		Owner string `bun:"owner"`
	}
	statement := strings.ReplaceAll(leaseSubscription, "{theirs}", "owner <> ?0 AND {ahead}")
	found, ok, err := first[owned](ctx, s.tables, db, statement, owner, bun.Safe(s.names.After(ctx, lease)), lease.Microseconds(),
		sub.Name, sub.Version, sub.Shard, Running)
	return found.Subscription, ok && found.Owner == owner, dberr.Wrap(err, "lease subscription")
}

const moveLeased = `UPDATE {subscriptions} SET position = ?, mark = ?, attempts = 0, last_error = NULL, moved_at = {now}
WHERE name = ? AND version = ? AND shard = ? AND position = ? AND filter = ? AND status = ? AND owner = ?`

// MoveLeased moves a shard from where its owner has read it to another position, and records the
// broker's revision of its last record. It returns false if another owner has the shard, if it is
// at another position, or if its reader selects something else: skipped events may have to be read.
func (s *ReaderStore) MoveLeased(ctx context.Context, db bun.IDB, sub Subscription, owner string, to, mark int64) (moved bool, err error) {
	return s.changedOne(ctx, db, moveLeased, to, mark, sub.Name, sub.Version, sub.Shard, sub.Position, sub.Filter, Running, owner)
}

// FailLeased records that a shard could not go on from where its owner has read it. It returns
// false and writes nothing if another owner has the shard, or if it is at another position.
func (s *ReaderStore) FailLeased(ctx context.Context, db bun.IDB, sub Subscription, owner string, f Failure) (failed bool, err error) {
	text := `UPDATE {subscriptions} SET status = ?, attempts = ?, next_at = ` + s.names.After(ctx, f.Delay) + `, last_error = ?
WHERE name = ? AND version = ? AND shard = ? AND position = ? AND status = ? AND owner = ?`
	return s.changedOne(ctx, db, text, f.Status, f.Attempts, errorlog.Clean(f.Error, errorlog.MaxBytes), sub.Name, sub.Version,
		sub.Shard, sub.Position, Running, owner)
}

const leaveLeased = `UPDATE {subscriptions} SET owner = '', leased_until = NULL, last_error = ?
WHERE name = ? AND version = ? AND shard = ? AND owner = ?`

// LeaveLeased releases a shard at once and records why its owner does not go on.
func (s *ReaderStore) LeaveLeased(ctx context.Context, db bun.IDB, sub Subscription, owner, reason string) error {
	return s.exec(ctx, db, leaveLeased, errorlog.Clean(reason, errorlog.MaxBytes), sub.Name, sub.Version, sub.Shard, owner)
}

// SetFilter changes what the shards of a reader select, if they still select before. It returns how
// many it changed.
func (s *ReaderStore) SetFilter(ctx context.Context, db bun.IDB, name string, version int, before, after string) (n int, err error) {
	return s.changed(ctx, db, `UPDATE {subscriptions} SET filter = ? WHERE name = ? AND version = ? AND filter = ?`, after, name, version, before)
}

const holdLeased = `UPDATE {subscriptions} SET moved_at = {now} WHERE name = ? AND version = ? AND shard = ? AND owner = ?`

// HoldLeased keeps other owners from leasing a shard until the end of the transaction. It returns
// false if another owner has it by now.
func (s *ReaderStore) HoldLeased(ctx context.Context, tx bun.Tx, sub Subscription, owner string) (held bool, err error) {
	held, err = s.names.ChangedOne(ctx, tx, holdLeased, sub.Name, sub.Version, sub.Shard, owner)
	return held, dberr.Wrap(err, "hold a lease")
}

// ReturnLeases releases the shards of these readers that an owner has.
func (s *ReaderStore) ReturnLeases(ctx context.Context, db bun.IDB, names []string, owner string) error {
	return s.exec(ctx, db, `UPDATE {subscriptions} SET owner = '', leased_until = NULL WHERE name IN (?) AND owner = ?`, bun.List(names), owner)
}
