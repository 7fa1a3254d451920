package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// pickSQL locks due messages. It is immutable.
var pickSQL = `
SELECT w.i, m.*
FROM unnest(?::int[], ?::text[], ?::text[], ?::int[], ?::timestamptz[], ?::bigint[]) w(i, consumer, payload, n, after_at, after_id)
CROSS JOIN LATERAL (
  SELECT ` + dialect.PickColumns("octet_length(%s)") + ` FROM {messages} m
  WHERE m.consumer_type = w.consumer AND m.payload_type = w.payload AND m.keyed = FALSE AND m.crashes = 0 AND m.available_after <= {now}
    AND (m.available_after, m.id) > (w.after_at, w.after_id)
    AND m.id NOT IN (` + heldSQL + `)
  ORDER BY m.available_after, m.id LIMIT w.n FOR UPDATE SKIP LOCKED) m
WHERE w.consumer NOT IN (` + dialect.PausedNames + `)`

// pickPriorSQL locks due messages of the higher priorities. It is immutable.
var pickPriorSQL = `
SELECT w.i, m.*
FROM unnest(?::int[], ?::text[], ?::text[], ?::int[]) w(i, consumer, payload, n)
CROSS JOIN unnest(ARRAY[` + dialect.Levels + `]) l(priority)
CROSS JOIN LATERAL (
  SELECT ` + dialect.PickColumns("octet_length(%s)") + `, m.priority FROM {messages} m
  WHERE m.consumer_type = w.consumer AND m.payload_type = w.payload AND m.priority = l.priority AND m.priority > 0 AND m.keyed = FALSE AND m.crashes = 0 AND m.available_after <= {now}
    AND m.id NOT IN (` + heldSQL + `)
  ORDER BY m.available_after, m.id LIMIT w.n FOR UPDATE SKIP LOCKED) m
WHERE w.consumer NOT IN (` + dialect.PausedNames + `)`

// pickCrashedSQL locks due messages that have crashed. It is immutable.
var pickCrashedSQL = `
SELECT 0 AS i, ` + dialect.PickColumns("octet_length(%s)") + ` FROM {messages} m
WHERE (m.consumer_type, m.payload_type) IN (SELECT * FROM unnest(?::text[], ?::text[])) AND m.keyed = FALSE AND m.crashes > 0
  AND m.crashes BETWEEN ? AND ? AND m.available_after <= {now}
  AND m.id NOT IN (` + heldSQL + `) AND m.consumer_type NOT IN (` + dialect.PausedNames + `)
ORDER BY m.available_after, m.id LIMIT ? FOR UPDATE SKIP LOCKED`

// recordSQL must never be given a limit: it is what keeps an id out of two claims.
const recordSQL = `
WITH free AS MATERIALIZED (
  SELECT x FROM unnest(?::bigint[]) x WHERE x NOT IN (SELECT unnest(message_ids) FROM {claims}))
INSERT INTO {claims} (owner, solo, claimed_at, leased_until, leased_for, message_ids)
SELECT ?::text, ?::boolean, {now}, {now} + ?::bigint * interval '1 microsecond', ?::bigint, array_agg(x) FROM free HAVING count(*) > 0 RETURNING id, message_ids`

func (p *database) Claim(ctx context.Context, db *bun.DB, r dialect.ClaimRequest) (c dialect.Claim, err error) {
	if r.Lanes != nil {
		return p.claimLanes(ctx, db, r)
	}
	pick := p.pick
	if r.Select != dialect.Clean {
		pick = p.pickCrashed
	}
	statements := []*fixed{pick, p.record}
	if r.Ageing > 0 {
		statements = append(statements, p.pickPrior)
	}
	err = p.on(ctx, db, statements, func(s session) error {
		begin := beginSQL
		if r.Rate != nil {
			begin = beginSharedSQL
		}
		return s.inTx(ctx, begin, func() error {
			rated, err := p.Rated(ctx, s.IDB, r)
			if err != nil {
				return err
			}
			var picks []dialect.Pick
			if !rated.Spent {
				if err := s.run(ctx, pick, pickValues(rated.ClaimRequest)...).Scan(ctx, &picks); err != nil {
					return fmt.Errorf("pick: %w", err)
				}
				prior, err := s.pickByPriority(ctx, rated.ClaimRequest)
				if err != nil {
					return fmt.Errorf("pick by priority: %w", err)
				}
				picks = append(picks, prior...)
			}
			if c, picks = rated.Trim(picks); len(picks) == 0 {
				return rated.Spend(ctx, s.IDB, c)
			}
			if err := s.recordClaim(ctx, r, &c, picks); err != nil {
				return fmt.Errorf("record: %w", err)
			}
			return rated.Spend(ctx, s.IDB, c)
		})
	})
	if err != nil {
		return dialect.Claim{}, err
	}
	return c, nil
}

// pickByPriority locks messages that come early by their priority.
func (s session) pickByPriority(ctx context.Context, r dialect.ClaimRequest) (picks []dialect.Pick, err error) {
	if r.Ageing == 0 || r.Select != dialect.Clean {
		return nil, nil
	}
	w := columnsOf(r.Wants)
	err = s.run(ctx, s.pickPrior, pgdialect.Array(w.indexes), pgdialect.Array(w.consumers), pgdialect.Array(w.payloads),
		pgdialect.Array(w.limits)).
		Scan(ctx, &picks)
	return picks, err
}

// recordClaim claims those picks that are still free.
func (s session) recordClaim(ctx context.Context, r dialect.ClaimRequest, c *dialect.Claim, picks []dialect.Pick) error {
	var recorded []struct {
		ID         int64
		MessageIDs []int64 `bun:"message_ids,array"`
	}
	c.Sent = time.Now()
	ids, lease := pgdialect.Array(dialect.PickedIDs(picks)), r.Lease.Microseconds()
	err := s.run(ctx, s.record, ids, r.Owner, r.Solo, lease, lease).Scan(ctx, &recorded)
	if err != nil || len(recorded) == 0 {
		return err
	}
	c.ID = recorded[0].ID
	return s.Take(ctx, s.IDB, c, picks, recorded[0].MessageIDs)
}

func pickValues(r dialect.ClaimRequest) []any {
	w := columnsOf(r.Wants)
	if r.Select != dialect.Clean {
		low, high := r.Select.Crashes()
		return []any{pgdialect.Array(w.consumers), pgdialect.Array(w.payloads), low, high, r.Limit}
	}
	return []any{pgdialect.Array(w.indexes), pgdialect.Array(w.consumers), pgdialect.Array(w.payloads),
		pgdialect.Array(w.limits), pgdialect.Array(w.afterAt), pgdialect.Array(w.afterID)}
}

// wantColumns are wants as columns: arrays for the database.
type wantColumns struct {
	indexes, limits     []int
	consumers, payloads []string
	afterAt             []string
	afterID             []int64
}

func columnsOf(wants []dialect.Want) wantColumns {
	var w wantColumns
	for i, want := range wants {
		w.indexes = append(w.indexes, i)
		w.limits = append(w.limits, want.Limit)
		w.consumers = append(w.consumers, want.Consumer)
		w.payloads = append(w.payloads, want.Payload)
		at := "-infinity"
		if !want.After.At.IsZero() {
			at = timestamp(want.After.At)
		}
		w.afterAt = append(w.afterAt, at)
		w.afterID = append(w.afterID, want.After.ID)
	}
	return w
}
