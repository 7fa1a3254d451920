package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// brieflySQL bounds the lock waits of the statement around it. It must be evaluated before the
// locks are taken, so it is joined to the first locked rows. The bound is less than PostgreSQL's
// deadlock_timeout (1 s): a settle that meets a batch of replaced messages fails before a deadlock
// is declared.
const brieflySQL = `(SELECT set_config('lock_timeout', '500ms', true) OFFSET 0) s`

// finishSQL ends claims whose messages are all done. What is left in a claim is a subset of what
// its owner took, so the ids need not be sent. Lists are subqueries as in pollNextSQL.
const finishSQL = `
WITH live AS MATERIALIZED (SELECT c.id FROM ` + brieflySQL + `, {claims} c WHERE c.id = ANY((SELECT ?::bigint[])::bigint[]) AND c.owner = ? ORDER BY c.id FOR UPDATE OF c),
gone AS (DELETE FROM {claims} c USING live l WHERE c.id = l.id RETURNING c.id, c.message_ids),
fin AS (DELETE FROM {messages} m USING (SELECT unnest(message_ids) AS id FROM gone) g WHERE m.id = g.id)
SELECT id, cardinality(message_ids) AS messages FROM gone`

func (p *database) Finish(ctx context.Context, db bun.IDB, owner string, claims []int64) (finished []dialect.Finished, err error) {
	err = p.on(ctx, db, []*fixed{p.finish}, func(s session) error {
		return s.run(ctx, p.finish, pgdialect.Array(claims), owner).Scan(ctx, &finished)
	})
	return finished, err
}

// The parts between « and » are for messages with keys: see dialect.WithLanes.

// settleSQL guards every result by membership: its id must still be in a live claim of this owner.
// The rest of a claim is computed here by subtraction, so the statement is idempotent and can be
// sent again or out of order. It is immutable.
var settleSQL = `
WITH live AS MATERIALIZED (
  SELECT c.id, c.message_ids«, c.lanes» FROM ` + brieflySQL + `, {claims} c WHERE c.id = ANY((SELECT ?::bigint[])::bigint[]) AND c.owner = ? ORDER BY c.id FOR UPDATE OF c),
held AS MATERIALIZED (` + holdsSQL + `),
res AS MATERIALIZED (` + resultsSQL + `),` + applySQL + `
SELECT l.id, (SELECT count(*) FROM res r WHERE r.cid = l.id) AS messages FROM live l`

// settleFreeSQL leaves out messages that other transactions have locked, and returns them. A
// message that is gone is not locked, and releasing touches no message. It is immutable.
var settleFreeSQL = `
WITH live AS MATERIALIZED (
  SELECT id, message_ids«, lanes» FROM {claims} WHERE id = ANY((SELECT ?::bigint[])::bigint[]) AND owner = ? ORDER BY id FOR UPDATE),
held AS MATERIALIZED (` + holdsSQL + `),
sent AS MATERIALIZED (` + resultsSQL + `),
free AS MATERIALIZED (
  SELECT m.id FROM {messages} m WHERE m.id IN (SELECT s.mid FROM sent s WHERE s.outcome <> 'release') ORDER BY m.id FOR UPDATE SKIP LOCKED),
busy AS MATERIALIZED (
  SELECT s.cid, s.mid FROM sent s JOIN {messages} m ON m.id = s.mid
  WHERE s.outcome <> 'release' AND s.mid NOT IN (SELECT id FROM free)),
res AS MATERIALIZED (SELECT * FROM sent s WHERE s.outcome = 'release' OR s.mid NOT IN (SELECT mid FROM busy)),` + applySQL + `
SELECT l.id, (SELECT count(*) FROM res r WHERE r.cid = l.id) AS messages, (SELECT array_agg(b.mid) FROM busy b WHERE b.cid = l.id) AS busy FROM live l`

const holdsSQL = `SELECT l.id AS cid, u.mid«, u.lane» FROM live l CROSS JOIN LATERAL unnest(l.message_ids«, l.lanes») u(mid«, lane»)`

const resultsSQL = `
  SELECT r.* FROM unnest((SELECT ?::bigint[]), (SELECT ?::bigint[]), (SELECT ?::text[]), (SELECT ?::bigint[]), (SELECT ?::text[]), (SELECT ?::text[])«, (SELECT ?::boolean[])»)
    r(cid, mid, outcome, delay, errors, reason«, parks»)
  JOIN held h ON h.cid = r.cid AND h.mid = r.mid`

