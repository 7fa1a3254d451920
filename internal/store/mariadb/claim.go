package mariadb

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// dueSQL finds due messages, held or not, and locks nothing: two claims may find the same.
const dueSQL = `
(SELECT ? AS i, m.id, m.available_after, NULL AS held FROM {messages} m FORCE INDEX ({prefix}consumer_messages_due)
WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type = ? AND m.payload_type = ? AND m.available_after <= {now}
  AND (m.available_after > ? OR (m.available_after = ? AND m.id > ?)) AND NOT EXISTS (SELECT 1 FROM {paused} WHERE consumer_type = ?)
ORDER BY m.available_after, m.id LIMIT ?)`

// listsSQL reads all claimed ids once, to leave them out in Go. A condition in dueSQL would make
// the server parse the lists for each want.
const listsSQL = ` UNION ALL SELECT -1, id, 0, message_ids FROM {claims}`

// candidatesCrashedSQL finds crashed messages.
const candidatesCrashedSQL = `
SELECT 0 AS i, m.id, m.available_after FROM {messages} m FORCE INDEX ({prefix}consumer_messages_due)
WHERE m.keyed = FALSE AND m.crashes BETWEEN ? AND ? AND (m.consumer_type, m.payload_type) IN (?) AND m.available_after <= {now}
  AND m.id NOT IN (` + heldSQL + `) AND m.consumer_type NOT IN (` + dialect.PausedNames + `)
ORDER BY m.available_after, m.id LIMIT ?`

// pickSQL locks those of them that are not locked, and sees their newest versions, which may not be
// due any more. It is immutable.
var pickSQL = `
SELECT ` + dialect.PickColumns("OCTET_LENGTH(%s)") + ` FROM {ids} {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id
WHERE m.keyed = FALSE AND m.crashes BETWEEN ? AND ? AND m.available_after <= {now} FOR UPDATE SKIP LOCKED`

// takenSQL reads which of the picks are in a claim, and again what is paused. Once locked they
// cannot be claimed, and this statement sees what was committed before. It also sees a pause that
// came while candidates were looked for. No id gets into two claims because InnoDB makes a commit
// visible before it releases row locks. Only the server's source documents that order.
const takenSQL = `SELECT h.id, '' AS paused FROM (` + heldSQL + `) h WHERE h.id IN (?)
UNION ALL SELECT 0, p.consumer_type FROM {paused} p`

const recordSQL = `INSERT INTO {claims} (owner, solo, claimed_at, leased_until, leased_for, message_ids) VALUES (?, ?, {now}, {now} + ?, ?, ?)`

func (m *database) Claim(ctx context.Context, db *bun.DB, r dialect.ClaimRequest) (c dialect.Claim, err error) {
	if r.Lanes != nil {
		return m.ClaimKeyed(ctx, db, r)
	}
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		rated, err := m.Rated(ctx, tx, r)
		if err != nil {
			return err
		}
		var picks []dialect.Pick
		if !rated.Spent {
			if picks, err = m.pick(ctx, tx, rated.ClaimRequest); err != nil {
				return fmt.Errorf("pick: %w", err)
			}
		}
		if c, picks = rated.Trim(picks); len(picks) == 0 {
			return rated.Spend(ctx, tx, c)
		}
		if err := m.record(ctx, tx, r, &c, picks); err != nil {
			return fmt.Errorf("record: %w", err)
		}
		return rated.Spend(ctx, tx, c)
	})
	return c, err
}

