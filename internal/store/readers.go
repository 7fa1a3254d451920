package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Subscription is the position of one shard of one version of a reader of the log.
type Subscription struct {
	Name        string `bun:"name"`
	Version     int    `bun:"version"`
	Shard       int    `bun:"shard"`
	Shards      int    `bun:"shards"`
	Filter      string `bun:"filter"` // what the reader selects: a hash, or a relay's types as JSON
	Position    int64  `bun:"position"`
	ReplayUntil int64  `bun:"replay_until"` // up to here an earlier run or version has passed everything
	Status      string `bun:"status"`
	Attempts    int    `bun:"attempts"` // failed, at the event after Position
	LastError   string `bun:"last_error"`
	Mark        int64  `bun:"mark"` // the broker's revision of the last published record
	Head        int64  `bun:"head"` // of the log

	// Only [ReaderStore.All] fills in these.
	NextAt  dialect.Moment `bun:"next_at"`
	MovedAt dialect.Moment `bun:"moved_at"`
	Active  int            `bun:"active"` // the version in use, 0 if none

	// Session is the locked session, set by [ReaderStore.Lock].
	dialect.Session `bun:",extend"`
}

// The states of a subscription.
const (
	Running = "running"
	Halted  = "halted"  // until it is resumed
	Retired = "retired" // another version has replaced it
)

const readSubscriptions = `SELECT name, version, shard, shards, filter, position, replay_until, status, attempts, last_error, mark, {last} AS head
FROM {subscriptions} WHERE name = ? ORDER BY version, shard`

// All returns the shards of all readers. Receivers into the log are left out: their rows record
// which process receives.
func (s *ReaderStore) All(ctx context.Context, db bun.IDB, limit int) ([]Subscription, error) {
	return read[[]Subscription](
		ctx,
		s.tables,
		db,
		`SELECT s.name, s.version, s.shard, s.shards, s.filter, s.position, s.replay_until, s.status, s.attempts, s.last_error, s.mark, {last} AS head,
	s.next_at, s.moved_at, (SELECT p.active_version FROM {projections} p WHERE p.name = s.name) AS active
FROM {subscriptions} s WHERE s.name NOT LIKE 'receive:%' ORDER BY s.name, s.version, s.shard LIMIT ?`,
		limit,
	)
}

// Subscribe adds a subscription's shards unless they exist, in a transaction of the caller.
func (s *ReaderStore) Subscribe(ctx context.Context, tx bun.Tx, sub Subscription) error {
	if err := s.dialect.AdvisoryLock(ctx, tx, "subscribe "+sub.Name, true); err != nil {
		return err
	}
	if err := s.WriteFirst(ctx, tx); err != nil {
		return err
	}
	old, err := s.List(ctx, tx, sub.Name)
	if err != nil || slices.ContainsFunc(old, func(row Subscription) bool { return row.Version == sub.Version }) {
		return err
	}
	for shard := range sub.Shards {
		from, to := SlotsOf(shard, sub.Shards)
		until := max(sub.ReplayUntil, passed(old, from, to))
		err := s.names.Exec(ctx, tx, enterSubscription, sub.Name, sub.Version, shard, sub.Shards, sub.Filter, sub.Position, until, Running)
		if err != nil {
			return fmt.Errorf("enter subscription: %w", err)
		}
		if len(old) == 0 {
			continue
		}
		err = s.names.Exec(ctx, tx, inheritParked, sub.Version, sub.Name, sub.Version, until, from, to, sub.Version, Slots, Slots)
		if err != nil {
			return fmt.Errorf("inherit parked events: %w", err)
		}
	}
	return nil
}

// passed returns the last position up to which one version has passed all events of a range of slots. A
// version that starts again has passed them before.
func passed(old []Subscription, from, to int) (last int64) {
	least := map[int]int64{} // by version
	for _, row := range old {
		if first, end := SlotsOf(row.Shard, row.Shards); first >= to || end <= from {
			continue
		}
		position := max(row.Position, row.ReplayUntil)
		if least, ok := least[row.Version]; ok {
			position = min(position, least)
		}
		least[row.Version] = position
	}
	for _, position := range least {
		last = max(last, position)
	}
	return last
}

