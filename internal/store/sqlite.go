package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/uptrace/bun"
)

// sqlite is the engine for SQLite 3.42 and later.
//
// The protocol is that of postgres, without row locks: the first statement of
// every transaction is a write, which takes the database's only write lock, so
// what follows sees and changes the newest state. Instants are integers:
// microseconds since 1970. Lists of ids are JSON.
type sqlite struct{ returning }

func (s *sqlite) name() string { return "sqlite" }

func (s *sqlite) traits() traits { return traits{} }

func sqliteWords() words {
	return words{
		place: "sequence", unplaced: "0", last: "(SELECT COALESCE(MAX(h.sequence), 0) FROM {events} h)", // 0: nothing is looked at
		once: "MATERIALIZED", size: "json_array_length(c.message_ids)", keep: onPaused,
		keyed: "m.insert_id = ?",
	}
}

func (s *sqlite) now(ctx context.Context) string {
	if t, ok := fixed(ctx); ok {
		return s.at(t)
	}
	return "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
}

func (s *sqlite) after(ctx context.Context, d time.Duration) string {
	return fmt.Sprintf("%s + %d", s.now(ctx), d.Microseconds())
}

func (s *sqlite) at(t time.Time) string { return strconv.FormatInt(t.UnixMicro(), 10) }

func (s *sqlite) raw(ctx context.Context, db bun.IDB, statement string, args ...any) *bun.RawQuery {
	return s.query(db, s.now(ctx), statement, args...)
}

// inTx runs fn in a transaction that holds the write lock from the start.
func (s *sqlite) inTx(ctx context.Context, db bun.IDB, fn func(tx bun.IDB) error) error {
	return db.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error {
		if _, err := s.raw(ctx, tx, sqliteLock).Exec(ctx); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		return fn(tx)
	})
}

// sqliteLock changes nothing, but it is a write: it waits for the write lock as
// long as busy_timeout says. A read first would fail at once instead, when
// another connection has written since.
const sqliteLock = `UPDATE {claims} SET owner = owner WHERE id < 0`

const sqliteHeld = `SELECT j.value AS id FROM {claims} c, json_each(c.message_ids) j`

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

const sqliteProbeDue = `
SELECT 0 AS kind, w.key AS value, m.id, m.available_after AS at FROM json_each(?) w JOIN {messages} m ON m.id = (
  SELECT d.id FROM {messages} d WHERE d.consumer_type = w.value ->> 0 AND d.payload_type = w.value ->> 1 AND d.crashes = 0
    AND d.available_after <= {now} AND (d.available_after, d.id) > (w.value ->> 2, w.value ->> 3) AND d.id NOT IN (` + sqliteHeld + `)
  ORDER BY d.available_after, d.id LIMIT 1)
WHERE w.value ->> 0 NOT IN (` + pausedNames + `)`

const sqliteProbe = sqliteProbeDue + `
UNION ALL SELECT DISTINCT MIN(m.crashes, 2), 0, 0, NULL FROM {messages} m
  WHERE (m.consumer_type, m.payload_type) IN (SELECT j.value ->> 0, j.value ->> 1 FROM json_each(?) j) AND m.crashes > 0
    AND m.available_after <= {now} AND m.id NOT IN (` + sqliteHeld + `) AND m.consumer_type NOT IN (` + pausedNames + `)
UNION ALL SELECT 3, MIN(leased_until) - {now}, 0, NULL FROM {claims} HAVING MIN(leased_until) IS NOT NULL
UNION ALL SELECT 4, MIN(due) - {now}, 0, NULL FROM (SELECT (
    SELECT m.available_after FROM {messages} m WHERE m.consumer_type = w.value ->> 0 AND m.payload_type = w.value ->> 1 AND m.crashes = 0
      AND m.available_after > {now} ORDER BY m.available_after LIMIT 1) AS due FROM json_each(?) w
    WHERE w.value ->> 0 NOT IN (` + pausedNames + `)) HAVING MIN(due) IS NOT NULL
UNION ALL SELECT 5, 0, 0, {now}`

