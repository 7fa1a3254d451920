package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// pickSQL finds due messages. It is immutable.
var pickSQL = `
SELECT ? AS i, ` + dialect.PickColumns("length(CAST(%s AS BLOB))") + ` FROM {messages} m
WHERE m.consumer_type = ? AND m.payload_type = ? AND m.keyed = FALSE AND m.crashes = 0 AND m.available_after <= {now}
  AND (m.available_after, m.id) > (?, ?) AND m.id NOT IN (` + heldSQL + `)
  AND NOT EXISTS (SELECT 1 FROM {paused} WHERE consumer_type = ?)
ORDER BY m.available_after, m.id LIMIT ?`

// pickPriorSQL finds due messages of a higher priority. It is immutable.
var pickPriorSQL = `
SELECT ? AS i, ` + dialect.PickColumns("length(CAST(%s AS BLOB))") + `, m.priority FROM (SELECT value AS priority FROM json_each('[` + dialect.Levels + `]')) l JOIN {messages} m ON m.id IN (
  SELECT h.id FROM {messages} h WHERE h.consumer_type = ? AND h.payload_type = ? AND h.priority = l.priority AND h.priority > 0 AND h.keyed = FALSE AND h.crashes = 0
    AND h.available_after <= {now} AND h.id NOT IN (` + heldSQL + `) ORDER BY h.available_after, h.id LIMIT ?)
WHERE NOT EXISTS (SELECT 1 FROM {paused} WHERE consumer_type = ?)`

// pickCrashedSQL finds due messages that have crashed. It is immutable.
var pickCrashedSQL = `
SELECT 0 AS i, ` + dialect.PickColumns("length(CAST(%s AS BLOB))") + ` FROM {messages} m
WHERE (m.consumer_type, m.payload_type) IN (SELECT j.value ->> 0, j.value ->> 1 FROM json_each(?) j) AND m.keyed = FALSE AND m.crashes > 0
  AND m.crashes BETWEEN ? AND ? AND m.available_after <= {now} AND m.id NOT IN (` + heldSQL + `)
  AND m.consumer_type NOT IN (` + dialect.PausedNames + `)
ORDER BY m.available_after, m.id LIMIT ?`

// unchangedSQL reads what may have changed in picks meanwhile, of those that may still be claimed.
const unchangedSQL = `
SELECT m.id, m.attempts, m.crashes, m.available_after FROM json_each(?) j JOIN {messages} m ON m.id = j.value
WHERE m.id NOT IN (` + heldSQL + `) AND m.consumer_type NOT IN (` + dialect.PausedNames + `)`

const recordSQL = `
INSERT INTO {claims} (owner, solo, claimed_at, leased_until, leased_for, message_ids)
VALUES (?, ?, {now}, {now} + ?, ?, ?) RETURNING id`

// Claim picks without the write lock, since reading the messages takes most of its time. It takes
// the lock to record the picks that have not changed.
func (s *database) Claim(ctx context.Context, db *bun.DB, r dialect.ClaimRequest) (c dialect.Claim, err error) {
	switch {
	case r.Lanes != nil:
		return s.ClaimKeyed(ctx, db, r)
	case r.Rate != nil:
		return s.claimRated(ctx, db, r)
	}
	picks, err := s.pick(ctx, db, r)
	if err != nil {
		return c, fmt.Errorf("pick: %w", err)
	}
	if c, picks = r.Trim(picks); len(picks) == 0 {
		return c, nil
	}
	err = s.InTx(ctx, db, func(tx bun.IDB) error {
		ids, err := s.unchanged(ctx, tx, picks)
		if err != nil {
			return err
		}
		return s.record(ctx, tx, r, &c, picks, ids)
	})
	return c, err
}

// claimRated reads what the rate allows before it picks, and so holds the write lock for both.
func (s *database) claimRated(ctx context.Context, db *bun.DB, r dialect.ClaimRequest) (c dialect.Claim, err error) {
	err = s.InTx(ctx, db, func(tx bun.IDB) error {
		rated, err := s.Rated(ctx, tx, r)
		if err != nil {
			return err
		}
		var picks []dialect.Pick
		if !rated.Spent {
			if picks, err = s.pick(ctx, tx, rated.ClaimRequest); err != nil {
				return fmt.Errorf("pick: %w", err)
			}
		}
		c, picks = rated.Trim(picks)
		if err := s.record(ctx, tx, r, &c, picks, dialect.PickedIDs(picks)); err != nil {
			return err
		}
		return rated.Spend(ctx, tx, c)
	})
	return c, err
}

// record claims those picks that have one of the ids.
func (s *database) record(
	ctx context.Context, tx bun.IDB, r dialect.ClaimRequest, c *dialect.Claim, picks []dialect.Pick, ids []int64,
) error {
	if len(ids) == 0 {
		return nil
	}
	c.Sent = time.Now()
	lease := r.Lease.Microseconds()
	if err := s.Query(ctx, tx, recordSQL, r.Owner, r.Solo, lease, lease, dialect.AsJSON(ids)).Scan(ctx, &c.ID); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return s.Take(ctx, tx, c, picks, ids)
}

// unchanged returns the ids of those picks that may still be claimed. Nothing else of a
// message ever changes: a statement that changes another column of pending messages has to
// be added to unchangedSQL.
func (s *database) unchanged(ctx context.Context, tx bun.IDB, picks []dialect.Pick) (ids []int64, err error) {
	type state struct {
		ID                int64
		Attempts, Crashes int
		AvailableAfter    dialect.Moment
	}
	var found []state
	if err := s.Query(ctx, tx, unchangedSQL, dialect.AsJSON(dialect.PickedIDs(picks))).Scan(ctx, &found); err != nil {
		return nil, fmt.Errorf("look again: %w", err)
	}
	now := make(map[int64]state, len(found))
	for _, m := range found {
		now[m.ID] = m
	}
	for _, p := range picks {
		if m, ok := now[p.ID]; ok && m.Attempts == p.Attempts && m.Crashes == p.Crashes && m.AvailableAfter.Equal(p.AvailableAfter.Time) {
			ids = append(ids, p.ID)
		}
	}
	return ids, nil
}

func (s *database) pick(ctx context.Context, tx bun.IDB, r dialect.ClaimRequest) ([]dialect.Pick, error) {
	if r.Select != dialect.Clean {
		var picks []dialect.Pick
		low, high := r.Select.Crashes()
		err := s.Query(ctx, tx, pickCrashedSQL, dialect.Pairs(r.Wants), low, high, r.Limit).Scan(ctx, &picks)
		return picks, err
	}
	var all []dialect.Pick
	for i, w := range r.Wants {
		var picks []dialect.Pick
		err := s.Query(ctx, tx, pickSQL, i, w.Consumer, w.Payload, w.After.Micros(), w.After.ID, w.Consumer, w.Limit).Scan(ctx, &picks)
		if err != nil {
			return nil, err
		}
		all = append(all, picks...)
		if r.Ageing == 0 {
			continue
		}
		var prior []dialect.Pick
		if err := s.Query(ctx, tx, pickPriorSQL, i, w.Consumer, w.Payload, w.Limit, w.Consumer).Scan(ctx, &prior); err != nil {
			return nil, err
		}
		all = append(all, prior...)
	}
	return all, nil
}