const enterSubscription = `INSERT INTO {subscriptions} (name, version, shard, shards, filter, position, replay_until, status, next_at, moved_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, {now}, {now}) ON CONFLICT (name, version, shard) DO NOTHING`

// List returns all shards of all versions of a reader.
func (s *ReaderStore) List(ctx context.Context, db bun.IDB, name string) ([]Subscription, error) {
	return read[[]Subscription](ctx, s.tables, db, readSubscriptions, name)
}

const behindSubscriptions = `SELECT '' AS name, 0 AS version, 0 AS shard WHERE EXISTS (SELECT 1 FROM {events} e WHERE {unplaced})
UNION ALL SELECT name, version, shard FROM {subscriptions} WHERE status = ? AND next_at <= {now} AND position < {last} AND name IN (?)`

// Behind returns the shards of the named readers that have something to read. pending reports
// whether there are events to number first.
func (s *ReaderStore) Behind(ctx context.Context, db bun.IDB, names []string) (rows []Subscription, pending bool, err error) {
	if len(names) == 0 {
		names = []string{""}
	}
	rows, err = read[[]Subscription](ctx, s.tables, db, behindSubscriptions, Running, bun.List(names))
	if len(rows) > 0 && rows[0].Name == "" {
		return rows[1:], true, nil
	}
	return rows, false, err
}

const unnumbered = `SELECT count(*) AS n FROM (SELECT 1 FROM {events} e WHERE {unplaced} LIMIT ?) u`

// Unnumbered counts events without a place, up to a limit.
func (s *ReaderStore) Unnumbered(ctx context.Context, db bun.IDB, limit int) (int64, error) {
	return read[int64](ctx, s.tables, db, unnumbered, limit)
}

const lockSubscription = `SELECT name, version, shard, shards, filter, position, replay_until, status, attempts, last_error{session}
FROM {subscriptions} WHERE name = ? AND version = ? AND shard = ? AND status = ? AND next_at <= {now} {lock free}`

// Lock locks a shard until the end of the transaction, in which only this process reads
// and applies its events. It returns false if another process has the shard, or if it must not run
// now. idle bounds how long the server keeps the transaction open without a statement, in case this
// process vanishes.
func (s *ReaderStore) Lock(
	ctx context.Context, tx bun.Tx, name string, version, shard int, idle time.Duration,
) (Subscription, bool, error) {
	if err := s.WriteFirst(ctx, tx); err != nil {
		return Subscription{}, false, err
	}
	text := strings.ReplaceAll(s.names.Expand(lockSubscription), "{idle}", strconv.FormatInt(idle.Milliseconds(), 10))
	var rows []struct {
		Subscription `bun:",extend"`
		Idle         string
	}
	if err := s.names.Query(ctx, tx, text, name, version, shard, Running).Scan(ctx, &rows); err != nil {
		return Subscription{}, false, fmt.Errorf("lock subscription: %w", err)
	}
	if len(rows) == 0 {
		return Subscription{}, false, nil
	}
	if s.names.Fence != "" {
		if err := s.names.Exec(ctx, tx, s.names.Fence); err != nil {
			return Subscription{}, false, fmt.Errorf("fence: %w", err)
		}
	}
	return rows[0].Subscription, true, nil
}

// Session returns the session of the transaction. idle bounds how long the server keeps it open
// without a statement, in case this process vanishes.
func (s *ReaderStore) Session(ctx context.Context, tx bun.Tx, idle time.Duration) (dialect.Session, error) {
	var row struct {
		dialect.Session `bun:",extend"`
		Idle            string
		One             int
	}
	text := strings.ReplaceAll(s.names.Expand(`SELECT 1 AS one{session}`), "{idle}", strconv.FormatInt(idle.Milliseconds(), 10))
	if err := s.names.Query(ctx, tx, text).Scan(ctx, &row); err != nil {
		return dialect.Session{}, fmt.Errorf("session: %w", err)
	}
	return row.Session, nil
}

