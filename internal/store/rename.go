package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Former is a claimed message that is stored under a former name of its consumer.
type Former struct {
	*dialect.Message
	Name string // the present one
}

// renamePatience bounds each statement of a rename, and how long a client that vanishes can keep
// locks.
const renamePatience = 5 * time.Second

var errNotHeld = errors.New("no message is held") // immutable

// Rename stores messages of a claim under the present names of their consumers, in a transaction of
// its own. From its commit on, programs that have only the former names do not find them. The
// former name stays in a header, see [dialect.Message.Deliver]. Rename changes the given messages
// like their rows, and returns the renamed ones. The others are no longer ours, or another
// transaction has them locked.
//
// An insert id is renamed with its message, unless it is pending under the present name: then the
// message loses it. Where insert ids have a table of their own they stay under the former name,
// where producers look as well.
func (s *ClaimStore) Rename(ctx context.Context, db *bun.DB, owner string, claim int64, rows []Former) (renamed map[int64]bool, err error) {
	var held []Former
	var headers map[int64]string
	var bare map[int64]bool
	err = txn.InTx(ctx, db, func(tx bun.Tx) (err error) {
		if held, err = s.fenceFormer(ctx, tx, owner, claim, rows); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if bare, err = s.dropKeys(ctx, tx, held); err != nil {
			return fmt.Errorf("insert ids: %w", err)
		}
		headers, err = s.rename(ctx, tx, held)
		return err
	})
	if errors.Is(err, errNotHeld) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("rename: %w", err)
	}
	renamed = make(map[int64]bool, len(held))
	for _, row := range held {
		renamed[row.ID], row.ConsumerType, row.Headers = true, row.Name, []byte(headers[row.ID])
		if bare[row.ID] {
			row.InsertID = ""
		}
	}
	return renamed, nil
}

// fenceFormer locks those of the messages that are still in the claim. Other processes cannot claim
// them before the end of the transaction, even if the lease ends.
func (s *ClaimStore) fenceFormer(ctx context.Context, tx bun.Tx, owner string, claim int64, rows []Former) ([]Former, error) {
	if err := s.within(ctx, tx, renamePatience); err != nil {
		return nil, err
	}
	f := dialect.Fence{Owner: owner, Idle: renamePatience}
	for _, row := range rows {
		f.Messages = append(f.Messages, dialect.Fenced{Claim: claim, ID: row.ID, Attempts: row.Attempts, Crashes: row.Crashes, Lane: row.Lane})
	}
	ids, err := s.Fence(ctx, tx, f)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, errNotHeld
	}
	return slices.DeleteFunc(slices.Clone(rows), func(row Former) bool { return !slices.Contains(ids, row.ID) }), nil
}

// dropKeys removes the insert ids of messages whose present names have them pending. It keeps
// others from inserting them until the end of the transaction.
func (s *ClaimStore) dropKeys(ctx context.Context, tx bun.Tx, rows []Former) (bare map[int64]bool, err error) {
	var keys []dialect.PendingKey
	for _, row := range rows {
		if row.InsertID != "" {
			keys = append(keys, row.key())
		}
	}
	if len(keys) == 0 || s.names.Keys != "" {
		return nil, nil
	}
	slices.SortFunc(keys, dialect.PendingKey.Compare)
	free, err := s.dialect.FreeKeys(ctx, tx, slices.Compact(keys))
	if err != nil {
		return nil, err
	}
	bare = make(map[int64]bool)
	var ids []int64
	for _, row := range rows {
		if row.InsertID != "" && !free[row.key()] {
			bare[row.ID], ids = true, append(ids, row.ID)
		}
		delete(free, row.key()) // two former names may have it
	}
	if len(ids) == 0 {
		return nil, nil
	}
	err = s.names.Exec(ctx, tx, `UPDATE {messages} SET insert_id = NULL WHERE id IN (?)`, bun.List(ids))
	return bare, err
}

func (f Former) key() dialect.PendingKey {
	return dialect.PendingKey{InsertID: f.InsertID, ConsumerType: f.Name}
}

// rename writes locked messages and returns their headers.
func (s *ClaimStore) rename(ctx context.Context, tx bun.Tx, rows []Former) (headers map[int64]string, err error) {
	headers = make(map[int64]string, len(rows))
	byName := make(map[string][]Former)
	for _, row := range rows {
		headers[row.ID] = row.WithFormer()
		byName[row.Name] = append(byName[row.Name], row)
	}
	for name, all := range byName {
		slices.SortFunc(all, func(a, b Former) int { return cmp.Compare(a.ID, b.ID) })
		for _, part := range dialect.Cut(all, dialect.InsertBytes, func(row Former) int { return len(headers[row.ID]) }) {
			args := []any{name}
			for _, row := range part {
				args = append(args, row.ID, headers[row.ID])
			}
			ids := dialect.Each(part, func(row Former) int64 { return row.ID })
			err := s.names.Exec(ctx, tx, `UPDATE {messages}{by key} SET consumer_type = ?, headers = CASE id`+strings.Repeat(" WHEN ? THEN ?", len(part))+
				` END WHERE id IN (?)`, append(args, bun.List(ids))...)
			if err != nil {
				return nil, err
			}
		}
	}
	return headers, nil
}
