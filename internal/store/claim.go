package store

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Claim leases messages. Cancelling ctx while it runs may leave a claim behind that no process has
// a record of; see [ClaimStore.Extend].
func (s *ClaimStore) Claim(ctx context.Context, db *bun.DB, r dialect.ClaimRequest) (c dialect.Claim, err error) {
	stuck := r.Stuck
	if r.Stuck = nil; len(r.Wants) > 0 || len(stuck) == 0 {
		c, err = s.dialect.Claim(ctx, db, r)
	}
	for ; len(stuck) > 0 && err == nil && c.ID == 0; stuck = stuck[1:] {
		r.Lanes = &stuck[0]
		c, err = s.dialect.Claim(ctx, db, r)
	}
	if err == nil && len(stuck) > 0 { // sources that it has not looked at
		c.Cut = true
	}
	return c, err
}

// PollLanes looks for messages to claim for ordered consumers and, with crashed, for crashed ones,
// too.
func (s *ClaimStore) PollLanes(ctx context.Context, db *bun.DB, looks []dialect.LaneLook, crashed bool) ([]dialect.LaneState, error) {
	return retried(ctx, db, func(db bun.IDB) ([]dialect.LaneState, error) { return s.dialect.PollLanes(ctx, db, looks, crashed) })
}

// Poll looks for anything to do for the given wants, behind their places, in one statement if the
// database allows that.
func (s *ClaimStore) Poll(ctx context.Context, db *bun.DB, wants []dialect.Want) (dialect.Poll, error) {
	return s.look(ctx, db, wants, dialect.PollNext)
}

// PollNow is [ClaimStore.Poll] without [Poll.Next], which takes long if later messages have left
// many dead index entries.
func (s *ClaimStore) PollNow(ctx context.Context, db *bun.DB, wants []dialect.Want) (dialect.Poll, error) {
	return s.look(ctx, db, wants, dialect.PollNow)
}

// PollDue is [ClaimStore.Poll] only for due messages that have not crashed.
func (s *ClaimStore) PollDue(ctx context.Context, db *bun.DB, wants []dialect.Want) (dialect.Poll, error) {
	return s.look(ctx, db, wants, dialect.PollDue)
}

func (s *ClaimStore) look(ctx context.Context, db *bun.DB, wants []dialect.Want, extent dialect.PollExtent) (dialect.Poll, error) {
	return retried(ctx, db, func(db bun.IDB) (dialect.Poll, error) { return s.dialect.Poll(ctx, db, wants, extent) })
}

// Acquit has the owner's solo claims count like any other: a message that may have crashed is about
// to run beside them.
func (s *ClaimStore) Acquit(ctx context.Context, db bun.IDB, owner string) error {
	return retry(ctx, db, func(db bun.IDB) error {
		var ids []int64
		if err := s.names.Query(ctx, db, `SELECT id FROM {claims} WHERE owner = ? AND solo = TRUE`, owner).Scan(ctx, &ids); err != nil {
			return err
		}
		for _, id := range ids { // by the key: a scan would wait for the claims of others
			if err := s.names.Exec(ctx, db, `UPDATE {claims} SET solo = FALSE WHERE id = ? AND owner = ?`, id, owner); err != nil {
				return err
			}
		}
		return nil
	})
}

// KeyedConsumers returns the consumer types of messages with keys, by one lookup each.
func (s *ClaimStore) KeyedConsumers(ctx context.Context, db bun.IDB) ([]string, error) {
	return retried(ctx, db, func(db bun.IDB) ([]string, error) { return s.dialect.KeyedConsumers(ctx, db) })
}

// Unhandled returns the kinds of messages that no want matches: their consumer or payload type is
// not registered here.
func (s *ClaimStore) Unhandled(ctx context.Context, db bun.IDB, wants []dialect.Want) ([]dialect.Unhandled, error) {
	return retried(ctx, db, func(db bun.IDB) ([]dialect.Unhandled, error) { return s.dialect.Unhandled(ctx, db, wants) })
}

// HandOff claims messages that the transaction has inserted, all or none. After an error the
// transaction is as before, or lost.
func (s *ClaimStore) HandOff(ctx context.Context, tx bun.Tx, h dialect.HandOff) (bool, error) {
	return s.dialect.HandOff(ctx, tx, h)
}

// Extend renews every claim of the owner and returns their ids. A missing claim was taken away. An
// id unknown to the caller belongs to a claim whose commit was never confirmed.
func (s *ClaimStore) Extend(ctx context.Context, db bun.IDB, owner string, lease time.Duration) ([]int64, error) {
	return retried(ctx, db, func(db bun.IDB) ([]int64, error) { return s.dialect.Extend(ctx, db, owner, lease) })
}

// Disclaim ends claims of the owner without touching their messages, which are
// available again at once.
func (s *ClaimStore) Disclaim(ctx context.Context, db bun.IDB, owner string, claims []int64) error {
	return retry(ctx, db, func(db bun.IDB) error { return s.dialect.Disclaim(ctx, db, owner, claims) })
}
