package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// pickSQL finds what is due. It is immutable.
var pickSQL = `
SELECT ? AS i, ` + dialect.PickColumns("length(CAST(%s AS BLOB))") + ` FROM {messages} m
WHERE m.consumer_type = ? AND m.payload_type = ? AND m.crashes = 0 AND m.available_after <= {now}
  AND (m.available_after, m.id) > (?, ?) AND m.id NOT IN (` + heldSQL + `)
  AND NOT EXISTS (SELECT 1 FROM {paused} WHERE consumer_type = ?)
ORDER BY m.available_after, m.id LIMIT ?`

// pickCrashedSQL does so for messages that have crashed. It is immutable.
var pickCrashedSQL = `
SELECT 0 AS i, ` + dialect.PickColumns("length(CAST(%s AS BLOB))") + ` FROM {messages} m
WHERE (m.consumer_type, m.payload_type) IN (SELECT j.value ->> 0, j.value ->> 1 FROM json_each(?) j) AND m.crashes > 0
  AND m.crashes BETWEEN ? AND ? AND m.available_after <= {now} AND m.id NOT IN (` + heldSQL + `)
  AND m.consumer_type NOT IN (` + dialect.PausedNames + `)
ORDER BY m.available_after, m.id LIMIT ?`

const recordSQL = `
INSERT INTO {claims} (owner, solo, claimed_at, leased_until, message_ids)
VALUES (?, ?, {now}, {now} + ?, ?) RETURNING id`

func (s *database) Claim(ctx context.Context, db *bun.DB, r dialect.ClaimRequest) (c dialect.Claim, err error) {
	err = s.InTx(ctx, db, func(tx bun.IDB) error {
		picks, err := s.pick(ctx, tx, r)
		if err != nil {
			return fmt.Errorf("pick: %w", err)
		}
		if c, picks = r.Trim(picks); len(picks) == 0 {
			return nil
		}
		ids := dialect.PickedIDs(picks)
		c.Sent = time.Now()
		if err := s.Query(ctx, tx, recordSQL, r.Owner, r.Solo, r.Lease.Microseconds(), dialect.AsJSON(ids)).Scan(ctx, &c.ID); err != nil {
			return fmt.Errorf("record: %w", err)
		}
		return s.Take(ctx, tx, &c, picks, ids)
	})
	return c, err
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
	}
	return all, nil
}
