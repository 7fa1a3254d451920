package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// A group is done when no pending message has its key. Nothing counts its members, so no row is
// written for each of them.

// MessageGroup is what to insert once a group is done.
type MessageGroup struct {
	Name     string
	Messages []dialect.NewMessage
	// Poisoned are inserted in place of Messages if a member is poisoned by then. If they are nil, the
	// group waits until no member is poisoned.
	Poisoned []dialect.NewMessage
}

// waiting is a stored row of a message to be inserted. An empty payload is that of the row before.
type waiting struct {
	ID           uuid.UUID     `json:"id"`
	Consumer     string        `json:"consumer"`
	PayloadType  string        `json:"type"`
	Payload      string        `json:"payload,omitempty"`
	Headers      string        `json:"headers,omitempty"`
	InsertID     string        `json:"insert_id,omitempty"`
	Former       []string      `json:"former,omitempty"`
	AvailableAt  time.Time     `json:"available_at,omitzero"`
	Delay        time.Duration `json:"delay,omitempty"`
	Replace      bool          `json:"replace,omitempty"`
	MaxPostponed time.Duration `json:"max_postponed,omitempty"`
	UniqueFor    time.Duration `json:"unique_for,omitempty"`
	OrderKey     string        `json:"order_key,omitempty"`
	AnyOrder     bool          `json:"any_order,omitempty"`
	Priority     int           `json:"priority,omitempty"`
}

func encodeWaiting(rows []dialect.NewMessage) string {
	list := make([]waiting, len(rows))
	for i, row := range rows {
		list[i] = waiting{
			row.MessageID, row.ConsumerType, row.PayloadType, row.Payload, row.Headers, row.InsertID, row.FormerConsumers, row.AvailableAt,
			row.Delay, row.Replace, row.MaxPostponed, row.UniqueFor, row.OrderKey, row.AnyOrder, row.Priority,
		}
		if i > 0 && rows[i-1].MessageID == row.MessageID {
			list[i].Payload = ""
		}
	}
	return dialect.AsJSON(list)
}

func decodeWaiting(text []byte) ([]dialect.NewMessage, error) {
	var list []waiting
	if err := UnmarshalKnown(text, &list); err != nil {
		return nil, err
	}
	rows := make([]dialect.NewMessage, len(list))
	for i, w := range list {
		rows[i] = dialect.NewMessage{
			MessageID: w.ID, ConsumerType: w.Consumer, PayloadType: w.PayloadType, Payload: w.Payload, Headers: w.Headers, InsertID: w.InsertID,
			FormerConsumers: w.Former, AvailableAt: w.AvailableAt, Delay: w.Delay, Replace: w.Replace, MaxPostponed: w.MaxPostponed,
			UniqueFor: w.UniqueFor, OrderKey: w.OrderKey, AnyOrder: w.AnyOrder, Priority: w.Priority,
		}
		if i > 0 && list[i-1].ID == w.ID {
			rows[i].Payload = rows[i-1].Payload
		}
	}
	return rows, nil
}

// Wait stores a group, and reports false if one of that name waits already. The id
// shows whose row it is, since a duplicate may count as a changed row.
func (s *GroupStore) Wait(ctx context.Context, tx bun.Tx, g MessageGroup) (bool, error) {
	for _, rows := range [][]dialect.NewMessage{g.Messages, g.Poisoned} {
		for _, row := range rows {
			if err := s.outbox.supports(row); err != nil {
				return false, err
			}
		}
	}
	var poisoned any
	if g.Poisoned != nil {
		poisoned = encodeWaiting(g.Poisoned)
	}
	id := uuid.NewString()
	if len(g.Messages) > 0 {
		id = g.Messages[0].MessageID.String() // which is as unique
	}
	err := s.names.Exec(ctx, tx, `INSERT INTO {groups} (name, id, messages, poisoned, created_at) VALUES (?, ?, ?, ?, {now}) {keep named}`,
		g.Name, id, encodeWaiting(g.Messages), poisoned)
	if err != nil {
		return false, fmt.Errorf("insert group: %w", err)
	}
	var stored []string
	if err := s.names.Query(ctx, tx, `SELECT id FROM {groups} WHERE name = ?`, g.Name).Scan(ctx, &stored); err != nil {
		return false, fmt.Errorf("group: %w", err)
	}
	return len(stored) == 1 && stored[0] == id, nil
}

