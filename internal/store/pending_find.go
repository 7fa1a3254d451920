package store

import (
	"context"
	"encoding/hex"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// PendingSearch selects messages; zero fields match all.
type PendingSearch struct {
	MessageID uuid.UUID
	Headers   []string // parts of headers as they are stored
}

// TraceHeader returns the part of stored headers that the messages of a trace have, or "" for what is
// no trace id.
func TraceHeader(id string) string {
	if text, err := hex.DecodeString(id); err != nil || len(text) != 16 {
		return ""
	}
	return `"traceparent":"00-` + strings.ToLower(id) + "-"
}

// FindPlace is how far a search has come. It searches by row ids, from a start outwards.
type FindPlace struct {
	Low  int64 `json:"l"`           // ids below are still to be searched
	High int64 `json:"h"`           // ids above are still to be searched
	Up   bool  `json:"u,omitempty"` // the next part is above
	Most bool  `json:"m,omitempty"` // there is nothing more above
	End  bool  `json:"e,omitempty"` // there is nothing more below
}

// findChunk is how many messages one statement looks at, and findMost how many it finds.
const (
	findChunk = 50_000
	findMost  = 1000
)

// FindStart returns where a search begins: around the messages produced at the given time, or at
// the newest if it is zero. It assumes that row ids follow the order of production, which is only
// likely.
func (s *PendingStore) FindStart(ctx context.Context, db bun.IDB, around time.Time) (FindPlace, error) {
	type row struct {
		ID        int64          `bun:"id"`
		CreatedAt dialect.Moment `bun:"created_at"`
	}
	bounds, _, err := first[struct{ Least, Greatest int64 }](ctx, s.tables, db,
		`SELECT COALESCE((SELECT MIN(id) FROM {messages}), 0) AS least, COALESCE((SELECT MAX(id) FROM {messages}), 0) AS greatest`)
	if err != nil || around.IsZero() {
		return FindPlace{Low: bounds.Greatest + 1, High: bounds.Greatest, Most: true}, err
	}
	low, high := bounds.Least, bounds.Greatest
	for high-low > findChunk/100 {
		middle := low + (high-low)/2
		next, found, err := first[row](ctx, s.tables, db,
			`SELECT m.id, m.created_at FROM {messages} m WHERE m.id >= ? ORDER BY m.id LIMIT 1`, middle)
		if err != nil {
			return FindPlace{}, err
		}
		if !found || next.CreatedAt.After(around) || next.ID >= high {
			high = middle
		} else {
			low = next.ID
		}
	}
	from, err := read[int64](ctx, s.tables, db,
		`SELECT COALESCE(MIN(x.id), ?) AS id FROM (SELECT m.id FROM {messages} m WHERE m.id <= ? ORDER BY m.id DESC LIMIT ?) x`, low, low,
		findChunk/2)
	return FindPlace{Low: from, High: from - 1, Up: true}, err
}

// Find searches the next part of the messages. It returns how many these were and how far it
// has come.
func (s *PendingStore) Find(
	ctx context.Context, db bun.IDB, search PendingSearch, at FindPlace,
) (found []Pending, looked int, next FindPlace, err error) {
	up := at.Up && !at.Most || at.End
	side, args := `m.id < ? ORDER BY m.id DESC`, []any{at.Low, findChunk}
	if up {
		side, args[0] = `m.id > ? ORDER BY m.id`, at.High
	}
	chunk, err := s.chunk(ctx, db, side, args...)
	if err != nil {
		return nil, 0, at, err
	}
	more := chunk.Looked == findChunk
	var t terms
	t.add(true, "m.id BETWEEN ? AND ?", chunk.Least, chunk.Greatest)
	t.add(search.MessageID != uuid.Nil, "m.message_id = ?", search.MessageID)
	for _, part := range search.Headers {
		t.add(true, "{instr}(m.headers, ?) > 0", part)
	}
	order := " ORDER BY m.id DESC LIMIT ?"
	if up {
		order = " ORDER BY m.id LIMIT ?"
	}
	if chunk.Looked > 0 {
		// Their surroundings are read by id: a planner overestimates the rows that match conditions
		// on headers.
		ids, err := read[[]int64](ctx, s.tables, db, "SELECT m.id FROM {messages} m WHERE "+t.where()+order, append(t.args, findMost)...)
		if err == nil && len(ids) > 0 {
			found, err = read[[]Pending](
				ctx, s.tables, db, s.around("SELECT "+pendingColumns+" FROM {messages} m WHERE m.id IN (?)"), bun.List(ids), len(ids),
			)
		}
		if err == nil && len(ids) == findMost { // there may be more in this part
			least, greatest := ids[findMost-1], chunk.Greatest
			if up {
				least, greatest = chunk.Least, ids[findMost-1]
			}
			more = true
			chunk, err = s.chunk(ctx, db, "m.id BETWEEN ? AND ? ORDER BY m.id", least, greatest, findChunk)
		}
		if err != nil {
			return nil, 0, at, err
		}
	}
	if chunk.Looked > 0 && up {
		at.High = chunk.Greatest
	} else if chunk.Looked > 0 {
		at.Low = chunk.Least
	}
	if !more {
		at.Most, at.End = at.Most || up, at.End || !up
	}
	at.Up = !up
	return found, chunk.Looked, at, nil
}

// chunk is a part of the messages, by their ids.
type chunk struct {
	Least, Greatest int64
	Looked          int
}

func (s *PendingStore) chunk(ctx context.Context, db bun.IDB, which string, args ...any) (chunk, error) {
	found, _, err := first[chunk](ctx, s.tables, db,
		`SELECT COALESCE(MIN(x.id), 0) AS least, COALESCE(MAX(x.id), 0) AS greatest, count(*) AS looked FROM (SELECT m.id FROM {messages} m WHERE `+
			which+` LIMIT ?) x`, args...)
	return found, err
}

// Examined is the result of examining a bounded number of messages.
type Examined struct {
	Rows []Pending
	Next PendingPlace // messages not examined are behind it
	More bool         // there may be more of them
}

// inspected is a message that matches, if ID is not zero, with the last one that was examined.
type inspected struct {
	Pending      `bun:",extend"`
	SeenConsumer string         `bun:"seen_consumer"`
	SeenPayload  string         `bun:"seen_payload"`
	SeenAt       dialect.Moment `bun:"seen_at"`
	SeenID       int64          `bun:"seen_id"`
	SeenLane     int64          `bun:"seen_lane"`
	SeenPlace    int64          `bun:"seen_place"`
	Seen         int            `bun:"seen"`
}

// Messages with keys are examined by their keys, in the order of an index of their own. Crashed
// messages are few and have indexes, too: finding them among all others could take hundreds of
// pages.
const (
	crashedPart  = `SELECT * FROM (SELECT ` + pendingColumns + `, 0 AS place FROM {messages} m WHERE m.keyed = FALSE AND m.crashes > 0 AND {start} ORDER BY ` + pendingOrder + ` LIMIT ?) crashed`
	unkeyedParts = `SELECT * FROM (SELECT ` + pendingColumns + `, 0 AS place FROM {messages} m WHERE m.keyed = FALSE AND m.crashes = 0 AND {start} ORDER BY ` + pendingOrder + ` LIMIT ?) clean
UNION ALL ` + crashedPart
	stuckPart = `SELECT ` + pendingColumns + `, m.rank AS place FROM {crashed by lane} m WHERE m.keyed = TRUE AND m.crashes > 0 AND {start}
ORDER BY m.consumer_type, m.lane, m.rank, m.id LIMIT ?`
	keyedParts = `SELECT ` + pendingColumns + `, k.place FROM (SELECT l.id, l.consumer_type, l.lane, l.rank AS place FROM {by lane} l
WHERE l.lane IS NOT NULL AND {start} ORDER BY l.consumer_type, l.lane, l.rank, l.id LIMIT ?) k JOIN {messages} m{by key} ON m.id = k.id`

	examine = `
WITH seen AS {once} (SELECT * FROM ({parts}) u ORDER BY {order u} LIMIT ?),
page AS {once} (SELECT m.* FROM seen m WHERE {where} ORDER BY {order m} LIMIT ?),
held AS {once} (SELECT h.* FROM ({holds}) h WHERE h.mid IN (SELECT id FROM page) LIMIT 100000),
last AS {once} (SELECT * FROM seen s ORDER BY {order s desc} LIMIT 1)
SELECT r.*, ` + claimColumns + `, p.paused_at AS paused_since, {now} AS now, l.consumer_type AS seen_consumer, l.payload_type AS seen_payload,
	l.available_after AS seen_at, l.id AS seen_id, l.lane AS seen_lane, l.place AS seen_place, (SELECT count(*) FROM seen) AS seen
FROM last l LEFT JOIN page r ON 1 = 1 LEFT JOIN held h ON h.mid = r.id LEFT JOIN {claims} c ON c.id = h.claim_id LEFT JOIN {paused} p ON p.consumer_type = r.consumer_type
ORDER BY {order r}`
)

// Examine lists messages as PendingMessages does, up to size. It examines no more than most
// messages, whether they match or not. Those with keys come behind all others, by consumer and key.
func (s *PendingStore) Examine(ctx context.Context, db bun.IDB, f PendingFilter, most, size int) (found Examined, err error) {
	if f.Key != "" {
		f.After.Keyed = true
	}
	for {
		rows, err := s.examined(ctx, db, f, most, size+1-len(found.Rows))
		if err != nil {
			return Examined{}, err
		}
		for _, row := range rows {
			if row.ID != 0 {
				found.Rows = append(found.Rows, row.Pending)
			}
		}
		seen := 0
		if len(rows) > 0 {
			seen, found.Next = rows[0].Seen, PendingPlace{Consumer: rows[0].SeenConsumer, Payload: rows[0].SeenPayload, At: rows[0].SeenAt.Time,
				ID: rows[0].SeenID, Keyed: f.After.Keyed, Lane: rows[0].SeenLane, Rank: rows[0].SeenPlace}
		}
		switch {
		case len(found.Rows) > size:
			found.Rows = found.Rows[:size]
			last := found.Rows[size-1]
			found.Next, found.More = PendingPlace{Consumer: last.ConsumerType, Payload: last.PayloadType, At: last.AvailableAfter.Time,
				ID: last.ID, Keyed: last.Lane != 0, Lane: last.Lane, Rank: last.Place}, true
			return found, nil
		case seen >= most:
			found.More = true
			return found, nil
		case f.After.Keyed:
			return found, nil
		}
		f.After, most = PendingPlace{Keyed: true}, most-seen
	}
}

func (s *PendingStore) examined(ctx context.Context, db bun.IDB, f PendingFilter, most, limit int) ([]inspected, error) {
	parts, columns, n := unkeyedParts, []string{"consumer_type", "payload_type", "available_after", "id"}, 2
	prefix, place := "m.", []any{f.After.Consumer, f.After.Payload, bun.Safe(s.names.Instant(f.After.At)), f.After.ID}
	if f.Crashed {
		parts, n = crashedPart, 1
	}
	if f.After.Keyed {
		columns, place = []string{"consumer_type", "lane", "place", "id"}, []any{f.After.Consumer, f.After.Lane, f.After.Rank, f.After.ID}
		if parts, n = stuckPart, 1; !f.Crashed {
			parts, prefix = keyedParts, "l."
		}
	}
	var start terms
	same := " = ?"
	if s.names.OneByOne && f.After.ID != 0 {
		same = " <= ?" // implied by the place; with both as equalities a planner begins at the consumer
	}
	start.add(f.Consumer != "", prefix+"consumer_type"+same, f.Consumer)
	start.add(f.Consumer != "" && f.PayloadType != "" && !f.After.Keyed, prefix+"payload_type"+same, f.PayloadType)
	start.add(f.Key != "", prefix+"lane = ?", dialect.Lane(f.Key))
	if f.After.ID != 0 {
		behind := dialect.Each(columns, func(c string) string { return strings.Replace(prefix+c, ".place", ".rank", 1) })
		start.add(true, s.names.Behind(behind...), s.names.BehindArgs(place...)...)
	}
	var args []any
	for range n {
		args = append(append(args, start.args...), most)
	}
	crashed := f.Crashed
	f.After = PendingPlace{}
	where, values := s.pendingWhere(ctx, f)
	if crashed {
		where += " AND m.crashes > 0"
	}
	order := func(of, end string) string {
		return strings.Join(dialect.Each(columns, func(c string) string { return of + c + end }), ", ")
	}
	text := strings.NewReplacer("{parts}", strings.ReplaceAll(parts, "{start}", start.where()), "{where}", where, "{order u}", order("u.", ""),
		"{order m}", order("m.", ""), "{order s desc}", order("s.", " DESC"), "{order r}", order("r.", "")).Replace(examine)
	return read[[]inspected](ctx, s.tables, db, text, append(append(append(args, most), values...), limit)...)
}
