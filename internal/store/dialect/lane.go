package dialect

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"
)

// Lane returns the number that the messages of one key share. Two keys may share one, which is
// slower but never wrong. It is a hash that cannot be aimed at another's key, and not 0, which is
// no lane.
func Lane(key string) int64 {
	sum := sha256.Sum256([]byte(key))
	return max(int64(binary.BigEndian.Uint64(sum[:])>>1), 1)
}

// Lanes asks for messages of a keyed consumer under one of its names. Messages of an ordered lane
// are taken from its first one on. Hint, Cursor and Sticky only propose lanes: a wrong one costs
// only time.
type Lanes struct {
	Source
	Run    int           // how many messages of one lane at most
	Hint   int64         // the rank behind which to look
	Cursor int64         // the lane behind which to walk, if there is little behind the hint
	Sticky []int64       // lanes that may have more
	Walk   bool          // the last look found nothing
	Look   int           // at least this many messages to look at
	Unused map[int64]int // by lane: messages that a key rate counted and that did not start
}

// LaneNews is what a claim of lanes found out for the next one.
type LaneNews struct {
	First  int64 // the rank of the first message of a free lane; 0: none
	Full   bool  // there may be more to look at behind the hint
	Last   int64 // the rank up to which it looked; 0: none
	Left   bool  // it saw messages and did not take them
	Walked int64 // how far it walked; 0: not at all, or to the end
	// Spent are lanes from which it took as much as their rates allow.
	Spent []SpentLane
	// Wait is how long the spent rates of all keys allow no more; zero: none is spent.
	Wait    time.Duration
	Unknown string  // the payload type of a first message that the consumer does not accept
	Deep    []int64 // lanes from which it took as much as it asked for
}

// SpentLane is a lane that may have more messages than its rate allows, and how long until the rate
// allows the next one.
type SpentLane struct {
	Lane int64
	Wait time.Duration
}

var lanesParts = regexp.MustCompile(`«[^»]*»`) // immutable

// WithLanes returns a statement with its parts for messages with keys, which stand between « and ».
func WithLanes(statement string) string {
	return strings.NewReplacer("«", "", "»", "").Replace(statement)
}

// WithoutLanes returns the statement without these parts.
func WithoutLanes(statement string) string { return lanesParts.ReplaceAllString(statement, "") }

// IfLanes is [WithLanes] or [WithoutLanes].
func IfLanes(statement string, lanes bool) string {
	if lanes {
		return WithLanes(statement)
	}
	return WithoutLanes(statement)
}

// OfLanes reports whether some of the results are for messages with keys.
func OfLanes(results []Result) bool {
	return slices.ContainsFunc(results, func(r Result) bool { return r.Lane != 0 })
}

// LaneDialect is what differs between databases for lanes.
type LaneDialect interface {
	// Run prepares one of the statements for lanes.
	Run(ctx context.Context, statement string, args ...any) *bun.RawQuery
	// Heads picks the first messages, at most each, of those lanes that are free, in the order of
	// the lanes and their ranks.
	Heads(ctx context.Context, l *Lanes, lanes []int64, each int) ([]LanePick, error)
	// Record records a claim of the picks.
	Record(ctx context.Context, r ClaimRequest, picks []LanePick) (id int64, err error)
	// Walk returns the next lanes behind the cursor, and whether there may be more.
	Walk(ctx context.Context, tx bun.IDB, l *Lanes) (lanes []Walked, more bool, err error)
}

// Walked is a lane that a walk has passed.
type Walked struct {
	Lane int64
	Free bool // it is not held
}

// LanePick is a found message of a lane.
type LanePick struct {
	Pick `bun:",extend"`
	Due  bool `bun:"due"`
}

// stuck is true for a message m that has crashed, is due and, in order, is the first of its lane.
const stuck = `m.consumer_type = ? AND m.keyed = TRUE AND m.crashes > 0 AND m.available_after <= {now}{first}
  AND NOT EXISTS (SELECT 1 FROM {paused} u WHERE u.consumer_type = m.consumer_type){loose}`

// LaneLook asks whether there are messages to claim for a keyed consumer.
type LaneLook struct {
	Source
	After   int64 // the rank behind which to look
	Blocked bool  // ask for a message that may run: the last claims found only others. In order only.
}

// LaneState is a result of one of the looks. Without Crashes or Next there are messages, which may
// or may not run, unless the look was for those that may. With Crashes of 1 or 2, some due messages
// crashed once, or more often. Next is the microseconds until the next message is due.
type LaneState struct {
	Look    int   `bun:"look"`
	Crashes int   `bun:"crashes"`
	Next    int64 `bun:"next"`
}

// Wait is the time until the next message is due, or 0.
func (s LaneState) Wait() time.Duration { return wait(s.Next) }

// wait converts microseconds, of which there may be more than a Duration can hold.
func wait(micros int64) time.Duration {
	const longest = 365 * 24 * time.Hour
	return time.Duration(min(micros, longest.Microseconds())) * time.Microsecond
}