func (s *sqlite) probe(ctx context.Context, db bun.IDB, wants []Want, all bool) (Probe, error) {
	list := make([][4]any, len(wants))
	for i, w := range wants {
		list[i] = [4]any{w.Consumer, w.Payload, w.After.micros(), w.After.ID}
	}
	statement, args := sqliteProbeDue, []any{asJSON(list)}
	if all {
		kinds := pairs(wants)
		statement, args = sqliteProbe, append(args, kinds, kinds)
	}
	var found []finding
	err := s.raw(ctx, db, statement, args...).Scan(ctx, &found)
	return newProbe(found), err
}

const sqliteFinish = `DELETE FROM {claims} WHERE id IN (SELECT value FROM json_each(?)) AND owner = ?
RETURNING id, json_array_length(message_ids) AS messages, message_ids`

const sqliteDelete = `DELETE FROM {messages} WHERE id IN (SELECT value FROM json_each(?))`

func (s *sqlite) finish(ctx context.Context, db bun.IDB, owner string, claims []int64) (finished []Finished, err error) {
	err = s.inTx(ctx, db, func(tx bun.IDB) error {
		var gone []struct {
			Finished   `bun:",extend"`
			MessageIDs string `bun:"message_ids"`
		}
		if err := s.raw(ctx, tx, sqliteFinish, asJSON(claims), owner).Scan(ctx, &gone); err != nil {
			return err
		}
		for _, claim := range gone {
			if _, err := s.raw(ctx, tx, sqliteDelete, claim.MessageIDs).Exec(ctx); err != nil {
				return err
			}
			finished = append(finished, claim.Finished)
		}
		return nil
	})
	return finished, err
}

const sqliteExtend = `UPDATE {claims} SET leased_until = {now} + ? WHERE owner = ? RETURNING id`

func (s *sqlite) extend(ctx context.Context, db bun.IDB, owner string, lease time.Duration) (held []int64, err error) {
	err = s.raw(ctx, db, sqliteExtend, lease.Microseconds(), owner).Scan(ctx, &held)
	return held, err
}

const sqliteDisclaim = `DELETE FROM {claims} WHERE id IN (SELECT value FROM json_each(?)) AND owner = ?`

func (s *sqlite) disclaim(ctx context.Context, db bun.IDB, owner string, claims []int64) error {
	_, err := s.raw(ctx, db, sqliteDisclaim, asJSON(claims), owner).Exec(ctx)
	return err
}

const sqliteDead = `SELECT id FROM {claims} WHERE leased_until < {now} ORDER BY id LIMIT 20`

// sqliteHit reads the messages of dead claims as a table.
const sqliteHit = `(SELECT m.id, m.crashes, c.solo FROM {claims} c, json_each(c.message_ids) j JOIN {messages} m ON m.id = j.value
	WHERE c.id IN (SELECT value FROM json_each(?)))`

const sqliteDying = `SELECT h.id FROM ` + sqliteHit + ` h WHERE h.solo AND h.crashes + 1 >= ?`

// sqliteBury is immutable.
var sqliteBury = `
INSERT INTO {poisoned} (` + poisonedColumns + `)
SELECT ` + poisonedID("m.id") + `, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
  m.available_after, m.attempts, m.crashes + 1, m.errors, {now}, ? FROM {messages} m WHERE m.id IN (SELECT value FROM json_each(?))`

const sqliteBump = `UPDATE {messages} AS m SET crashes = CASE WHEN h.solo THEN h.crashes + 1 ELSE MIN(h.crashes + 1, ? - 1) END
FROM ` + sqliteHit + ` h WHERE m.id = h.id`

const sqliteForget = `DELETE FROM {claims} WHERE id IN (SELECT value FROM json_each(?))`

