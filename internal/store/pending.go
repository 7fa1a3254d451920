package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Pending is a row of consumer_messages with what keeps it from running.
type Pending struct {
	dialect.Message `bun:",extend"` // payload, headers and errors only if they were asked for
	HeldBy          `bun:",extend"`
	PausedSince     dialect.Moment `bun:"paused_since"`  // zero: its consumer is not paused
	Place           int64          `bun:"place"`         // in its lane, only if it was examined
	PayloadBytes    int            `bun:"payload_bytes"` // only if its payload was asked for
	Now             dialect.Moment `bun:"now"`
}

// HeldBy is a row of message_claims; an id of zero means no claim.
type HeldBy struct {
	ClaimID     int64          `bun:"claim_id"`
	Owner       string         `bun:"owner"`
	Solo        bool           `bun:"solo"`
	ClaimedAt   dialect.Moment `bun:"claimed_at"`
	LeasedUntil dialect.Moment `bun:"leased_until"`
	Messages    int            `bun:"messages"`
	Expired     bool           `bun:"expired"`
}

// PendingState is the state of a pending message.
type PendingState uint8

// The states; the zero state selects all.
const (
	AnyState PendingState = iota
	Ready                 // due and in no claim
	Delayed               // in no claim, and not due yet
	Leased                // in a claim
)

// PendingPlace is a place in the order in which messages are listed. With Keyed it is one in the
// order in which messages with keys are examined.
type PendingPlace struct {
	Consumer, Payload string
	At                time.Time
	ID                int64
	Keyed             bool
	Lane, Rank        int64
}

// PendingFilter selects pending messages; zero fields select all.
type PendingFilter struct {
	Consumer, PayloadType, InsertID, Key string
	MessageID                            uuid.UUID
	State                                PendingState
	Crashed                              bool
	Retrying                             bool          // has attempts behind it
	OlderThan                            time.Duration // since it was produced, by the database's clock
	After                                PendingPlace  // only messages behind this place; an id of zero for the start
}

// pendingWhere writes the filter as conditions on m.
func (s *PendingStore) pendingWhere(ctx context.Context, f PendingFilter) (conditions string, args []any) {
	var t terms
	t.add(f.Consumer != "", "m.consumer_type = ?", f.Consumer)
	t.add(f.PayloadType != "", "m.payload_type = ?", f.PayloadType)
	t.add(f.InsertID != "", "{keyed}", f.InsertID)
	t.add(f.Key != "", "{has key}", f.Key)
	t.add(f.MessageID != uuid.Nil, "m.message_id = ?", f.MessageID)
	t.add(f.OlderThan > 0, "m.created_at <= "+s.names.After(ctx, -f.OlderThan))
	t.add(f.State == Ready, "m.available_after <= {now} AND m.id NOT IN ({held})")
	t.add(f.State == Delayed, "m.available_after > {now} AND m.id NOT IN ({held})")
	t.add(f.State == Leased, "m.id IN ({held})")
	t.add(f.Retrying, "m.attempts > 0")
	if f.After.ID != 0 {
		t.add(true, s.names.Behind("m.consumer_type", "m.payload_type", "m.available_after", "m.id"), f.After.args(s.tables)...)
	}
	return t.where(), t.args
}

// args returns the values of the place, in the order of the list.
func (p PendingPlace) args(t *tables) []any {
	return t.names.BehindArgs(p.Consumer, p.Payload, bun.Safe(t.names.Instant(p.At)), p.ID)
}

const (
	pendingColumns = `m.id, m.message_id, m.consumer_type, m.payload_type, m.insert_id, m.created_at, m.available_after, m.attempts, m.crashes, m.group_key, {key of}`
	pendingOrder   = `m.consumer_type, m.payload_type, m.available_after, m.id`
)

// Two indexes have the order of the list, each for its part of the messages. Messages with keys
// have another order and are sorted.
const (
	keyedPage   = `SELECT * FROM (SELECT ` + pendingColumns + ` FROM {messages} m WHERE m.keyed = TRUE AND {where} ORDER BY ` + pendingOrder + ` LIMIT ?) keyed`
	stuckPage   = `SELECT * FROM (SELECT ` + pendingColumns + ` FROM {messages} m WHERE m.keyed = TRUE AND m.crashes > 0 AND {where} ORDER BY ` + pendingOrder + ` LIMIT ?) stuck`
	cleanPage   = `SELECT * FROM (SELECT ` + pendingColumns + ` FROM {messages} m WHERE m.keyed = FALSE AND m.crashes = 0 AND {where} ORDER BY ` + pendingOrder + ` LIMIT ?) clean`
	crashedPage = `SELECT * FROM (SELECT ` + pendingColumns + ` FROM {messages} m WHERE m.keyed = FALSE AND m.crashes > 0 AND {where} ORDER BY ` + pendingOrder + ` LIMIT ?) crashed`
)

const claimColumns = `c.id AS claim_id, c.owner, c.solo, c.claimed_at, c.leased_until, {size} AS messages, c.leased_until < {now} AS expired`

