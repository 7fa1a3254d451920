package postgres

import (
	"context"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

const receiveSQL = `
INSERT INTO {inbox} (receiver, hash, received_at) SELECT ?, decode(u.hash, 'hex'), {now} FROM unnest(?::text[]) u(hash)
ON CONFLICT (receiver, hash) DO NOTHING RETURNING encode(hash, 'hex')`

func (p *database) Receive(ctx context.Context, tx bun.IDB, receiver string, hashes []string) (added []string, err error) {
	err = p.Query(ctx, tx, receiveSQL, receiver, pgdialect.Array(hashes)).Scan(ctx, &added)
	return added, err
}

// Trim deletes rows by their ctid. By their keys the planner would read all of a table of some
// 100,000 rows, and in a large one each row would cost a read of another page of its primary key. A
// concurrent update spares its row, because the statement does not see its new place.
func (p *database) Trim(ctx context.Context, db bun.IDB, t dialect.Trimmed, limit int) (int, error) {
	return p.Changed(ctx, db, `DELETE FROM `+t.Table+` WHERE ctid = ANY(ARRAY(SELECT ctid FROM `+t.Table+` WHERE `+t.Where+` ORDER BY `+t.OldestBy+` LIMIT ? FOR UPDATE SKIP LOCKED))`,
		append(t.Args, limit)...)
}
