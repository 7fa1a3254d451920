package store

import (
	"context"
	"slices"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// BlockedKey is a key that a poisoned message blocks.
type BlockedKey struct {
	ConsumerType string         `bun:"consumer_type"`
	Lane         int64          `bun:"lane"`
	OrderKey     string         `bun:"order_key"`
	Poisoned     int64          `bun:"poisoned"`
	Since        dialect.Moment `bun:"since"`
	Waiting      int64          `bun:"waiting"`
}

// blocking is true for a poisoned message p that blocks its key, for the process that has claimed
// last.
const (
	blocking = `p.parks AND NOT EXISTS (SELECT 1 FROM {gates} g WHERE g.consumer_type = p.consumer_type AND NOT g.parks)`
	// keyBlocked is the key of a poisoned message, and whether it blocks that.
	keyBlocked = `order_key, (parks AND NOT EXISTS (SELECT 1 FROM {gates} g WHERE g.consumer_type = {poisoned}.consumer_type AND NOT g.parks)) AS parks`
)

// List returns blocked keys of a consumer, or of all if it is empty, those blocked for longest first.
func (s *KeyStore) List(ctx context.Context, db bun.IDB, consumer string, limit int) ([]BlockedKey, error) {
	var t terms
	t.add(consumer != "", "p.consumer_type = ?", consumer)
	t.add(true, blocking)
	keys, err := read[[]BlockedKey](ctx, s.tables, db, `
SELECT consumer_type, lane, MIN(order_key) AS order_key, MIN(id) AS poisoned, MIN(poisoned_at) AS since FROM {poisoned} p WHERE `+t.where()+`
GROUP BY consumer_type, lane ORDER BY MIN(poisoned_at), MIN(id) LIMIT ?`, append(t.args, limit)...)
	if err != nil {
		return nil, err
	}
	for part := range slices.Chunk(keys, 100) {
		var counts []string
		var args []any
		for i, k := range part {
			counts = append(
				counts,
				`SELECT ? AS place, count(*) AS n FROM (SELECT 1 FROM {by lane} m WHERE m.consumer_type = ? AND m.lane = ? AND m.lane IS NOT NULL LIMIT ?) w`,
			)
			args = append(args, i, k.ConsumerType, k.Lane, dialect.MostCounted)
		}
		type count struct {
			Place int
			N     int64
		}
		waiting, err := read[[]count](ctx, s.tables, db, strings.Join(counts, "\nUNION ALL "), args...)
		if err != nil {
			return nil, err
		}
		for _, w := range waiting {
			part[w.Place].Waiting = w.N
		}
	}
	return keys, nil
}

// BlockedKeys is how many keys of a consumer are blocked, and since when the first one is.
type BlockedKeys struct {
	ConsumerType string         `bun:"consumer_type"`
	N            int64          `bun:"n"`
	Since        dialect.Moment `bun:"since"`
}

// Count counts the blocked keys of each stored consumer type, up to a bound.
func (s *KeyStore) Count(ctx context.Context, db bun.IDB, consumers []string) (blocked map[string]BlockedKeys, err error) {
	blocked = make(map[string]BlockedKeys, len(consumers))
	for part := range slices.Chunk(consumers, 100) {
		var counts []string
		var args []any
		for _, name := range part {
			counts = append(
				counts,
				`SELECT ? AS consumer_type, count(DISTINCT x.lane) AS n, MIN(x.poisoned_at) AS since FROM (SELECT p.lane, p.poisoned_at FROM {poisoned} p WHERE p.consumer_type = ? AND `+blocking+` ORDER BY p.lane LIMIT ?) x`,
			)
			args = append(args, name, name, dialect.MostCounted)
		}
		rows, err := read[[]BlockedKeys](ctx, s.tables, db, strings.Join(counts, "\nUNION ALL "), args...)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			blocked[row.ConsumerType] = row
		}
	}
	return blocked, nil
}

// BlockedBy returns the message that blocks a lane of a consumer, if one does.
func (s *KeyStore) BlockedBy(ctx context.Context, db bun.IDB, names []string, lane int64) (BlockedKey, bool, error) {
	return first[BlockedKey](ctx, s.tables, db, `SELECT consumer_type, order_key, id AS poisoned, poisoned_at AS since FROM {poisoned} p
WHERE p.consumer_type IN (?) AND p.lane = ? AND `+blocking+` ORDER BY rank, id LIMIT 1`, bun.List(names), lane)
}

// FirstOfLane returns the id, lane and rank of the first message of a consumer's lane, under any of its
// names.
func (s *KeyStore) FirstOfLane(ctx context.Context, db bun.IDB, names []string, lane int64) (m dialect.Message, found bool, err error) {
	return first[dialect.Message](ctx, s.tables, db,
		`SELECT id, lane, rank FROM {by lane} m WHERE consumer_type IN (?) AND lane = ? AND lane IS NOT NULL ORDER BY rank LIMIT 1`, bun.List(names),
		lane)
}

// UsedOfLane returns how many messages of a source's lane are claimed, and how many crashed ones
// wait to be claimed.
func (s *KeyStore) UsedOfLane(ctx context.Context, db bun.IDB, source Source, lane int64) (dialect.UsedLane, error) {
	used, _, err := first[dialect.UsedLane](ctx, s.tables, db, dialect.UsedLanesSQL, source.Used(s.names, []int64{lane})...)
	return used, err
}
