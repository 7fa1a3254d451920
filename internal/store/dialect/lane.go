package dialect

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"
)

// hidden is what the crashes of a keyed message are counted from. Whatever takes messages
// without regard to their order, a program of an older version included, looks for those with
// no crashes or more, and so finds none that have a key.
const hidden = -10_000

// Counted is the number of crashes of a row, which has a key or not.
func Counted(crashes int) int {
	if crashes < 0 {
		return crashes - hidden
	}
	return crashes
}

// Lane is what the messages of one key share. Two keys may share one: that is slower, never
// wrong. It is a hash that nobody can aim at another's key, and not 0, which is no lane.
func Lane(key string) int64 {
	sum := sha256.Sum256([]byte(key))
	return max(int64(binary.BigEndian.Uint64(sum[:])>>1), 1)
}

// Lanes asks for messages of a consumer that goes by keys, under one of its names. What is
// taken of a lane in order begins with its first message. Hint, Cursor and Sticky only propose
// lanes, so that a wrong one costs time at most.
type Lanes struct {
	Source
	Parks  bool          // a poisoned message keeps those behind it from running
	Run    int           // how many of one lane at most
	Hint   int64         // the rank behind which to look
	Cursor int64         // the lane behind which to walk, when there is little behind the hint
	Sticky []int64       // lanes that may have more
	Walk   bool          // the last look brought nothing
	Look   int           // at least so many messages to look at
	Unused map[int64]int // how many of lanes were claimed and did not start, of a key rate
}

// LaneNews is what a claim of lanes has found out for the next.
type LaneNews struct {
	First  int64 // the rank of the first message of a free lane; 0: there was none
	Full   bool  // there may be more to look at behind the hint
	Last   int64 // the rank up to which it has looked; 0: at none
	Left   bool  // it has seen messages that it did not take
	Walked int64 // how far it walked; 0: it did not, or came to the end
	// Spent are lanes of which it took as much as their rates allow.
	Spent []SpentLane
	// Wait is for how long the rates of all keys that are spent allow no more; zero: none is.
	Wait    time.Duration
	Unknown string  // the payload type of a first message that the consumer does not take
	Deep    []int64 // lanes of which it took as much as it asked for
}

// SpentLane is a lane that may have more than its rate has allowed, and how long until that
// allows the next.
type SpentLane struct {
	Lane int64
	Wait time.Duration
}

var lanesParts = regexp.MustCompile(`«[^»]*»`) // immutable

// WithLanes is a statement with what it needs where messages have keys, which stands between
// « and ».
func WithLanes(statement string) string {
	return strings.NewReplacer("«", "", "»", "").Replace(statement)
}

// WithoutLanes is the statement without that.
func WithoutLanes(statement string) string { return lanesParts.ReplaceAllString(statement, "") }

// OfLanes tells whether some of the results are of messages with keys.
func OfLanes(results []Result) bool {
	return slices.ContainsFunc(results, func(r Result) bool { return r.Lane != 0 })
}

// LaneDialect is what differs between databases about lanes.
type LaneDialect interface {
	// Run is one of the statements for lanes.
	Run(ctx context.Context, statement string, args ...any) *bun.RawQuery
	// Heads picks the first messages, at most each, of those lanes that are free, in the
	// order of the lanes and their ranks.
	Heads(ctx context.Context, l *Lanes, lanes []int64, each int) ([]LanePick, error)
	// Record records a claim of the picks.
	Record(ctx context.Context, r ClaimRequest, picks []LanePick) (id int64, err error)
	// Walk lists the next lanes behind the cursor, and tells whether there may be more.
	Walk(ctx context.Context, tx bun.IDB, l *Lanes) (lanes []Walked, more bool, err error)
}

// Walked is a lane that a walk has come by.
type Walked struct {
	Lane int64
	Free bool // nobody holds it
}

// LanePick is a message of a lane that was found.
type LanePick struct {
	Pick `bun:",extend"`
	Due  bool `bun:"due"`
}

// stuck is true of a message m that has crashed, is due, and in order the first of its lane.
const stuck = `m.consumer_type = ? AND m.crashes < 0 AND m.crashes > -10000 AND m.available_after <= {now}{first}
  AND NOT EXISTS (SELECT 1 FROM {paused} u WHERE u.consumer_type = m.consumer_type){loose}`

// LaneLook asks whether there is anything to claim for a consumer that goes by keys.
type LaneLook struct {
	Source
	After int64 // the rank behind which to look
}

// LaneState is what was found for one of the looks: that there are messages, which says
// nothing of whether they may run; with Crashes of 1 or 2, that some are due which crashed
// once, or more often; or in how many microseconds the next is due that is not.
type LaneState struct {
	Look    int   `bun:"look"`
	Crashes int   `bun:"crashes"`
	Next    int64 `bun:"next"`
}

const (
	laneExists = `SELECT ? AS look, 0 AS crashes, 0 AS next{from nothing} WHERE (SELECT m.rank FROM {by rank} m WHERE m.consumer_type = ? AND m.crashes < 0 AND m.rank > ?{loose} ORDER BY m.rank LIMIT 1) IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM {paused} u WHERE u.consumer_type = ?)`
	laneStuck = `SELECT DISTINCT ? AS look, CASE WHEN m.crashes = -9999 THEN 1 ELSE 2 END AS crashes, 0 AS next FROM {crashed by lane} m WHERE `
	laneNext  = `SELECT ? AS look, 0 AS crashes, n.rank - {micros now} AS next FROM (
  SELECT m.rank FROM {messages} m WHERE m.consumer_type = ? AND m.crashes < 0 AND m.rank > {micros now} ORDER BY m.rank LIMIT 1) n`
)

// ProbeLanes looks for what there is to claim; with crashed, for messages that have crashed, and
// for when the next are due, too.
func (n Names) ProbeLanes(ctx context.Context, db bun.IDB, looks []LaneLook, crashed bool) (found []LaneState, err error) {
	var parts []string
	var args []any
	for i, l := range looks {
		parts, args = append(parts, l.For(laneExists)), slices.Concat(args, []any{i, l.Name, l.After}, l.loose(n), []any{l.Name})
		if !crashed {
			continue
		}
		free, values := n.Free("m", "m", l.Source)
		parts, args = append(parts, l.For(laneStuck+stuck)+` AND m.payload_type IN (?) AND `+free), slices.Concat(args, []any{i, l.Name}, l.loose(n), []any{bun.List(l.Payloads)}, values)
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
  SELECT (SELECT MIN(m.consumer_type) FROM {messages} m WHERE m.crashes < 0)
  UNION ALL SELECT (SELECT MIN(m.consumer_type) FROM {messages} m WHERE m.crashes < 0 AND m.consumer_type > n.name) FROM names n WHERE n.name IS NOT NULL)
SELECT name FROM names WHERE name IS NOT NULL`).Scan(ctx, &names)
	return names, err
}