// record claims those picks that are still free.
func (m *database) record(ctx context.Context, tx bun.Tx, r dialect.ClaimRequest, c *dialect.Claim, picks []dialect.Pick) error {
	var found []struct {
		ID     int64
		Paused string
	}
	if err := m.Query(ctx, tx, takenSQL, bun.List(dialect.PickedIDs(picks))).Scan(ctx, &found); err != nil {
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
	res, err := m.Query(ctx, tx, recordSQL, r.Owner, r.Solo, r.Lease.Microseconds(), r.Lease.Microseconds(), dialect.AsJSON(free)).Exec(ctx)
	if err != nil {
		return err
	}
	if c.ID, err = res.LastInsertId(); err != nil {
		return err
	}
	return m.Take(ctx, tx, c, picks, free)
}

// candidate is a message found but not yet locked, or the list of a claim.
type candidate struct {
	Want           int            `bun:"i"` // -1: a list
	ID             int64          `bun:"id"`
	AvailableAfter dialect.Moment `bun:"available_after"`
	Held           dialect.IDList `bun:"held"`
}

// look is the progress of a look for messages of one want.
type look struct {
	want    int
	missing int
	limit   int // how many to look at next; 0 at the end
	at      dialect.Position
}

// minLook is how many messages a first look covers. Behind held or locked messages each look covers
// twice as many as the one before, until the end.
const minLook = 16

func (m *database) pick(ctx context.Context, tx bun.Tx, r dialect.ClaimRequest) (picks []dialect.Pick, err error) {
	if r.Select != dialect.Clean {
		return m.pickCrashed(ctx, tx, r)
	}
	var looks []look
	for i, w := range r.Wants {
		looks = append(looks, look{want: i, missing: w.Limit, limit: max(w.Limit, minLook), at: w.After})
	}
	var held map[int64]bool
	for {
		if looks = slices.DeleteFunc(looks, look.over); len(looks) == 0 {
			return picks, nil
		}
		var found []candidate
		if found, held, err = m.candidates(ctx, tx, r.Wants, looks, held); err != nil {
			return nil, err
		}
		var free []candidate
		for i := range looks {
			free = append(free, looks[i].advance(found, held)...)
		}
		locked, err := m.lockPicks(ctx, tx, r, free)
		if err != nil {
			return nil, err
		}
		picks = append(picks, locked...)
		for _, p := range locked {
			looks[slices.IndexFunc(looks, func(l look) bool { return l.want == p.Want })].missing--
		}
	}
}

// pickCrashed looks from the start each time: crashed messages are few.
func (m *database) pickCrashed(ctx context.Context, tx bun.Tx, r dialect.ClaimRequest) (picks []dialect.Pick, err error) {
	if len(r.Wants) == 0 {
		return nil, nil
	}
	low, high := r.Select.Crashes()
	tried := make(map[int64]bool)
	for limit := r.Limit; ; limit *= 2 {
		var found []candidate
		if err := m.Query(ctx, tx, candidatesCrashedSQL, low, high, wantedPairs(r.Wants), limit).Scan(ctx, &found); err != nil {
			return nil, err
		}
		exhausted := len(found) < limit
		found = slices.DeleteFunc(found, func(c candidate) bool { return tried[c.ID] })
		found = found[:min(len(found), r.Limit-len(picks))]
		for _, c := range found {
			tried[c.ID] = true
		}
		locked, err := m.lockPicks(ctx, tx, r, found)
		if err != nil {
			return nil, err
		}
		if picks = append(picks, locked...); exhausted || len(picks) >= r.Limit {
			return picks, nil
		}
	}
}

func (l look) over() bool { return l.missing <= 0 || l.limit <= 0 }

// advance returns free candidates, as many as are missing, and moves on behind them.
func (l *look) advance(found []candidate, held map[int64]bool) (free []candidate) {
	seen := 0
	for _, c := range found {
		switch {
		case c.Want != l.want:
			continue
		case len(free) == l.missing:
			return free
		case !held[c.ID]:
			free = append(free, c)
		}
		seen++
		l.at = dialect.Position{At: c.AvailableAfter.Time, ID: c.ID}
	}
	if seen < l.limit {
		l.limit = 0
	}
	l.limit *= 2
	return free
}

// candidates looks for messages and returns those of each want in the order in which they are due.
// It reads what is held unless that is known. record finds out what has changed since.
func (m *database) candidates(
	ctx context.Context, db bun.IDB, wants []dialect.Want, looks []look, known map[int64]bool,
) (found []candidate, held map[int64]bool, err error) {
	statement, args := m.due(wants, looks)
	if known == nil {
		statement += listsSQL
	}
	if err := m.Query(ctx, db, statement, args...).Scan(ctx, &found); err != nil || known != nil {
		return found, known, err
	}
	held = make(map[int64]bool)
	for _, c := range found {
		for _, id := range c.Held {
			held[id] = true
		}
	}
	return found, held, nil
}

// due returns dueSQL for each look.
func (m *database) due(wants []dialect.Want, looks []look) (statement string, args []any) {
	for _, l := range looks {
		w := wants[l.want]
		after := l.at.Micros()
		args = append(args, l.want, w.Consumer, w.Payload, after, after, l.at.ID, w.Consumer, l.limit)
	}
	return unionAll(dueSQL, len(looks)), args
}

// lockPicks locks candidates, in the order in which they were found.
func (m *database) lockPicks(ctx context.Context, tx bun.Tx, r dialect.ClaimRequest, found []candidate) (picks []dialect.Pick, err error) {
	if len(found) == 0 {
		return nil, nil
	}
	ids, order := make([]int64, len(found)), make(map[int64]int, len(found))
	for i, c := range found {
		ids[i], order[c.ID] = c.ID, i
	}
	low, high := r.Select.Crashes()
	if err := m.Query(ctx, tx, pickSQL, dialect.AsJSON(ids), low, high).Scan(ctx, &picks); err != nil {
		return nil, err
	}
	for i := range picks {
		picks[i].Want = found[order[picks[i].ID]].Want
	}
	slices.SortFunc(picks, func(a, b dialect.Pick) int { return order[a.ID] - order[b.ID] })
	return picks, nil
}
