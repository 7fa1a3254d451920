package mariadb

import (
	"context"
	"slices"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// laneTraits find messages with keys in the table of lanes, each by a suitable index. A subquery in
// FROM is merged with the query around it. A query for ranks need not read the messages: each row of
// the table of lanes is of a keyed one.
func laneTraits() dialect.LaneTraits {
	return dialect.LaneTraits{
		Table:  "message_lanes",
		ByRank: `(SELECT l.consumer_type, l.rank, TRUE AS keyed FROM {lanes} l FORCE INDEX ({prefix}message_lanes_ranked))`,
		ByLane: `{lanes}`,
		Crashed: `(SELECT b.*, l.lane, l.rank, l.order_key
    FROM {messages} b FORCE INDEX ({prefix}consumer_messages_due) STRAIGHT_JOIN {lanes} l FORCE INDEX (PRIMARY) ON l.id = b.id)`,
		Plan: planSQL, ByKey: ` FORCE INDEX (PRIMARY)`, Nothing: ` FROM DUAL`, Propose: proposeSQL, Firsts: firstLanesSQL,
		Head: `(SELECT l.consumer_type, l.lane, l.rank, b.available_after, b.crashes, b.payload_type
    FROM {lanes} l FORCE INDEX ({prefix}message_lanes_lane) STRAIGHT_JOIN {messages} b FORCE INDEX (PRIMARY) ON b.id = l.id)`,
	}
}

// planSQL has the lists of claims read once for a statement, and never all lanes of a consumer, or
// all blocked ones, to find out about one.
const planSQL = `/*M! SET STATEMENT optimizer_switch='derived_merge=on,materialization=on,in_to_exists=off,exists_to_in=off' FOR */ `

// proposeSQL is that of package dialect. It reads only messages whose lane is free.
const proposeSQL = planSQL + `
SELECT w.lane, MIN(w.rank) AS first, MAX(w.rank) AS last, count(*) AS n FROM (
  SELECT f.lane, f.rank FROM (
    SELECT l.id, l.lane, l.rank FROM {lanes} l FORCE INDEX ({prefix}message_lanes_ranked) WHERE l.consumer_type = ? AND l.rank > ?
      AND NOT EXISTS (SELECT 1 FROM {paused} u WHERE u.consumer_type = ?) ORDER BY l.rank LIMIT ?) f
  STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = f.id
  WHERE m.available_after <= {now} AND f.lane NOT IN ({held lanes})
    AND NOT EXISTS (SELECT 1 FROM {poisoned} p WHERE p.consumer_type {names} AND p.lane = f.lane AND p.parks) ORDER BY f.rank LIMIT ?) w
GROUP BY w.lane ORDER BY 2`

// firstLanesSQL is that of package dialect. It reads the first entries of the index, since no
// statement skips from one lane to the next.
const firstLanesSQL = `
SELECT f.lane, SUM(COUNT(*)) OVER (ORDER BY f.lane) > 5000 AS more FROM (
  SELECT l.lane FROM {lanes} l FORCE INDEX ({prefix}message_lanes_lane) WHERE l.consumer_type = ? ORDER BY l.lane LIMIT 5001) f GROUP BY f.lane`

// headsSQL reads the first messages of lanes, whose ids are selected by {heads}. It is immutable.
var headsSQL = planSQL + `
SELECT ` + dialect.PickColumns("OCTET_LENGTH(%s)") + `, k.order_key, k.lane, k.rank, m.available_after <= {now} AS due
FROM ({heads}) h STRAIGHT_JOIN {lanes} k FORCE INDEX (PRIMARY) ON k.id = h.id STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = k.id
WHERE {free} ORDER BY h.o, k.rank`

// These look into the index once for each lane. A statement contains as few of them as possible,
// since planning each takes the server longer than running it: one for each lane, or one for all
// first messages, all second ones and so on.
const (
	headsOfLaneSQL = `(SELECT ? AS o, l.id FROM {lanes} l FORCE INDEX ({prefix}message_lanes_lane)
WHERE l.consumer_type = ? AND l.lane = ? ORDER BY l.lane, l.rank LIMIT ?)`
	headsOfPlaceSQL = `SELECT j.o, (SELECT l.id FROM {lanes} l FORCE INDEX ({prefix}message_lanes_lane)
WHERE l.consumer_type = ? AND l.lane = j.lane ORDER BY l.lane, l.rank LIMIT 1 OFFSET ?) AS id
FROM JSON_TABLE(?, '$[*]' COLUMNS (o FOR ORDINALITY, lane BIGINT PATH '$')) j`
)

// Heads implements [dialect.LaneDialect].
func (m *database) Heads(
	ctx context.Context, tx bun.IDB, l *dialect.Lanes, lanes []int64, each int,
) (picks []dialect.LanePick, err error) {
	var parts []string
	var args []any
	if len(lanes) <= each {
		for i, lane := range lanes {
			parts, args = append(parts, headsOfLaneSQL), append(args, i, l.Name, lane, each)
		}
	} else {
		list := dialect.AsJSON(lanes)
		for place := range each {
			parts, args = append(parts, headsOfPlaceSQL), append(args, l.Name, place, list)
		}
	}
	free, values := m.Free("k", "k", l.Source)
	statement := strings.NewReplacer("{heads}", strings.Join(parts, "\nUNION ALL "), "{free}", free).Replace(headsSQL)
	err = m.Query(ctx, tx, statement, append(args, values...)...).Scan(ctx, &picks)
	return picks, err
}

// A walk reads this many entries of the index at a time, and begins anew behind the last lane,
// since no statement skips from one lane to the next. Where lanes have many messages it reads one
// entry at a time.
const (
	walkEntries = 200
	walkSteps   = 20
)

const (
	walkSQL      = `SELECT l.lane FROM {lanes} l FORCE INDEX ({prefix}message_lanes_lane) WHERE l.consumer_type = ? AND l.lane > ? ORDER BY l.lane LIMIT ?`
	heldLanesSQL = `SELECT h.lane FROM {claims} c, JSON_TABLE(c.lanes, '$[*]' COLUMNS (lane BIGINT PATH '$')) h WHERE c.consumer_type `
)

// Walk implements [dialect.LaneDialect].
func (m *database) Walk(ctx context.Context, tx bun.IDB, l *dialect.Lanes) (lanes []dialect.Walked, more bool, err error) {
	var held []int64
	if err := m.Query(ctx, tx, heldLanesSQL+`{names}`, m.NameList(l.Names)).Scan(ctx, &held); err != nil {
		return nil, false, err
	}
	taken := make(map[int64]bool, len(held))
	for _, lane := range held {
		taken[lane] = true
	}
	cursor, entries := l.Cursor, walkEntries
	for range walkSteps {
		var found []int64
		if err := m.Query(ctx, tx, walkSQL, l.Name, cursor, entries).Scan(ctx, &found); err != nil {
			return nil, false, err
		}
		more = len(found) == entries
		found = slices.Compact(found)
		if entries = walkEntries; len(found) < walkEntries/walkSteps {
			entries = 1
		}
		for _, lane := range found {
			lanes = append(lanes, dialect.Walked{Lane: lane, Free: !taken[lane]})
			if cursor = lane; len(lanes) == dialect.MostWalked {
				return lanes, true, nil
			}
		}
		if !more {
			break
		}
	}
	return lanes, more, nil
}

// KeyedConsumers looks up the next name behind one: see [database.types].
func (m *database) KeyedConsumers(ctx context.Context, db bun.IDB) ([]string, error) {
	return m.types(ctx, db, nextKeyedSQL)
}
