package store

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uptrace/bun"
)

// mariadb is the engine for MariaDB 10.6 and later. MySQL 8 understands the same
// statements, but nobody has tested it.
//
// The protocol is that of postgres, in more statements of one READ COMMITTED
// transaction, since here no statement writes to two tables or tells what it
// wrote. Each statement of such a transaction sees what was committed before it
// began, and a statement that locks sees the newest version of what it locks.
// What depends on a list of ids is computed here, from rows that are locked.
//
// Rows are locked by primary key alone, looked up one by one in the order of a
// list: a scan would lock, or wait for, what it only passes by. STRAIGHT_JOIN and
// FORCE INDEX leave the planner no choice in that, however few rows there are. Instants are
// integers: microseconds since 1970. Lists of ids are JSON.
type mariadb struct{ names }

func (m *mariadb) name() string { return "mariadb" }

func (m *mariadb) now(ctx context.Context) string {
	if t, ok := fixed(ctx); ok {
		return m.at(t)
	}
	return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
}

func (m *mariadb) after(ctx context.Context, d time.Duration) string {
	return fmt.Sprintf("%s + %d", m.now(ctx), d.Microseconds())
}

func (m *mariadb) at(t time.Time) string { return strconv.FormatInt(t.UnixMicro(), 10) }

// raw prepares one of this dialect's statements.
func (m *mariadb) raw(ctx context.Context, db bun.IDB, statement string, args ...any) *bun.RawQuery {
	statement = strings.ReplaceAll(statement, "{ids}", `JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN`)
	return m.query(db, m.now(ctx), statement, args...)
}

// ordered is a list of ids for {ids}, in the order in which rows are locked.
func ordered(ids []int64) string {
	return asJSON(slices.Compact(slices.Sorted(slices.Values(ids))))
}

const mariaHeld = `SELECT h.id FROM {claims} c, JSON_TABLE(c.message_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) h`

// mariaCandidates finds what is due, and locks nothing: two claimers may find the
// same.
const mariaCandidates = `
(SELECT ? AS i, m.id, m.available_after FROM {messages} m FORCE INDEX ({prefix}consumer_messages_due)
WHERE m.crashes = 0 AND m.consumer_type = ? AND m.payload_type IN (?) AND m.available_after <= {now}
  AND m.available_after >= ? AND (m.available_after > ? OR m.id > ?) AND m.id NOT IN (` + mariaHeld + `)
  AND NOT EXISTS (SELECT 1 FROM {paused} WHERE consumer_type = ?)
ORDER BY m.available_after, m.id LIMIT ?)`

// mariaCandidatesCrashed does so for messages that have crashed.
const mariaCandidatesCrashed = `
SELECT 0 AS i, m.id, m.available_after FROM {messages} m FORCE INDEX ({prefix}consumer_messages_due)
WHERE m.crashes BETWEEN ? AND ? AND (m.consumer_type, m.payload_type) IN (?) AND m.available_after <= {now}
  AND m.id NOT IN (` + mariaHeld + `) AND m.consumer_type NOT IN (` + pausedNames + `)
ORDER BY m.available_after, m.id LIMIT ?`

// mariaPick locks those of them that nobody else has locked, and sees their
// newest versions, which may not be due any more. It is immutable.
var mariaPick = `
SELECT ` + pickColumns("OCTET_LENGTH(%s)") + ` FROM {ids} {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id
WHERE m.crashes BETWEEN ? AND ? AND m.available_after <= {now} FOR UPDATE SKIP LOCKED`

// mariaTaken reads which of the picks are in a claim, and once more what is paused.
// Nobody can claim them once they are locked, and what was committed before that this
// statement sees. A pause that came while candidates were looked for it sees, too.
const mariaTaken = `SELECT h.id, '' AS paused FROM (` + mariaHeld + `) h WHERE h.id IN (?)
UNION ALL SELECT 0, p.consumer_type FROM {paused} p`

const mariaRecord = `INSERT INTO {claims} (owner, solo, claimed_at, leased_until, message_ids) VALUES (?, ?, {now}, {now} + ?, ?)`

func (m *mariadb) claim(ctx context.Context, db *bun.DB, r ClaimRequest) (c Claim, err error) {
	err = InTx(ctx, db, func(tx bun.Tx) error {
		picks, err := m.pick(ctx, tx, r)
		if err != nil {
			return fmt.Errorf("pick: %w", err)
		}
		if c, picks = r.keep(picks); len(picks) == 0 {
			return nil
		}
		if err := m.record(ctx, tx, r, &c, picks); err != nil {
			return fmt.Errorf("record: %w", err)
		}
		return nil
	})
	if err != nil {
		return Claim{}, err
	}
	return c, nil
}