const moveSubscription = `UPDATE {subscriptions} SET position = ?, attempts = 0, last_error = NULL, moved_at = {now}
WHERE name = ? AND version = ? AND shard = ? AND position = ? AND status = ?`

// Move moves a locked shard to another position. It runs with the role and search_path
// that its transaction began with, see [ClaimStore.Remove], and so do later statements. It returns false
// if another process has moved the shard, or if the transaction is not the one that has locked it.
func (s *ReaderStore) Move(ctx context.Context, tx bun.Tx, sub Subscription, to int64) (bool, error) {
	before, args := s.names.AsBegun(sub.Session)
	args = append(args, to, sub.Name, sub.Version, sub.Shard, sub.Position, Running)
	text := before + moveSubscription
	if before != "" {
		text, args = text+" AND "+s.names.StillBegun, append(args, sub.Begun)
	}
	return s.names.ChangedOne(ctx, tx, text, args...)
}

// Failure is the record of a shard that could not go on.
type Failure struct {
	Status   string
	Attempts int
	Delay    time.Duration
	Error    string
}

// Fail records that a shard could not go on from its position.
func (s *ReaderStore) Fail(ctx context.Context, db bun.IDB, sub Subscription, f Failure) error {
	_, err := s.FailLeased(ctx, db, sub, "", f)
	return err
}

// LockAll locks all shards of one version, or of all versions for 0. It waits for other
// transactions that have them.
func (s *ReaderStore) LockAll(ctx context.Context, tx bun.Tx, name string, version int) ([]Subscription, error) {
	if err := s.WriteFirst(ctx, tx); err != nil {
		return nil, err
	}
	var locked []int
	if err := s.names.Query(ctx, tx, `SELECT shard FROM {subscriptions} WHERE name = ? ORDER BY version, shard {lock}`, name).Scan(ctx, &locked); err != nil {
		return nil, fmt.Errorf("lock subscriptions: %w", err)
	}
	all, err := s.List(ctx, tx, name)
	return slices.DeleteFunc(all, func(row Subscription) bool { return version != 0 && row.Version != version }), err
}

// Rewind starts one version of a reader again. Events that a shard has passed before are replays, except
// those that were parked instead of applied.
func (s *ReaderStore) Rewind(ctx context.Context, tx bun.Tx, name string, version int) error {
	err := s.names.Exec(ctx, tx, `UPDATE {subscriptions} SET replay_until = CASE WHEN position > replay_until THEN position ELSE replay_until END,
position = 0, mark = ?, status = ?, attempts = 0, last_error = NULL, next_at = {now}, moved_at = {now} WHERE name = ? AND version = ?`, Rewound, Running, name, version)
	if err == nil {
		err = s.names.Exec(ctx, tx, `DELETE FROM {parked} WHERE name = ? AND version = ? AND replay`, name, version)
	}
	if err == nil {
		err = s.names.Exec(ctx, tx, `UPDATE {parked} SET parked_at = NULL WHERE name = ? AND version = ?`, name, version)
	}
	return err
}

// Resume restarts halted shards of one version and returns how many there were.
func (s *ReaderStore) Resume(ctx context.Context, db bun.IDB, name string, version int) (int, error) {
	return s.changed(ctx, db, `UPDATE {subscriptions} SET status = ?, attempts = 0, next_at = {now} WHERE name = ? AND version = ? AND status = ?`,
		Running, name, version, Halted)
}

// Activate makes one version of a reader the active one and retires older ones.
func (s *ReaderStore) Activate(ctx context.Context, tx bun.Tx, name string, version int) error {
	err := s.names.Exec(ctx, tx, `INSERT INTO {projections} (name, active_version) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET active_version = EXCLUDED.active_version`, name, version)
	if err == nil {
		err = s.names.Exec(ctx, tx, `UPDATE {subscriptions} SET status = ? WHERE name = ? AND version < ?`, Retired, name, version)
	}
	return err
}

// Active returns the active version of a reader, or false if there never was one.
func (s *ReaderStore) Active(ctx context.Context, db bun.IDB, name string) (int, bool, error) {
	return first[int](ctx, s.tables, db, `SELECT active_version FROM {projections} WHERE name = ?`, name)
}
