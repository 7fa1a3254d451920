package store

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"
)

// sqlitePick finds what is due. It is immutable.
var sqlitePick = `
SELECT ? AS i, ` + pickColumns("length(CAST(%s AS BLOB))") + ` FROM {messages} m
WHERE m.consumer_type = ? AND m.payload_type = ? AND m.crashes = 0 AND m.available_after <= {now}
  AND (m.available_after, m.id) > (?, ?) AND m.id NOT IN (` + sqliteHeld + `)
  AND NOT EXISTS (SELECT 1 FROM {paused} WHERE consumer_type = ?)
ORDER BY m.available_after, m.id LIMIT ?`

// sqlitePickCrashed does so for messages that have crashed. It is immutable.
var sqlitePickCrashed = `
SELECT 0 AS i, ` + pickColumns("length(CAST(%s AS BLOB))") + ` FROM {messages} m
WHERE (m.consumer_type, m.payload_type) IN (SELECT j.value ->> 0, j.value ->> 1 FROM json_each(?) j) AND m.crashes > 0
  AND m.crashes BETWEEN ? AND ? AND m.available_after <= {now} AND m.id NOT IN (` + sqliteHeld + `)
  AND m.consumer_type NOT IN (` + pausedNames + `)
ORDER BY m.available_after, m.id LIMIT ?`

const sqliteRecord = `
INSERT INTO {claims} (owner, solo, claimed_at, leased_until, message_ids)
VALUES (?, ?, {now}, {now} + ?, ?) RETURNING id`

func (s *sqlite) claim(ctx context.Context, db *bun.DB, r ClaimRequest) (c Claim, err error) {
	err = s.inTx(ctx, db, func(tx bun.IDB) error {
		picks, err := s.pick(ctx, tx, r)
		if err != nil {
			return fmt.Errorf("pick: %w", err)
		}
		if c, picks = r.keep(picks); len(picks) == 0 {
			return nil
		}
		ids := pickedIDs(picks)
		c.Sent = time.Now()
		if err := s.raw(ctx, tx, sqliteRecord, r.Owner, r.Solo, r.Lease.Microseconds(), asJSON(ids)).Scan(ctx, &c.ID); err != nil {
			return fmt.Errorf("record: %w", err)
		}
		return s.take(ctx, tx, &c, picks, ids)
	})
	if err != nil {
		return Claim{}, err
	}
	return c, nil
}

func (s *sqlite) pick(ctx context.Context, tx bun.IDB, r ClaimRequest) ([]pick, error) {
	if r.Select != Clean {
		var picks []pick
		low, high := r.Select.crashes()
		err := s.raw(ctx, tx, sqlitePickCrashed, pairs(r.Wants), low, high, r.Limit).Scan(ctx, &picks)
		return picks, err
	}
	var all []pick
	for i, w := range r.Wants {
		var picks []pick
		err := s.raw(ctx, tx, sqlitePick, i, w.Consumer, w.Payload, w.After.micros(), w.After.ID, w.Consumer, w.Limit).Scan(ctx, &picks)
		if err != nil {
			return nil, err
		}
		all = append(all, picks...)
	}
	return all, nil
}