// record claims those picks that are still free.
func (m *mariadb) record(ctx context.Context, tx bun.Tx, r ClaimRequest, c *Claim, picks []pick) error {
	var found []struct {
		ID     int64
		Paused string
	}
	if err := m.raw(ctx, tx, mariaTaken, bun.List(pickedIDs(picks))).Scan(ctx, &found); err != nil {
		return fmt.Errorf("look for claims: %w", err)
	}
	taken, paused := make(map[int64]bool), make(map[string]bool)
	for _, f := range found {
		taken[f.ID], paused[f.Paused] = true, true
	}
	var free []int64
	for _, p := range picks {
		if !taken[p.ID] && !paused[p.ConsumerType] {
			free = append(free, p.ID)
		}
	}
	if len(free) == 0 {
		return nil
	}
	c.Sent = time.Now()
	res, err := m.raw(ctx, tx, mariaRecord, r.Owner, r.Solo, r.Lease.Microseconds(), asJSON(free)).Exec(ctx)
	if err != nil {
		return err
	}
	if c.ID, err = res.LastInsertId(); err != nil {
		return err
	}
	return m.take(ctx, tx, c, picks, free)
}

// candidate is a message that was found, before it is locked.
type candidate struct {
	Want           int    `bun:"i"`
	ID             int64  `bun:"id"`
	AvailableAfter Moment `bun:"available_after"`
}

// maxPickRounds bounds how often a claimer looks behind what others have locked.
const maxPickRounds = 8

func (m *mariadb) pick(ctx context.Context, tx bun.Tx, r ClaimRequest) (picks []pick, err error) {
	if r.Select != Clean {
		low, high := r.Select.crashes()
		var found []candidate
		if err := m.raw(ctx, tx, mariaCandidatesCrashed, low, high, wantedPairs(r.Wants), r.Limit).Scan(ctx, &found); err != nil {
			return nil, err
		}
		return m.lockPicks(ctx, tx, r, found)
	}
	places := make([]place, 0, len(r.Wants))
	for i, w := range r.Wants {
		places = append(places, place{i: i, missing: w.Limit, at: w.After})
	}
	for range maxPickRounds {
		if places = slices.DeleteFunc(places, func(p place) bool { return p.missing <= 0 }); len(places) == 0 {
			break
		}
		found, err := m.candidates(ctx, tx, r, places)
		if err != nil {
			return nil, err
		}
		locked, err := m.lockPicks(ctx, tx, r, found)
		if err != nil {
			return nil, err
		}
		picks = append(picks, locked...)
		for i := range places {
			places[i].advance(found, locked)
		}
	}
	return picks, nil
}

// place is how far a pick has come with one want.
type place struct {
	i       int // of the want
	missing int
	at      Position
}

// advance goes on behind what was found. Where less was found than looked for
// there is no more.
func (p *place) advance(found []candidate, locked []pick) {
	n := 0
	for _, c := range found {
		if c.Want == p.i {
			n++
			p.at = Position{At: c.AvailableAfter.Time, ID: c.ID}
		}
	}
	if n < p.missing {
		p.missing = 0
		return
	}
	for _, l := range locked {
		if l.Want == p.i {
			p.missing--
		}
	}
}

func (m *mariadb) candidates(ctx context.Context, tx bun.Tx, r ClaimRequest, places []place) (found []candidate, err error) {
	var args []any
	for _, p := range places {
		w := r.Wants[p.i]
		after := int64(math.MinInt64)
		if !p.at.At.IsZero() {
			after = p.at.At.UnixMicro()
		}
		args = append(args, p.i, w.Consumer, bun.List(w.payloads()), after, after, p.at.ID, w.Consumer, p.missing)
	}
	statement := strings.Repeat(" UNION ALL "+mariaCandidates, len(places))
	err = m.raw(ctx, tx, strings.TrimPrefix(statement, " UNION ALL "), args...).Scan(ctx, &found)
	return found, err
}

// lockPicks locks candidates, in the order in which they were found.
func (m *mariadb) lockPicks(ctx context.Context, tx bun.Tx, r ClaimRequest, found []candidate) (picks []pick, err error) {
	if len(found) == 0 {
		return nil, nil
	}
	ids, order := make([]int64, len(found)), make(map[int64]int, len(found))
	for i, c := range found {
		ids[i], order[c.ID] = c.ID, i
	}
	low, high := r.Select.crashes()
	if err := m.raw(ctx, tx, mariaPick, asJSON(ids), low, high).Scan(ctx, &picks); err != nil {
		return nil, err
	}
	for i := range picks {
		picks[i].Want = found[order[picks[i].ID]].Want
	}
	slices.SortFunc(picks, func(a, b pick) int { return order[a.ID] - order[b.ID] })
	return picks, nil
}

