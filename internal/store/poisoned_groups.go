package store

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

const (
	together        = 100    // groups that one statement asks for
	countedTogether = 30_000 // rows that one counts: for more PostgreSQL would compile it, which takes far longer
)

// Groups returns groups of poisoned messages, of a consumer or of all, by consumer, and at
// most so many. whole reports whether these are all.
func (s *PoisonStore) Groups(ctx context.Context, db bun.IDB, consumer string, most int) (groups []GroupKey, whole bool, err error) {
	groups, err = retried(ctx, db, func(db bun.IDB) (found []GroupKey, err error) {
		found, whole, err = s.dialect.PoisonGroups(ctx, db, consumer, most)
		return found, err
	})
	return groups, whole, err
}

// PoisonGroup is the size of a group.
type PoisonGroup struct {
	dialect.GroupKey `bun:",extend"`
	Messages         int            `bun:"messages"`
	FirstAt          dialect.Moment `bun:"first_at"` // when the message with the lowest id was poisoned
	LastAt           dialect.Moment `bun:"last_at"`  // when the message with the highest id was poisoned
}

// Columns for one group, whose condition replaces {group}. Instants are read at the ends of the
// index: the extremes of all would have to be read row by row.
const (
	groupLast = `(SELECT p.poisoned_at FROM {poisoned} p WHERE {group} ORDER BY {last of group} LIMIT 1) AS last_at`
	groupSize = groupLast + `,
  (SELECT p.poisoned_at FROM {poisoned} p WHERE {group} ORDER BY {first of group} LIMIT 1) AS first_at,
  (SELECT count(*) FROM (SELECT 1 AS one FROM {poisoned} p WHERE {group} LIMIT %d) x) AS messages`
)

// GroupSizes counts groups up to a bound.
func (s *PoisonStore) GroupSizes(ctx context.Context, db bun.IDB, groups []GroupKey, most int) ([]PoisonGroup, error) {
	return s.ofGroups(ctx, db, fmt.Sprintf(groupSize, most), slices.Chunk(groups, min(max(countedTogether/most, 1), together)))
}

// GroupsLast fills in their LastAt only.
func (s *PoisonStore) GroupsLast(ctx context.Context, db bun.IDB, groups []GroupKey) ([]PoisonGroup, error) {
	return s.ofGroups(ctx, db, groupLast, slices.Chunk(groups, together))
}

func (s *PoisonStore) ofGroups(ctx context.Context, db bun.IDB, columns string, parts iter.Seq[[]GroupKey]) (all []PoisonGroup, err error) {
	for part := range parts {
		var statements []string
		var args []any
		for _, g := range part {
			group, of := "p.consumer_type = ? AND p.fingerprint = ?", []any{g.ConsumerType, g.Fingerprint}
			if g.Fingerprint == "" {
				group, of = "p.consumer_type = ? AND p.fingerprint IS NULL", of[:1]
			}
			statements = append(statements, `SELECT ? AS consumer_type, ? AS fingerprint, `+strings.ReplaceAll(columns, "{group}", group))
			args = append(args, g.ConsumerType, g.Fingerprint)
			args = append(args, slices.Repeat(of, strings.Count(columns, "{group}"))...)
		}
		found, err := read[[]PoisonGroup](ctx, s.tables, db, strings.Join(statements, " UNION ALL "), args...)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// FailuresOf returns the reported failures of groups, if there are any.
func (s *PoisonStore) FailuresOf(ctx context.Context, db bun.IDB, groups []GroupKey) (failures []FailureGroup, err error) {
	for part := range slices.Chunk(groups, together) {
		var args []any
		for _, g := range part {
			args = append(args, g.ConsumerType, g.Fingerprint)
		}
		conditions := strings.TrimSuffix(strings.Repeat("consumer_type = ? AND fingerprint = ? OR ", len(part)), " OR ")
		found, err := read[[]FailureGroup](ctx, s.tables, db, failureColumns+conditions, args...)
		if err != nil {
			return nil, err
		}
		failures = append(failures, found...)
	}
	return failures, nil
}

// PoisonKind sums up the matching messages of a consumer and payload type.
type PoisonKind struct {
	ConsumerType string         `bun:"consumer_type"`
	PayloadType  string         `bun:"payload_type"`
	Messages     int            `bun:"messages"`
	Conflicts    int            `bun:"conflicts"` // whose insert id is pending
	Oldest       dialect.Moment `bun:"oldest"`
	Newest       dialect.Moment `bun:"newest"`
	Last         int64          `bun:"last"` // the highest id
	Now          dialect.Moment `bun:"now"`
}

// Preview looks at the first matching messages in the order of their ids. An insert id may
// be pending under any name of its consumer.
func (s *PoisonStore) Preview(ctx context.Context, db bun.IDB, f PoisonFilter, names [][]string, limit int) ([]PoisonKind, error) {
	taken, args := "k.consumer_type = p.consumer_type", []any(nil)
	for _, of := range names {
		taken += " OR p.consumer_type IN (?) AND k.consumer_type IN (?)"
		args = append(args, bun.List(of), bun.List(of))
	}
	where := s.poisonWhere(ctx, f)
	return read[[]PoisonKind](
		ctx,
		s.tables,
		db,
		`SELECT x.consumer_type, x.payload_type, count(*) AS messages, SUM(x.conflict) AS conflicts, MIN(x.poisoned_at) AS oldest, MAX(x.poisoned_at) AS newest, MAX(x.id) AS last, {now} AS now
FROM (SELECT p.id, p.consumer_type, p.payload_type, p.poisoned_at,
    CASE WHEN p.insert_id IS NOT NULL AND (SELECT 1 FROM {keys} k WHERE k.insert_id = p.insert_id AND k.id IS NOT NULL AND (`+taken+`) LIMIT 1) IS NOT NULL THEN 1 ELSE 0 END AS conflict
  FROM {poisoned} p WHERE `+where.where()+` ORDER BY p.id LIMIT ?) x
GROUP BY x.consumer_type, x.payload_type ORDER BY x.consumer_type, x.payload_type`,
		append(append(args, where.args...), limit)...)
}
