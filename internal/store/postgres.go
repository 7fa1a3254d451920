package store

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

// postgres is the engine for PostgreSQL 13 and later.
//
// A claim is one row in message_claims. Two statements make it: pick locks rows
// that no claim holds, and record writes the claim with a snapshot of its own,
// which sees every claim committed since pick began. While a claimer holds a
// row lock nobody else can pick the row; once it lets go, its claim is visible
// to everyone else's record. Both halves are needed, and both need READ
// COMMITTED.
type postgres struct{ returning }

func (p *postgres) name() string { return "postgres" }

func (p *postgres) traits() traits {
	return traits{rowLocks: true, notifies: true, readOnly: pgReadOnly, session: pgSession}
}

const pgReadOnly = `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on'`

func pgWords() words {
	return words{
		place: "position", unplaced: "e.position IS NULL", last: "(SELECT h.position FROM {head} h WHERE h.id = 1)",
		once: "MATERIALIZED", size: "cardinality(c.message_ids)", keep: onPaused,
		keyed: "m.insert_id = ?",
	}
}

func (p *postgres) now(ctx context.Context) string {
	if t, ok := fixed(ctx); ok {
		return p.at(t)
	}
	return "statement_timestamp()"
}

func (p *postgres) after(ctx context.Context, d time.Duration) string {
	return fmt.Sprintf("%s + %d * interval '1 microsecond'", p.now(ctx), d.Microseconds())
}

func (p *postgres) at(t time.Time) string { return "'" + pgTime(t) + "'::timestamptz" }

func pgTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.999999+00:00") }

func (p *postgres) raw(ctx context.Context, db bun.IDB, statement string, args ...any) *bun.RawQuery {
	return p.query(db, p.now(ctx), statement, args...)
}

// pgPreamble bounds what a vanished client can hold on to, and keeps the
// planner from turning the claims subquery into a scan per row.
const pgPreamble = `SELECT set_config('idle_in_transaction_session_timeout', '5s', true), set_config('statement_timeout', '5s', true),
	set_config('work_mem', '16MB', true), set_config('jit', 'off', true)`

// pgNotify does not wait for the disk: a crash that loses a notification ends the
// connections of those it was for. That also keeps short the one lock which all
// transactions of a server that notify hold while they commit.
const pgNotify = `SELECT set_config('synchronous_commit', 'off', true), pg_notify(?, ?)`

// pgHeld is limited for the planner's sake only: with the limit it always
// hashes the subquery. Missing a claim here costs a wasted pick; pgRecord, which
// is the guard, has no limit.
const pgHeld = `SELECT unnest(message_ids) AS id FROM {claims} LIMIT 100000`

// pgPick locks what is due. It is immutable.
var pgPick = `
SELECT w.i, m.*
FROM unnest(?::int[], ?::text[], ?::text[], ?::int[], ?::timestamptz[], ?::bigint[]) w(i, consumer, payload, n, after_at, after_id)
CROSS JOIN LATERAL (
  SELECT ` + pickColumns("octet_length(%s)") + ` FROM {messages} m
  WHERE m.consumer_type = w.consumer AND m.payload_type = w.payload AND m.crashes = 0 AND m.available_after <= {now}
    AND (m.available_after, m.id) > (w.after_at, w.after_id)
    AND m.id NOT IN (` + pgHeld + `)
  ORDER BY m.available_after, m.id LIMIT w.n FOR UPDATE SKIP LOCKED) m
WHERE w.consumer NOT IN (` + pausedNames + `)`

// pgPickCrashed does so for messages that have crashed. It is immutable.
var pgPickCrashed = `
SELECT 0 AS i, ` + pickColumns("octet_length(%s)") + ` FROM {messages} m
WHERE (m.consumer_type, m.payload_type) IN (SELECT * FROM unnest(?::text[], ?::text[])) AND m.crashes > 0
  AND m.crashes BETWEEN ? AND ? AND m.available_after <= {now}
  AND m.id NOT IN (` + pgHeld + `) AND m.consumer_type NOT IN (` + pausedNames + `)
ORDER BY m.available_after, m.id LIMIT ? FOR UPDATE SKIP LOCKED`