const (
	laneExists = `SELECT ? AS look, 0 AS crashes, 0 AS next{from nothing} WHERE (SELECT m.rank FROM {by rank} m WHERE m.consumer_type = ? AND m.keyed = TRUE AND m.rank > ?{loose} ORDER BY m.rank LIMIT 1) IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM {paused} u WHERE u.consumer_type = ?)`
	// laneRuns is in place of laneExists. There is such a message if the first one of a lane may run,
	// or if there are too many lanes to look at all of them.
	laneRuns = `SELECT ? AS look, 0 AS crashes, 0 AS next{from nothing} WHERE EXISTS (SELECT 1 FROM ({first lanes}) w WHERE w.more OR (
  SELECT m.available_after <= {now} AND m.crashes = 0 AND m.payload_type IN (?) AND {free}
  FROM {head of lane} m WHERE m.consumer_type = ? AND m.lane = w.lane AND m.lane IS NOT NULL ORDER BY m.lane, m.rank LIMIT 1))`
	laneStuck = `SELECT DISTINCT ? AS look, CASE WHEN m.crashes = 1 THEN 1 ELSE 2 END AS crashes, 0 AS next FROM {crashed by lane} m WHERE `
	laneNext  = `SELECT ? AS look, 0 AS crashes, n.rank - {micros now} AS next FROM (
  SELECT m.rank FROM {messages} m WHERE m.consumer_type = ? AND m.keyed = TRUE AND m.rank > {micros now} ORDER BY m.rank LIMIT 1) n`
)

// PollLanes looks for messages to claim. With crashed it also looks for crashed messages and for
// when the next are due.
func (n Names) PollLanes(ctx context.Context, db bun.IDB, looks []LaneLook, crashed bool) (found []LaneState, err error) {
	var parts []string
	var args []any
	for i, l := range looks {
		var free string
		var values []any
		if l.Blocked || crashed {
			free, values = n.Free("m", "m", l.Source)
		}
		if l.Blocked {
			parts = append(parts, l.For(strings.Replace(laneRuns, "{free}", free, 1)))
			args = slices.Concat(args, []any{i, l.Name, bun.List(l.Payloads)}, values, []any{l.Name})
		} else {
			parts, args = append(parts, l.For(laneExists)), slices.Concat(args, []any{i, l.Name, l.After}, l.loose(n), []any{l.Name})
		}
		if !crashed {
			continue
		}
		parts = append(parts, l.For(laneStuck+stuck)+` AND m.payload_type IN (?) AND `+free)
		args = slices.Concat(args, []any{i, l.Name}, l.loose(n), []any{bun.List(l.Payloads)}, values)
		if l.PerKey > 0 {
			parts, args = append(parts, laneNext), append(args, i, l.Name)
		}
	}
	err = n.Query(ctx, db, "{plan}"+strings.Join(parts, "\nUNION ALL "), args...).Scan(ctx, &found)
	return found, err
}

// KeyedConsumers implements [Dialect].
func (n Names) KeyedConsumers(ctx context.Context, db bun.IDB) (names []string, err error) {
	err = n.Query(ctx, db, `
WITH RECURSIVE names(name) AS (
  SELECT (SELECT MIN(m.consumer_type) FROM {messages} m WHERE m.keyed = TRUE)
  UNION ALL SELECT (SELECT MIN(m.consumer_type) FROM {messages} m WHERE m.keyed = TRUE AND m.consumer_type > n.name) FROM names n WHERE n.name IS NOT NULL)
SELECT name FROM names WHERE name IS NOT NULL`).Scan(ctx, &names)
	return names, err
}

// Looks returns the statements that propose lanes of a source.
func (n Names) Looks(s Source) (propose, edge string) {
	return s.For(cmp.Or(n.Lanes.Propose, proposeSQL)), s.For(edgeSQL)
}

// Walk implements [LaneDialect].
func (n Names) Walk(ctx context.Context, tx bun.IDB, l *Lanes) (lanes []Walked, more bool, err error) {
	err = n.Query(ctx, tx, l.For(walkSQL), append([]any{l.Name, l.Cursor, l.Name, MostWalked}, l.busy(n)...)...).Scan(ctx, &lanes)
	return lanes, len(lanes) == MostWalked, err
}

// ClaimLanes claims messages of one consumer, in a transaction that sees, and changes, the newest
// state. Claims for a consumer exclude each other: what is held, and then what comes first, is read
// by statements that begin once the gate is locked.
func (n Names) ClaimLanes(ctx context.Context, tx bun.IDB, d LaneDialect, r ClaimRequest) (Claim, error) {
	c := &laneClaim{Names: n, tx: tx, dialect: d, r: r}
	if r.Lanes.KeyRate != nil {
		c.keys = &keyRates{Names: n, tx: tx, rate: *r.Lanes.KeyRate}
	}
	return c.claim(ctx)
}

// Free returns the condition under which messages of an alias's lane may be claimed, with its
// values. The message has the alias m.
func (n Names) Free(alias, m string, s Source) (condition string, values []any) {
	names := n.NameList(s.Names)
	condition, values = s.For(freeLane), append(s.busy(n), names, n.NameList([]string{s.Name}))
	if s.KeyRate != nil {
		condition, values = condition+unspent, append(values, s.unspent()...)
	}
	if others := s.others(); len(others) > 0 {
		condition, values = condition+renamed, append(values, n.NameList(others))
	}
	return strings.NewReplacer("l.lane", alias+".lane", "m.rank", m+".rank").Replace(condition), values
}