// applySQL writes the results that count. It is immutable.
var applySQL = `
rest AS MATERIALIZED (
  SELECT h.cid, array_agg(h.mid) FILTER (WHERE r.mid IS NULL) AS ids«,
    CASE WHEN bool_or(h.lane IS NOT NULL) THEN array_agg(h.lane) FILTER (WHERE r.mid IS NULL) END AS lanes»
  FROM held h LEFT JOIN res r ON r.cid = h.cid AND r.mid = h.mid GROUP BY h.cid),
gone AS (DELETE FROM {claims} c USING rest k WHERE c.id = k.cid AND k.ids IS NULL),
kept AS (
  UPDATE {claims} c SET message_ids = k.ids«, lanes = k.lanes», leased_until = {now} + ?::bigint * interval '1 microsecond'
  FROM rest k WHERE c.id = k.cid AND k.ids IS NOT NULL),
fin AS (DELETE FROM {messages} m USING res r WHERE m.id = r.mid AND r.outcome = 'done'),
bad AS (DELETE FROM {messages} m USING res r WHERE m.id = r.mid AND r.outcome = 'poison'
  RETURNING ` + dialect.MessageColumns + `, m.steps«, m.order_key, m.lane, m.rank, r.parks», r.errors AS new_errors, r.reason, r.cid),
poi AS (
  INSERT INTO {poisoned} (` + dialect.PoisonedColumns + `, steps, fingerprint«, order_key, lane, rank, parks»)
  SELECT ` + dialect.PoisonedID("bad.id") + `, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at,
    available_after, attempts + 1, crashes, COALESCE(NULLIF(new_errors, ''), errors), {now}, reason, group_key, steps, (SELECT f.print FROM unnest(?::bigint[], ?::bigint[], ?::text[]) f(cid, mid, print) WHERE f.cid = bad.cid AND f.mid = bad.id)«, order_key, lane, rank, lane IS NOT NULL AND parks» FROM bad),
upd AS (
  UPDATE {messages} m SET attempts = m.attempts + CASE r.outcome WHEN 'failed' THEN 1 ELSE 0 END, crashes = 0,
    errors = COALESCE(NULLIF(r.errors, ''), m.errors), available_after = {now} + r.delay * interval '1 microsecond'«, rank = ` + dialect.Moved("m.rank", "{now} + r.delay * interval '1 microsecond'", micros) + `»
  FROM res r WHERE m.id = r.mid AND r.outcome IN ('failed', 'snooze')){keep}`

// settling selects one of the statements that settle.
type settling struct{ lanes, freeOnly, keeps bool }

func (p *database) settleStatements() map[settling]*fixed {
	all := make(map[settling]*fixed)
	for _, s := range []settling{{}, {lanes: true}, {freeOnly: true}, {lanes: true, freeOnly: true}} {
		name, statement := "settle", settleSQL
		if s.lanes {
			name += "_lanes"
		}
		if s.freeOnly {
			name, statement = name+"_free", settleFreeSQL
		}
		statement = dialect.IfLanes(statement, s.lanes)
		all[s] = p.fix(name, strings.Replace(statement, "{keep}", "", 1))
		s.keeps = true
		all[s] = p.fix(name+"_keep", strings.Replace(statement, "{keep}", keepSQL, 1))
	}
	return all
}

func (p *database) Settle(
	ctx context.Context, db bun.IDB, owner string, lease time.Duration, results []dialect.Result, freeOnly bool,
) (dialect.Settled, error) {
	keyed := dialect.OfLanes(results)
	var keeping []dialect.Result
	for i := range results {
		if results[i].Kept != nil {
			keeping = append(keeping, results[i])
		}
	}
	statement := p.settle[settling{keyed, freeOnly, len(keeping) > 0}]
	r := resultColumns(results)
	args := []any{pgdialect.Array(r.claims), owner, pgdialect.Array(r.claimOf), pgdialect.Array(r.messages), pgdialect.Array(r.outcomes),
		pgdialect.Array(r.delays), pgdialect.Array(r.errors), pgdialect.Array(r.reasons)}
	if keyed {
		args = append(args, pgdialect.Array(r.parks))
	}
	args = append(args, lease.Microseconds(), pgdialect.Array(r.printClaims), pgdialect.Array(r.printOf), pgdialect.Array(r.prints))
	if len(keeping) > 0 {
		args = append(args, keptColumns(keeping)...)
	}
	var rows []struct {
		dialect.Finished `bun:",extend"`
		Busy             []int64 `bun:"busy,array"`
	}
	err := p.on(ctx, db, []*fixed{statement}, func(s session) error {
		return s.run(ctx, statement, args...).Scan(ctx, &rows)
	})
	var settled dialect.Settled
	locked := make(map[[2]int64]bool)
	for _, row := range rows {
		settled.Live = append(settled.Live, row.Claim)
		settled.Applied += row.Messages
		for _, id := range row.Busy {
			locked[[2]int64{row.Claim, id}] = true
		}
	}
	if len(locked) == 0 {
		return settled, err
	}
	for _, result := range results {
		if locked[[2]int64{result.Claim, result.Message}] {
			settled.Busy = append(settled.Busy, result)
		}
	}
	return settled, err
}

// resultArrays are results as columns: arrays for the database.
type resultArrays struct {
	claims                    []int64 // distinct
	claimOf, messages, delays []int64
	outcomes, errors, reasons []string
	parks                     []bool
	printClaims, printOf      []int64 // of poisoned ones
	prints                    []string
}

func resultColumns(results []dialect.Result) resultArrays {
	r := resultArrays{claims: dialect.ClaimsOf(results)}
	for _, result := range results {
		r.claimOf = append(r.claimOf, result.Claim)
		r.messages = append(r.messages, result.Message)
		r.outcomes = append(r.outcomes, string(result.Outcome))
		r.delays = append(r.delays, result.Delay.Microseconds())
		r.errors = append(r.errors, errorlog.Clean(result.Errors, 0))
		r.parks = append(r.parks, result.Parks)
		if result.Fingerprint != "" {
			r.printClaims, r.printOf = append(r.printClaims, result.Claim), append(r.printOf, result.Message)
			r.prints = append(r.prints, result.Fingerprint)
		}
		r.reasons = append(r.reasons, errorlog.Clean(result.Reason, errorlog.MaxBytes))
	}
	return r
}
