package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
)

// Poisoned is a row of poisoned_messages.
type Poisoned struct {
	bun.BaseModel `bun:"table:poisoned_messages,alias:p"`

	Message
	PoisonedAt Moment `bun:"poisoned_at"`
	Reason     string `bun:"reason"`
}

// PoisonFilter selects poisoned messages; zero fields select all.
type PoisonFilter struct {
	IDs                           []int64
	Consumer, PayloadType         string
	PoisonedAfter, PoisonedBefore time.Time
	Error                         string        // anywhere in the reason or the errors
	BeforeAt                      time.Time     // only what is older than this place,
	BeforeID                      int64         // newest first
	AfterID                       int64         // only greater ids
	OlderThan                     time.Duration // by the database's clock
	Aged                          bool          // OlderThan counts, even when it is zero
}

func (s *Store) poisonWhere(ctx context.Context, q bun.QueryBuilder, f PoisonFilter) bun.QueryBuilder {
	if len(f.IDs) > 0 {
		q = q.Where("id IN (?)", bun.List(f.IDs))
	}
	if f.Consumer != "" {
		q = q.Where("consumer_type = ?", f.Consumer)
	}
	if f.PayloadType != "" {
		q = q.Where("payload_type = ?", f.PayloadType)
	}
	if !f.PoisonedAfter.IsZero() {
		q = q.Where("poisoned_at > " + s.at(f.PoisonedAfter))
	}
	if !f.PoisonedBefore.IsZero() {
		q = q.Where("poisoned_at < " + s.at(f.PoisonedBefore))
	}
	if f.Error != "" {
		pattern := "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(f.Error) + "%"
		q = q.Where(`(reason LIKE ? ESCAPE '\' OR errors LIKE ? ESCAPE '\')`, pattern, pattern)
	}
	if f.BeforeID != 0 {
		q = q.Where("(poisoned_at, id) < ("+s.at(f.BeforeAt)+", ?)", f.BeforeID)
	}
	if f.AfterID != 0 {
		q = q.Where("id > ?", f.AfterID)
	}
	if f.Aged {
		q = q.Where("poisoned_at <= " + s.after(ctx, -f.OlderThan))
	}
	return q
}

// PoisonedMessages lists poisoned messages, newest first.
func (s *Store) PoisonedMessages(ctx context.Context, db bun.IDB, f PoisonFilter, limit int) (rows []Poisoned, err error) {
	q := db.NewSelect().Model(&rows).ModelTableExpr(s.names.poisoned + " AS p")
	err = s.poisonWhere(ctx, q.QueryBuilder(), f).Unwrap().(*bun.SelectQuery).OrderExpr("poisoned_at DESC, id DESC").Limit(int64(limit)).Scan(ctx)
	return rows, err
}

// CountPoisoned counts poisoned messages.
func (s *Store) CountPoisoned(ctx context.Context, db bun.IDB, f PoisonFilter) (int, error) {
	q := db.NewSelect().Model((*Poisoned)(nil)).ModelTableExpr(s.names.poisoned + " AS p")
	n, err := s.poisonWhere(ctx, q.QueryBuilder(), f).Unwrap().(*bun.SelectQuery).Count(ctx)
	return int(n), err
}

// DeletePoisoned deletes at most limit poisoned messages and returns how many.
func (s *Store) DeletePoisoned(ctx context.Context, db bun.IDB, f PoisonFilter, limit int) (int, error) {
	q := db.NewSelect().Model((*Poisoned)(nil)).ModelTableExpr(s.names.poisoned + " AS p").Column("id")
	ids := s.poisonWhere(ctx, q.QueryBuilder(), f).Unwrap().(*bun.SelectQuery).OrderExpr("id").Limit(int64(limit))
	return affected(db.NewDelete().Model((*Poisoned)(nil)).ModelTableExpr(s.names.poisoned+" AS p").Where("id IN (?)", ids).Exec(ctx))
}

// LockPoisoned locks poisoned messages for the rest of the transaction, in the
// order of their ids, so that two callers cannot deadlock, and that the second
// finds them gone.
func (s *Store) LockPoisoned(ctx context.Context, tx bun.Tx, f PoisonFilter, limit int) (rows []Poisoned, err error) {
	if tx.Dialect().Name() == dialect.SQLite { // a write first takes the only write lock
		if _, err := tx.NewRaw(s.names.expand(`UPDATE {poisoned} SET id = id WHERE id < 0`)).Exec(ctx); err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
	}
	q := tx.NewSelect().Model(&rows).ModelTableExpr(s.names.poisoned + " AS p")
	q = s.poisonWhere(ctx, q.QueryBuilder(), f).Unwrap().(*bun.SelectQuery).OrderExpr("id").Limit(int64(limit))
	if s.RowLocks() {
		q = q.For("UPDATE")
	}
	err = q.Scan(ctx)
	return rows, err
}

// Requeue makes a pending message, with a new row id, out of a locked poisoned
// one. False means that its insert id is pending already; then nothing changes.
func (s *Store) Requeue(ctx context.Context, tx bun.Tx, row Poisoned) (bool, error) {
	written, err := s.Insert(ctx, tx, []NewMessage{{
		MessageID: row.MessageID, ConsumerType: row.ConsumerType, PayloadType: row.PayloadType, Payload: string(row.Payload),
		Headers: string(row.Headers), InsertID: row.InsertID, CreatedAt: row.CreatedAt.Time,
	}})
	if err != nil || written[row.MessageID] == 0 {
		return false, err
	}
	_, err = s.DeletePoisoned(ctx, tx, PoisonFilter{IDs: []int64{row.ID}}, 1)
	return true, err
}
