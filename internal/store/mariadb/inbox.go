package mariadb

import (
	"context"
	"fmt"
	"slices"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

const rememberedSQL = `SELECT LOWER(HEX(hash)) FROM {inbox} WHERE receiver = ? AND hash IN (`

// Receive looks up which hashes exist, since an insert does not return which it left out. If others
// write some in between, the new ones are found one by one.
func (m *database) Receive(ctx context.Context, tx bun.IDB, receiver string, hashes []string) (added []string, err error) {
	args := make([]any, 0, len(hashes)+1)
	args = append(args, receiver)
	for _, hash := range hashes {
		args = append(args, hash)
	}
	var known []string
	if err := m.Query(ctx, tx, rememberedSQL+dialect.Rows("UNHEX(?)", len(hashes))+`)`, args...).Scan(ctx, &known); err != nil {
		return nil, err
	}
	slices.Sort(known)
	unknown := slices.DeleteFunc(slices.Clone(hashes), func(hash string) bool {
		_, found := slices.BinarySearch(known, hash)
		return found
	})
	if len(unknown) == 0 {
		return nil, nil
	}
	const before = "asyncmonolith_inbox"
	if _, err := tx.NewRaw(`SAVEPOINT ` + before).Exec(ctx); err != nil {
		return nil, fmt.Errorf("savepoint: %w", err)
	}
	n, err := m.remember(ctx, tx, receiver, unknown)
	if err != nil || n == len(unknown) {
		return unknown, err
	}
	if _, err := tx.NewRaw(`ROLLBACK TO SAVEPOINT ` + before).Exec(ctx); err != nil {
		return nil, fmt.Errorf("savepoint: %w", err)
	}
	for _, hash := range unknown {
		n, err := m.remember(ctx, tx, receiver, []string{hash})
		if err != nil {
			return nil, err
		}
		if n == 1 {
			added = append(added, hash)
		}
	}
	return added, nil
}

// remember writes hashes that do not exist, and returns how many these were.
func (m *database) remember(ctx context.Context, tx bun.IDB, receiver string, hashes []string) (int, error) {
	args := make([]any, 0, 2*len(hashes))
	for _, hash := range hashes {
		args = append(args, receiver, hash)
	}
	return m.Changed(ctx, tx, `INSERT IGNORE INTO {inbox} (receiver, hash, received_at) VALUES `+
		dialect.Rows("(?, UNHEX(?), {now})", len(hashes)), args...)
}

// Trim names the index. A DELETE from one table has a limit here, but accepts no index hint, and
// sorts all rows of the primary key's range.
func (m *database) Trim(ctx context.Context, db bun.IDB, t dialect.Trimmed, limit int) (int, error) {
	return m.Changed(ctx, db, `DELETE t FROM (SELECT `+t.Key+` FROM `+t.Table+` FORCE INDEX (`+t.Index+`) WHERE `+t.Where+`
  ORDER BY `+t.OldestBy+` LIMIT ? {lock free}) o STRAIGHT_JOIN `+t.Table+` t FORCE INDEX (PRIMARY) USING (`+t.Key+`)`, append(t.Args, limit)...)
}
