package store

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

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

// LastFailures returns, of each consumer, the reported failure that its last poisoned message has, if there is one.
func (s *PoisonStore) LastFailures(ctx context.Context, db bun.IDB, consumers []string) (failures []FailureGroup, err error) {
	for part := range slices.Chunk(consumers, together) {
		const of = failureColumns + `consumer_type = ? AND fingerprint =
  (SELECT p.fingerprint FROM {poisoned} p WHERE p.consumer_type = ? ORDER BY p.poisoned_at DESC LIMIT 1)`
		var args []any
		for _, consumer := range part {
			args = append(args, consumer, consumer)
		}
		found, err := read[[]FailureGroup](ctx, s.tables, db, of+strings.Repeat(" UNION ALL "+of, len(part)-1), args...)
		if err != nil {
			return nil, err
		}
		failures = append(failures, found...)
	}
	return failures, nil
}

// PoisonKind sums up the matching messages of a consumer and payload type.
type PoisonKind struct {
	ConsumerType, PayloadType string
	Messages                  int
	Conflicts                 int // messages whose insert id is pending
	Oldest, Newest            time.Time
}

// PoisonPreview sums up poisoned messages.
type PoisonPreview struct {
	Now   time.Time
	IDs   []int64      // in ascending order
	Kinds []PoisonKind // sorted by consumer and payload type
}

// previewed is a message of a preview.
type previewed struct {
	ID           int64          `bun:"id"`
	ConsumerType string         `bun:"consumer_type"`
	PayloadType  string         `bun:"payload_type"`
	PoisonedAt   dialect.Moment `bun:"poisoned_at"`
	Conflict     int            `bun:"conflict"`
	Now          dialect.Moment `bun:"now"`
}

// Preview looks at the first matching messages in the order of their ids, in pages. An insert id may
// be pending under any name of its consumer.
func (s *PoisonStore) Preview(ctx context.Context, db bun.IDB, f PoisonFilter, names [][]string, limit int) (p PoisonPreview, err error) {
	of := make(map[[2]string]*PoisonKind)
	for more := true; more; {
		page := min(limit-len(p.IDs), previewPage)
		rows, err := s.previewed(ctx, db, f, names, page)
		if err != nil {
			return PoisonPreview{}, err
		}
		for _, row := range rows {
			p.Now, p.IDs, f.AfterID = row.Now.Time, append(p.IDs, row.ID), row.ID
			key := [2]string{row.ConsumerType, row.PayloadType}
			if of[key] == nil {
				of[key] = &PoisonKind{ConsumerType: row.ConsumerType, PayloadType: row.PayloadType, Oldest: row.PoisonedAt.Time}
			}
			of[key].add(row)
		}
		more = len(rows) == page && len(p.IDs) < limit
	}
	for _, key := range slices.SortedFunc(maps.Keys(of), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		p.Kinds = append(p.Kinds, *of[key])
	}
	return p, nil
}

// previewPage is how many messages a preview reads at a time.
const previewPage = 10_000

func (s *PoisonStore) previewed(ctx context.Context, db bun.IDB, f PoisonFilter, names [][]string, limit int) ([]previewed, error) {
	taken, args := "k.consumer_type = p.consumer_type", []any(nil)
	for _, of := range names {
		taken += " OR p.consumer_type IN (?) AND k.consumer_type IN (?)"
		args = append(args, bun.List(of), bun.List(of))
	}
	where := s.poisonWhere(ctx, f)
	return read[[]previewed](ctx, s.tables, db, `SELECT p.id, p.consumer_type, p.payload_type, p.poisoned_at,
  CASE WHEN p.insert_id IS NOT NULL AND (SELECT 1 FROM {keys} k WHERE k.insert_id = p.insert_id AND k.id IS NOT NULL AND (`+taken+`) LIMIT 1) IS NOT NULL THEN 1 ELSE 0 END AS conflict,
  {now} AS now
FROM {poisoned} p WHERE `+where.where()+` ORDER BY p.id LIMIT ?`, append(append(args, where.args...), limit)...)
}

func (k *PoisonKind) add(row previewed) {
	k.Messages, k.Conflicts = k.Messages+1, k.Conflicts+row.Conflict
	if row.PoisonedAt.Before(k.Oldest) {
		k.Oldest = row.PoisonedAt.Time
	}
	if row.PoisonedAt.After(k.Newest) {
		k.Newest = row.PoisonedAt.Time
	}
}