// pendingAround adds claims and pauses to messages. It looks for them once among all claims,
// because no planner can estimate how many there are. Where there is no hint for that, the limit
// enforces it.
const pendingAround = `
WITH page AS {once} ({messages of}),
held AS {once} (SELECT h.* FROM ({holds}) h WHERE h.mid IN (SELECT id FROM page) LIMIT 100000)
SELECT r.*, ` + claimColumns + `, p.paused_at AS paused_since, {now} AS now
FROM page r LEFT JOIN held h ON h.mid = r.id LEFT JOIN {claims} c ON c.id = h.claim_id LEFT JOIN {paused} p ON p.consumer_type = r.consumer_type
ORDER BY r.consumer_type, r.payload_type, r.available_after, r.id LIMIT ?`

// List lists messages by consumer and payload type, in the order in which they are due,
// without payloads, headers and errors.
func (s *PendingStore) List(ctx context.Context, db bun.IDB, f PendingFilter, limit int) ([]Pending, error) {
	conditions, values := s.pendingWhere(ctx, f)
	pages := []string{cleanPage, crashedPage, keyedPage}
	if f.Crashed {
		pages = []string{crashedPage, stuckPage}
	}
	page := strings.Join(pages, " UNION ALL ")
	var args []any
	for range pages {
		args = append(append(args, values...), limit)
	}
	return read[[]Pending](ctx, s.tables, db, s.around(strings.ReplaceAll(page, "{where}", conditions)), append(args, limit)...)
}

// Messages lists pending messages by id, claimed or not.
func (s *PendingStore) Messages(ctx context.Context, db bun.IDB) ([]dialect.Message, error) {
	return read[[]dialect.Message](ctx, s.tables, db, `SELECT `+dialect.MessageColumns+` FROM {messages} m ORDER BY m.id`)
}

func (s *PendingStore) around(messages string) string {
	return strings.Replace(pendingAround, "{messages of}", messages, 1)
}

// Get reads one message with its headers and, with full, its payload and errors.
func (s *PendingStore) Get(ctx context.Context, db bun.IDB, id int64, full bool) (Pending, bool, error) {
	columns := pendingColumns + ", m.headers, m.steps"
	if full {
		columns = dialect.MessageColumns + ", m.steps, {key of}, {payload bytes} AS payload_bytes"
	}
	return first[Pending](ctx, s.tables, db, s.around("SELECT "+columns+" FROM {messages} m WHERE m.id = ?"), id, 1)
}

// Head reads one message with its headers and errors, and the first characters of its payload.
func (s *PendingStore) Head(ctx context.Context, db bun.IDB, id int64, characters int) (Pending, bool, error) {
	columns := strings.Replace(
		dialect.MessageColumns, "m.payload,", "substr(m.payload, 1, ?) AS payload,", 1,
	) + ", m.steps, {key of}, {payload bytes} AS payload_bytes"
	return first[Pending](ctx, s.tables, db, s.around("SELECT "+columns+" FROM {messages} m WHERE m.id = ?"), characters, id, 1)
}

// ByID lists messages by their ids, as [PendingStore.List] does. There must be some.
func (s *PendingStore) ByID(ctx context.Context, db bun.IDB, ids []int64) ([]Pending, error) {
	return read[[]Pending](
		ctx, s.tables, db, s.around("SELECT "+pendingColumns+" FROM {messages} m WHERE m.id IN (?)"), bun.List(ids), len(ids),
	)
}

// ClaimedMessages lists the messages of a claim, in the order of the list.
func (s *PendingStore) ClaimedMessages(ctx context.Context, db bun.IDB, claim int64) ([]Pending, error) {
	ids, err := read[[]int64](ctx, s.tables, db, `SELECT h.mid FROM ({holds}) h WHERE h.claim_id = ?`, claim)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	rows, err := s.ByID(ctx, db, ids)
	return slices.DeleteFunc(rows, func(row Pending) bool { return row.ClaimID != claim }), err
}

// Count counts messages; it reads each one.
func (s *PendingStore) Count(ctx context.Context, db bun.IDB, f PendingFilter) (int, error) {
	conditions, args := s.pendingWhere(ctx, f)
	if f.Crashed {
		conditions += " AND m.crashes > 0"
	}
	return read[int](ctx, s.tables, db, "SELECT count(*) FROM {messages} m WHERE "+conditions, args...)
}

// Claims lists claims by id.
func (s *PendingStore) Claims(ctx context.Context, db bun.IDB) ([]HeldBy, error) {
	return read[[]HeldBy](ctx, s.tables, db, `SELECT `+claimColumns+` FROM {claims} c ORDER BY c.id`)
}

// StoredConsumers lists the consumer types of pending and poisoned messages.
func (s *PendingStore) StoredConsumers(ctx context.Context, db bun.IDB) ([]string, error) {
	return retried(ctx, db, func(db bun.IDB) ([]string, error) { return s.dialect.StoredConsumers(ctx, db) })
}