// mariaProbe asks one question for each want, and one for all.
const (
	mariaProbeDue = `(SELECT 0 AS kind, ? AS value FROM {messages} m FORCE INDEX ({prefix}consumer_messages_due)
  WHERE m.crashes = 0 AND m.consumer_type = ? AND m.payload_type IN (?) AND m.available_after <= {now}
    AND m.id NOT IN (` + mariaHeld + `) AND NOT EXISTS (SELECT 1 FROM {paused} WHERE consumer_type = ?)
  ORDER BY m.available_after, m.id LIMIT 1)
UNION ALL `
	mariaProbeCrashed = `SELECT DISTINCT LEAST(m.crashes, 2), 0 FROM {messages} m FORCE INDEX ({prefix}consumer_messages_due)
  WHERE m.crashes > 0 AND (m.consumer_type, m.payload_type) IN (?) AND m.available_after <= {now}
    AND m.id NOT IN (` + mariaHeld + `) AND m.consumer_type NOT IN (` + pausedNames + `)
UNION ALL SELECT 3, 0 FROM DUAL WHERE EXISTS (SELECT 1 FROM {claims} WHERE leased_until < {now})
UNION ALL SELECT 4, MIN(due) - {now} FROM (`
	mariaProbeNext = `SELECT (SELECT MIN(m.available_after) FROM {messages} m WHERE m.crashes = 0 AND m.consumer_type = ?
  AND m.available_after > {now}) AS due FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM {paused} WHERE consumer_type = ?)`
	mariaProbeEnd = `) n HAVING MIN(due) IS NOT NULL`
)

func (m *mariadb) probe(ctx context.Context, db bun.IDB, wants []Want) (Probe, error) {
	if len(wants) == 0 {
		wants = []Want{{}} // nobody's messages: the other questions stay
	}
	var statement strings.Builder
	var args []any
	for i, w := range wants {
		statement.WriteString(mariaProbeDue)
		args = append(args, i, w.Consumer, bun.List(w.payloads()), w.Consumer)
	}
	statement.WriteString(mariaProbeCrashed)
	args = append(args, wantedPairs(wants))
	for i, w := range wants {
		if i > 0 {
			statement.WriteString("\n  UNION ALL ")
		}
		statement.WriteString(mariaProbeNext)
		args = append(args, w.Consumer, w.Consumer)
	}
	statement.WriteString(mariaProbeEnd)
	var found []finding
	err := m.raw(ctx, db, statement.String(), args...).Scan(ctx, &found)
	return newProbe(found), err
}

// wantedPairs lists the kinds of messages that are wanted, for (a, b) IN (?).
func wantedPairs(wants []Want) any {
	consumers, payloads := kinds(wants)
	pairs := make([]bun.TupleValues, len(consumers))
	for i := range pairs {
		pairs[i] = bun.Tuple([]string{consumers[i], payloads[i]})
	}
	return bun.List(pairs)
}

// mariaStrangers looks for foreign payload types among the oldest messages of a
// consumer type.
const mariaStrangers = `(SELECT DISTINCT ? AS consumer_type, payload_type FROM (
  SELECT m.payload_type FROM {messages} m FORCE INDEX ({prefix}consumer_messages_due) WHERE m.crashes = 0 AND m.consumer_type = ?
  ORDER BY m.available_after, m.id LIMIT 100) m)`

// The next name behind one: with constants these are looked up at the edge of an
// index, where a recursive query would read all of it for each name.
const (
	mariaNextClean    = `SELECT MIN(consumer_type) FROM {messages} WHERE crashes = 0 AND consumer_type > ?`
	mariaNextCrashed  = `SELECT MIN(consumer_type) FROM {messages} WHERE crashes > 0 AND consumer_type > ?`
	mariaNextPoisoned = `SELECT MIN(consumer_type) FROM {poisoned} WHERE consumer_type > ?`
)

// types walks the distinct consumer types from one to the next.
func (m *mariadb) types(ctx context.Context, db bun.IDB, next string) (names []string, err error) {
	for last := ""; ; {
		var name sql.NullString
		if err := m.raw(ctx, db, next, last).Scan(ctx, &name); err != nil || !name.Valid {
			return names, err
		}
		last = name.String
		names = append(names, last)
	}
}

func (m *mariadb) storedConsumers(ctx context.Context, db bun.IDB) (names []string, err error) {
	for _, next := range []string{mariaNextClean, mariaNextCrashed, mariaNextPoisoned} {
		found, err := m.types(ctx, db, next)
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	return slices.Compact(slices.Sorted(slices.Values(names))), nil
}

func (m *mariadb) strangers(ctx context.Context, db bun.IDB, wants []Want) (found []Stranger, err error) {
	types, err := m.types(ctx, db, mariaNextClean)
	if err != nil || len(types) == 0 {
		return nil, err
	}
	var args []any
	for _, name := range types {
		args = append(args, name, name)
	}
	statement := strings.TrimPrefix(strings.Repeat(" UNION ALL "+mariaStrangers, len(types)), " UNION ALL ")
	if err := m.raw(ctx, db, statement+" ORDER BY 1, 2", args...).Scan(ctx, &found); err != nil {
		return nil, err
	}
	wanted := make(map[Stranger]bool)
	consumers, payloads := kinds(wants)
	for i := range consumers {
		wanted[Stranger{consumers[i], payloads[i]}] = true
	}
	found = slices.DeleteFunc(found, func(s Stranger) bool { return wanted[s] })
	return found[:min(len(found), 20)], nil
}

// lastID is the first id of the rows that an insert has written.
func lastID(res sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}