// share locks the groups of rows that are about to be inserted, until the end of the transaction, so
// that no group is found done meanwhile. Locking a row that is not there could lock the gap that it
// would be in, so it is looked for before.
func (s *OutboxStore) share(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) error {
	names := groupsOf(rows)
	if len(names) == 0 || !s.RowLocks() {
		return nil
	}
	const look = `SELECT name FROM {groups} WHERE name IN (?) ORDER BY name`
	for part := range slices.Chunk(names, groupPage) {
		var there []string
		err := s.names.Query(ctx, db, look, bun.List(part)).Scan(ctx, &there)
		if err == nil && len(there) > 0 {
			err = s.names.Query(ctx, db, look+`{lock shared}`, bun.List(there)).Scan(ctx, &there)
		}
		if err != nil {
			return fmt.Errorf("lock groups: %w", err)
		}
	}
	return nil
}

// groupsOf returns the groups of rows, sorted.
func groupsOf(rows []dialect.NewMessage) (names []string) {
	for _, row := range rows {
		if row.GroupKey != "" {
			names = append(names, row.GroupKey)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// groupPage is how many groups a statement looks at.
const groupPage = 500

// doneSQL is true for a group g that has something to insert now.
const doneSQL = `NOT EXISTS (SELECT 1 FROM {messages} m WHERE m.group_key = g.name)
  AND (g.poisoned IS NOT NULL OR NOT EXISTS (SELECT 1 FROM {poisoned} p WHERE p.group_key = g.name))`

// DoneAmong returns those of the groups that are done.
func (s *GroupStore) DoneAmong(ctx context.Context, db bun.IDB, names []string) (done []string, err error) {
	for part := range slices.Chunk(names, groupPage) {
		found, err := read[[]string](ctx, s.tables, db, `SELECT g.name FROM {groups} g WHERE g.name IN (?) AND `+doneSQL, bun.List(part))
		if err != nil {
			return nil, err
		}
		done = append(done, found...)
	}
	return done, nil
}

// DoneBehind looks at the next groups behind a name, by name, and returns those that are done. next
// is the last one it has looked at, and empty if there are no more.
func (s *GroupStore) DoneBehind(ctx context.Context, db bun.IDB, behind string) (done []string, next string, err error) {
	rows, err := read[[]struct {
		Name string
		Done bool
	}](ctx, s.tables, db, `SELECT g.name, `+doneSQL+` AS done FROM (SELECT name, poisoned FROM {groups} WHERE name > ? ORDER BY name LIMIT ?) g
ORDER BY g.name`, behind, groupPage)
	if err != nil {
		return nil, "", err
	}
	for _, row := range rows {
		if row.Done {
			done = append(done, row.Name)
		}
	}
	if len(rows) == groupPage {
		next = rows[len(rows)-1].Name
	}
	return done, next, nil
}

// Fire ends a group that is done and inserts its messages, in the caller's transaction, which is to be
// READ COMMITTED. It returns false, and does nothing, if the group is not done, or if another
// transaction has locked it: one that ends it, or that adds a member. It looks for members after it has
// locked the group. The error is [ErrNewer] for messages that only a newer version can insert: roll back.
func (s *GroupStore) Fire(ctx context.Context, tx bun.Tx, name string) (payloadTypes []string, fired bool, err error) {
	if err := s.WriteFirst(ctx, tx); err != nil {
		return nil, false, err
	}
	var locked []string
	err = s.names.Query(ctx, tx, `SELECT name FROM {groups} WHERE name = ? {lock free}`, name).Scan(ctx, &locked)
	if err != nil || len(locked) == 0 {
		return nil, false, err
	}
	var found []struct {
		Messages []byte
		Poisoned []byte
		Hurt     bool
	}
	err = s.names.Query(ctx, tx, `SELECT g.messages, g.poisoned, EXISTS (SELECT 1 FROM {poisoned} p WHERE p.group_key = g.name) AS hurt
FROM {groups} g WHERE g.name = ? AND `+doneSQL, name).Scan(ctx, &found)
	if err != nil || len(found) == 0 {
		return nil, false, err
	}
	text := found[0].Messages
	if found[0].Hurt {
		text = found[0].Poisoned
	}
	rows, err := decodeWaiting(text)
	if err != nil {
		return nil, false, fmt.Errorf("messages of group %q: %w", name, err)
	}
	if err := s.names.Exec(ctx, tx, `DELETE FROM {groups} WHERE name = ?`, name); err != nil {
		return nil, false, err
	}
	if _, err := s.outbox.Insert(ctx, tx, rows); err != nil {
		return nil, false, err
	}
	for _, row := range rows {
		if !slices.Contains(payloadTypes, row.PayloadType) {
			payloadTypes = append(payloadTypes, row.PayloadType)
		}
	}
	return payloadTypes, true, nil
}