// pgRecord must never be given a limit: it is what keeps an id out of two claims.
const pgRecord = `
WITH free AS MATERIALIZED (
  SELECT x FROM unnest(?::bigint[]) x WHERE x NOT IN (SELECT unnest(message_ids) FROM {claims}))
INSERT INTO {claims} (owner, solo, claimed_at, leased_until, message_ids)
SELECT ?, ?, {now}, {now} + ? * interval '1 microsecond', array_agg(x) FROM free HAVING count(*) > 0 RETURNING id, message_ids`

func (p *postgres) claim(ctx context.Context, db *bun.DB, r ClaimRequest) (Claim, error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return Claim{}, fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // a no-op after Commit, and nothing to add to an earlier error
	if _, err := tx.NewRaw(pgPreamble).Exec(ctx); err != nil {
		return Claim{}, fmt.Errorf("preamble: %w", err)
	}
	var picks []pick
	if err := p.pickQuery(ctx, tx, r).Scan(ctx, &picks); err != nil {
		return Claim{}, fmt.Errorf("pick: %w", err)
	}
	c, picks := r.keep(picks)
	if len(picks) > 0 {
		if err := p.record(ctx, tx, r, &c, picks); err != nil {
			return Claim{}, fmt.Errorf("record: %w", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return Claim{}, fmt.Errorf("commit: %w", err)
	}
	return c, nil
}

// record claims those picks that are still free.
func (p *postgres) record(ctx context.Context, tx bun.Tx, r ClaimRequest, c *Claim, picks []pick) error {
	var recorded []struct {
		ID         int64
		MessageIDs []int64 `bun:"message_ids,array"`
	}
	c.Sent = time.Now()
	err := p.raw(ctx, tx, pgRecord, pgdialect.Array(pickedIDs(picks)), r.Owner, r.Solo, r.Lease.Microseconds()).Scan(ctx, &recorded)
	if err != nil || len(recorded) == 0 {
		return err
	}
	c.ID = recorded[0].ID
	return p.take(ctx, tx, c, picks, recorded[0].MessageIDs)
}

func (p *postgres) pickQuery(ctx context.Context, tx bun.IDB, r ClaimRequest) *bun.RawQuery {
	w := columnsOf(r.Wants)
	if r.Select != Clean {
		low, high := r.Select.crashes()
		return p.raw(ctx, tx, pgPickCrashed, pgdialect.Array(w.consumers), pgdialect.Array(w.payloads), low, high, r.Limit)
	}
	return p.raw(ctx, tx, pgPick, pgdialect.Array(w.indexes), pgdialect.Array(w.consumers), pgdialect.Array(w.payloads),
		pgdialect.Array(w.limits), pgdialect.Array(w.afterAt), pgdialect.Array(w.afterID))
}

// pgProbe is the idle poll: one statement that finds everything there may be to
// do. It asks for the first due message rather than whether one exists: EXISTS would
// become a join, and with stale statistics one that reads the whole table.
const pgProbe = pgProbeDue + `
UNION ALL SELECT DISTINCT LEAST(m.crashes, 2), 0, 0, NULL::timestamptz FROM {messages} m
  WHERE (m.consumer_type, m.payload_type) IN (SELECT * FROM unnest(?::text[], ?::text[])) AND m.crashes > 0
    AND m.available_after <= {now} AND m.id NOT IN (` + pgHeld + `) AND m.consumer_type NOT IN (` + pausedNames + `)
UNION ALL SELECT 3, (extract(epoch FROM min(leased_until) - {now}) * 1000000)::bigint, 0, NULL FROM {claims} HAVING count(*) > 0
UNION ALL SELECT 4, (extract(epoch FROM min(n.available_after) - {now}) * 1000000)::bigint, 0, NULL
  FROM unnest(?::text[], ?::text[]) w(consumer, payload) CROSS JOIN LATERAL (
    SELECT m.available_after FROM {messages} m WHERE m.consumer_type = w.consumer AND m.payload_type = w.payload AND m.crashes = 0
      AND m.available_after > {now} ORDER BY m.available_after LIMIT 1) n
  WHERE w.consumer NOT IN (` + pausedNames + `) HAVING count(*) > 0
UNION ALL SELECT 5, 0, 0, {now}`

const pgProbeDue = `
SELECT 0 AS kind, w.i AS value, m.id, m.available_after AS at
  FROM unnest(?::bigint[], ?::text[], ?::text[], ?::timestamptz[], ?::bigint[]) w(i, consumer, payload, after_at, after_id)
  CROSS JOIN LATERAL (
    SELECT m.id, m.available_after FROM {messages} m WHERE m.consumer_type = w.consumer AND m.payload_type = w.payload
      AND m.crashes = 0 AND m.available_after <= {now} AND (m.available_after, m.id) > (w.after_at, w.after_id) AND m.id NOT IN (` + pgHeld + `)
    ORDER BY m.available_after, m.id LIMIT 1) m
  WHERE w.consumer NOT IN (` + pausedNames + `)`

func (p *postgres) probe(ctx context.Context, db bun.IDB, wants []Want, all bool) (Probe, error) {
	w := columnsOf(wants)
	consumers, payloads := pgdialect.Array(w.consumers), pgdialect.Array(w.payloads)
	statement, args := pgProbeDue, []any{pgdialect.Array(w.indexes), consumers, payloads, pgdialect.Array(w.afterAt), pgdialect.Array(w.afterID)}
	if all {
		statement, args = pgProbe, append(args, consumers, payloads, consumers, payloads)
	}
	var found []finding
	err := p.raw(ctx, db, statement, args...).Scan(ctx, &found)
	return newProbe(found), err
}

// pgExtend renews everything the owner holds, also a claim that has expired but
// that nobody has taken yet.
// Like every statement that locks several claims it does so in the order of
// their ids, so that no two can deadlock.
const pgExtend = `
WITH live AS MATERIALIZED (SELECT id FROM {claims} WHERE owner = ? ORDER BY id FOR UPDATE)
UPDATE {claims} c SET leased_until = {now} + ? * interval '1 microsecond' FROM live l WHERE c.id = l.id RETURNING c.id`

func (p *postgres) extend(ctx context.Context, db bun.IDB, owner string, lease time.Duration) (held []int64, err error) {
	err = p.raw(ctx, db, pgExtend, owner, lease.Microseconds()).Scan(ctx, &held)
	return held, err
}

const pgDisclaim = `
WITH live AS MATERIALIZED (SELECT id FROM {claims} WHERE id = ANY(?::bigint[]) AND owner = ? ORDER BY id FOR UPDATE)
DELETE FROM {claims} c USING live l WHERE c.id = l.id`

func (p *postgres) disclaim(ctx context.Context, db bun.IDB, owner string, claims []int64) error {
	_, err := p.raw(ctx, db, pgDisclaim, pgdialect.Array(claims), owner).Exec(ctx)
	return err
}

// pgRecover leaves messages alone that somebody has locked: a transactional
// consumer that outlived its lease is still at work on them, not crashed. It is
// immutable.
var pgRecover = `
WITH dead AS MATERIALIZED (
  SELECT id, message_ids, solo FROM {claims} WHERE leased_until < {now} ORDER BY id LIMIT 20 FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM {claims} c USING dead d WHERE c.id = d.id),
ids AS MATERIALIZED (SELECT u.mid, d.solo FROM dead d CROSS JOIN LATERAL unnest(d.message_ids) u(mid)),
hit AS MATERIALIZED (
  SELECT m.id, i.solo, m.crashes FROM {messages} m JOIN ids i ON i.mid = m.id ORDER BY m.id FOR UPDATE OF m SKIP LOCKED),
dying AS (DELETE FROM {messages} m USING hit h WHERE m.id = h.id AND h.solo AND h.crashes + 1 >= ? RETURNING ` + messageColumns + `),
poi AS (
  INSERT INTO {poisoned} (` + poisonedColumns + `)
  SELECT ` + poisonedID("dying.id") + `, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at,
    available_after, attempts, crashes + 1, errors, {now}, ? FROM dying),
bump AS (
  UPDATE {messages} m SET crashes = CASE WHEN h.solo THEN h.crashes + 1 ELSE LEAST(h.crashes + 1, ? - 1) END
  FROM hit h WHERE m.id = h.id AND NOT (h.solo AND h.crashes + 1 >= ?))
SELECT (SELECT count(*) FROM dead) AS claims, (SELECT count(*) FROM hit) AS crashed, (SELECT count(*) FROM dying) AS poisoned`

func (p *postgres) recover(ctx context.Context, db bun.IDB, maxCrashes int) (found Recovered, err error) {
	err = p.raw(ctx, db, pgRecover, maxCrashes, CrashReason(maxCrashes), maxCrashes, maxCrashes).Scan(ctx, &found)
	return found, err
}

func (p *postgres) strangers(ctx context.Context, db bun.IDB, wants []Want) (found []Stranger, err error) {
	w := columnsOf(wants)
	err = p.raw(ctx, db, strangersAmong(`SELECT * FROM unnest(?::text[], ?::text[])`), pgdialect.Array(w.consumers), pgdialect.Array(w.payloads)).Scan(ctx, &found)
	return found, err
}

func (p *postgres) listed(names []string) (statement string, arg any) {
	return `SELECT unnest(?::text[]) AS consumer`, pgdialect.Array(names)
}

func (p *postgres) migrating(ctx context.Context, db *bun.DB, fn func(tx bun.IDB) error) error {
	return db.RunInTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(_ context.Context, tx bun.Tx) error {
		if _, err := tx.NewRaw(`SELECT pg_advisory_xact_lock(?)`, p.advisoryKey()).Exec(ctx); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if err := p.createSchema(ctx, tx); err != nil {
			return fmt.Errorf("create schema: %w", err)
		}
		if _, err := tx.NewRaw(p.expand(`CREATE TABLE IF NOT EXISTS {migrations} (version int PRIMARY KEY, applied_at timestamptz NOT NULL)`)).Exec(ctx); err != nil {
			return fmt.Errorf("create table of migrations: %w", err)
		}
		return fn(tx)
	})
}

// createSchema looks for it in the catalog: a connection that has once heard that there
// is no such schema may still believe it, and IF NOT EXISTS with it. Nor is it allowed
// to everybody, even where it has nothing to do.
func (p *postgres) createSchema(ctx context.Context, tx bun.Tx) error {
	var exists bool
	err := tx.NewRaw(`SELECT ? = '' OR EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = ?)`, p.schema, p.schema).Scan(ctx, &exists)
	if err != nil || exists {
		return err
	}
	_, err = tx.NewRaw(`CREATE SCHEMA ?`, bun.Ident(p.schema)).Exec(ctx)
	return err
}

// advisoryKey is one per schema: sets of tables in it may both want to create it.
func (p *postgres) advisoryKey() int64 {
	h := fnv.New64a()
	h.Write([]byte("asyncmonolith " + p.schema))
	return int64(h.Sum64())
}

func (p *postgres) bound(ctx context.Context, tx bun.Tx) error {
	if _, err := tx.NewRaw(pgPreamble).Exec(ctx); err != nil {
		return fmt.Errorf("preamble: %w", err)
	}
	return nil
}

func (p *postgres) within(ctx context.Context, tx bun.Tx, limit time.Duration) error {
	const bounds = `SELECT set_config('idle_in_transaction_session_timeout', ?0, true), set_config('statement_timeout', ?0, true)`
	if _, err := tx.NewRaw(bounds, fmt.Sprintf("%dms", limit.Milliseconds())).Exec(ctx); err != nil {
		return fmt.Errorf("preamble: %w", err)
	}
	return nil
}

func (p *postgres) check(ctx context.Context, db bun.IDB) (Settings, error) {
	var standby bool
	if err := db.NewRaw(`SELECT pg_is_in_recovery()`).Scan(ctx, &standby); err != nil {
		return Settings{}, err
	}
	if standby {
		return Settings{}, fmt.Errorf("the database is a standby: connect to the primary")
	}
	return Settings{RowLocks: true}, p.literals(ctx, db)
}
