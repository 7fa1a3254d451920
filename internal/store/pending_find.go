package store

import (
	"context"
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
func (s *Store) FindStart(ctx context.Context, db bun.IDB, around time.Time) (FindPlace, error) {
	type row struct {
		ID        int64          `bun:"id"`
		CreatedAt dialect.Moment `bun:"created_at"`
	}
	bounds, _, err := first[struct{ Least, Greatest int64 }](ctx, s.tables, db, `SELECT COALESCE((SELECT MIN(id) FROM {messages}), 0) AS least, COALESCE((SELECT MAX(id) FROM {messages}), 0) AS greatest`)
	if err != nil || around.IsZero() {
		return FindPlace{Low: bounds.Greatest + 1, High: bounds.Greatest, Most: true}, err
	}
	low, high := bounds.Least, bounds.Greatest
	for high-low > findChunk/100 {
		middle := low + (high-low)/2
		next, found, err := first[row](ctx, s.tables, db, `SELECT m.id, m.created_at FROM {messages} m WHERE m.id >= ? ORDER BY m.id LIMIT 1`, middle)
		if err != nil {
			return FindPlace{}, err
		}
		if !found || next.CreatedAt.After(around) || next.ID >= high {
			high = middle
		} else {
			low = next.ID
		}
	}
	from, err := read[int64](ctx, s.tables, db, `SELECT COALESCE(MIN(x.id), ?) AS id FROM (SELECT m.id FROM {messages} m WHERE m.id <= ? ORDER BY m.id DESC LIMIT ?) x`, low, low, findChunk/2)
	return FindPlace{Low: from, High: from - 1, Up: true}, err
}

// FindPending searches the next part of the messages. It returns how many these were and how far it
// has come.
func (s *Store) FindPending(ctx context.Context, db bun.IDB, search PendingSearch, at FindPlace) (found []Pending, looked int, next FindPlace, err error) {
	up := at.Up && !at.Most || at.End
	side, args := `m.id < ? ORDER BY m.id DESC`, []any{at.Low, findChunk}
	if up {
		side, args[0] = `m.id > ? ORDER BY m.id`, at.High
	}
	chunk, _, err := first[struct {
		Least, Greatest int64
		Looked          int
	}](ctx, s.tables, db, `SELECT COALESCE(MIN(x.id), 0) AS least, COALESCE(MAX(x.id), 0) AS greatest, count(*) AS looked FROM (SELECT m.id FROM {messages} m WHERE `+side+` LIMIT ?) x`, args...)
	if err != nil {
		return nil, 0, at, err
	}
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
			found, err = read[[]Pending](ctx, s.tables, db, s.around("SELECT "+pendingColumns+" FROM {messages} m WHERE m.id IN (?)"), bun.List(ids), len(ids))
		}
		if err != nil {
			return nil, 0, at, err
		}
		if len(ids) == findMost { // there may be more in this part
			chunk.Least, chunk.Greatest, chunk.Looked = ids[findMost-1], ids[findMost-1], findChunk
		}
	}
	if chunk.Looked > 0 && up {
		at.High = chunk.Greatest
	} else if chunk.Looked > 0 {
		at.Low = chunk.Least
	}
	if chunk.Looked < findChunk {
		at.Most, at.End = at.Most || up, at.End || !up
	}
	at.Up = !up
	return found, chunk.Looked, at, nil
}
