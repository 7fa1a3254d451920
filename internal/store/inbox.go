package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// inboxRows is how many hashes one statement has.
const inboxRows = 1000

// Receive stores hashes of a receiver, in hex, in the caller's transaction. It returns those not
// stored before. It writes them in order, so that no two callers can deadlock.
func (s *InboxStore) Receive(ctx context.Context, tx bun.Tx, receiver string, hashes []string) (added map[string]bool, err error) {
	added = make(map[string]bool, len(hashes))
	sorted := slices.Compact(slices.Sorted(slices.Values(hashes)))
	for part := range slices.Chunk(sorted, inboxRows) {
		written, err := s.dialect.Receive(ctx, tx, receiver, part)
		if err != nil {
			return nil, fmt.Errorf("inbox: %w", err)
		}
		for _, hash := range written {
			added[hash] = true
		}
	}
	return added, nil
}

// Forget deletes at most limit hashes that a receiver has stored for longer than age, by the
// database's clock, and returns how many.
func (s *InboxStore) Forget(ctx context.Context, db bun.IDB, receiver string, age time.Duration, limit int) (int, error) {
	return retried(ctx, db, func(db bun.IDB) (int, error) {
		old := dialect.Trimmed{
			Table: "{inbox}", Key: "receiver, hash", Where: "receiver = ? AND received_at < " + s.names.After(ctx, -age),
			OldestBy: "received_at", Index: "{prefix}inbox_messages_received", Args: []any{receiver},
		}
		return s.dialect.Trim(ctx, db, old, limit)
	})
}

// KeepTypes stores the types of events that an instance of a receiver accepts, for some time from
// now.
func (s *InboxStore) KeepTypes(ctx context.Context, db bun.IDB, receiver string, types []string, kept time.Duration) error {
	return retry(ctx, db, func(db bun.IDB) error {
		for part := range slices.Chunk(slices.Compact(slices.Sorted(slices.Values(types))), inboxRows) {
			args := make([]any, 0, 2*len(part))
			for _, eventType := range part {
				args = append(args, receiver, eventType)
			}
			rows := dialect.Rows(`(?, ?, `+s.names.After(ctx, kept)+`)`, len(part))
			later := s.names.Merge("receiver, event_type", nil, []string{"until"})
			err := s.names.Exec(ctx, db, `INSERT INTO {inbox types}{as row} (receiver, event_type, until) VALUES `+rows+` `+later, args...)
			if err != nil {
				return fmt.Errorf("inbox: %w", err)
			}
		}
		return nil
	})
}

// KeptTypes returns the types of events that instances of a receiver accept.
func (s *InboxStore) KeptTypes(ctx context.Context, db bun.IDB, receiver string) ([]string, error) {
	const kept = `SELECT event_type FROM {inbox types} WHERE receiver = ? AND until > {now} ORDER BY event_type`
	return read[[]string](ctx, s.tables, db, kept, receiver)
}

// Inbox is the size of what a receiver has stored.
type Inbox struct {
	Hashes int            `bun:"hashes"` // counted up to a bound
	Oldest dialect.Moment `bun:"oldest"` // zero if there is none
	Now    dialect.Moment `bun:"now"`
}

// In order: a planner that may read any rows scans the table and may meet all rows of other
// receivers first.
const readInbox = `SELECT (SELECT count(*) FROM (SELECT 1 FROM {inbox} WHERE receiver = ? ORDER BY received_at LIMIT ?) i) AS hashes,
(SELECT MIN(received_at) FROM {inbox} WHERE receiver = ?) AS oldest, {now} AS now`

// Size returns how much a receiver has stored, counted up to limit.
func (s *InboxStore) Size(ctx context.Context, db bun.IDB, receiver string, limit int) (Inbox, error) {
	return read[Inbox](ctx, s.tables, db, readInbox, receiver, limit, receiver)
}

// countWaiting counts messages without a key, and those with one, each by its index.
const countWaiting = `SELECT count(*) FROM (SELECT 1 FROM {messages} m WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type = ?
  UNION ALL SELECT 1 FROM {by lane} m WHERE m.consumer_type = ? AND m.lane IS NOT NULL LIMIT ?) w`

// Waiting counts messages that wait for consumers of these names, up to limit.
func (s *InboxStore) Waiting(ctx context.Context, db bun.IDB, consumers []string, limit int) (n int, err error) {
	for _, consumer := range consumers {
		if n >= limit {
			break
		}
		more, err := read[int](ctx, s.tables, db, countWaiting, consumer, consumer, limit-n)
		if err != nil {
			return 0, fmt.Errorf("count waiting messages: %w", err)
		}
		n += more
	}
	return n, nil
}