func (s *sqlite) recover(ctx context.Context, db bun.IDB, maxCrashes int) (found Recovered, err error) {
	err = s.inTx(ctx, db, func(tx bun.IDB) error {
		found = Recovered{}
		var dead, dying []int64
		if err := s.raw(ctx, tx, sqliteDead).Scan(ctx, &dead); err != nil || len(dead) == 0 {
			return err
		}
		claims := asJSON(dead)
		if err := s.raw(ctx, tx, sqliteDying, claims, maxCrashes).Scan(ctx, &dying); err != nil {
			return err
		}
		if _, err := s.raw(ctx, tx, sqliteBury, CrashReason(maxCrashes), asJSON(dying)).Exec(ctx); err != nil {
			return err
		}
		if _, err := s.raw(ctx, tx, sqliteDelete, asJSON(dying)).Exec(ctx); err != nil {
			return err
		}
		bumped, err := s.raw(ctx, tx, sqliteBump, maxCrashes, claims).Exec(ctx)
		if err != nil {
			return err
		}
		n, err := bumped.RowsAffected()
		if err != nil {
			return err
		}
		found = Recovered{Claims: len(dead), Crashed: int(n) + len(dying), Poisoned: len(dying)}
		_, err = s.raw(ctx, tx, sqliteForget, claims).Exec(ctx)
		return err
	})
	return found, err
}

func (s *sqlite) strangers(ctx context.Context, db bun.IDB, wants []Want) (found []Stranger, err error) {
	err = s.raw(ctx, db, strangersAmong(`SELECT j.value ->> 0, j.value ->> 1 FROM json_each(?) j`), pairs(wants)).Scan(ctx, &found)
	return found, err
}

func (s *sqlite) listed(names []string) (statement string, arg any) {
	return `SELECT value AS consumer FROM json_each(?)`, asJSON(names)
}

// sqliteFence is a write, so it takes the write lock and keeps it: a
// transactional consumer is the only writer while it runs.
const sqliteFence = `
UPDATE {messages} AS m SET attempts = m.attempts FROM json_each(?) j
WHERE m.id = j.value ->> 0 AND m.attempts = j.value ->> 1 AND m.crashes = j.value ->> 2 RETURNING id`

const sqliteClaims = `SELECT id, message_ids FROM {claims} WHERE id IN (SELECT value FROM json_each(?)) AND owner = ?`

func (s *sqlite) fence(ctx context.Context, tx bun.IDB, f Fence) (held []int64, err error) {
	var states [][3]int64
	var claims, same []int64
	for _, m := range f.Messages {
		states, claims = append(states, [3]int64{m.ID, int64(m.Attempts), int64(m.Crashes)}), append(claims, m.Claim)
	}
	if err := s.raw(ctx, tx, sqliteFence, asJSON(states)).Scan(ctx, &same); err != nil {
		return nil, err
	}
	var live []leased
	if err := s.raw(ctx, tx, sqliteClaims, asJSON(claims), f.Owner).Scan(ctx, &live); err != nil {
		return nil, err
	}
	claimed := make(map[resultKey]bool)
	for _, c := range live {
		for _, id := range c.MessageIDs {
			claimed[resultKey{c.ID, id}] = true
		}
	}
	for _, m := range f.Messages {
		if slices.Contains(same, m.ID) && claimed[resultKey{m.Claim, m.ID}] {
			held = append(held, m.ID)
		}
	}
	_, err = tx.NewRaw(`SAVEPOINT fence_of_asyncmonolith`).Exec(ctx)
	return held, err
}

// intact looks for the savepoint of the fence. Some errors, an interrupted write
// for one, make SQLite roll back the whole transaction; when a consumer hides such
// an error, statements go on and commit one by one, or in a transaction that the
// next savepoint begins.
func (s *sqlite) intact(ctx context.Context, tx bun.IDB) error {
	if _, err := tx.NewRaw(`RELEASE fence_of_asyncmonolith`).Exec(ctx); err != nil {
		return fmt.Errorf("rolled back by SQLite after a failed statement: %w", err)
	}
	return nil
}

// interrupt has nothing to end: statements run in this process, under their context.
func (s *sqlite) interrupt(context.Context, *bun.DB, Session, time.Time) error { return nil }

// sqliteExists is a write, which waits for whoever holds the write lock.
const sqliteExists = `UPDATE {messages} SET id = id WHERE id = ?`

func (s *sqlite) exists(ctx context.Context, db bun.IDB, id int64) (bool, error) {
	return affectedOne(s.raw(ctx, db, sqliteExists, id).Exec(ctx))
}
