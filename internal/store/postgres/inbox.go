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

// Trim deletes rows by where they are. By their keys the planner would rather read all of a table of some 100,000 rows, and
// of a large one each would cost a look into another page of its primary key. An update that comes between spares its row: where
// that is now the statement does not see.
func (p *database) Trim(ctx context.Context, db bun.IDB, t dialect.Trimmed, limit int) (int, error) {
	return dialect.Affected(p.Query(ctx, db, `DELETE FROM `+t.Table+` WHERE ctid = ANY(ARRAY(SELECT ctid FROM `+t.Table+` WHERE `+t.Where+` ORDER BY `+t.OldestBy+` LIMIT ? FOR UPDATE SKIP LOCKED))`,
		append(t.Args, limit)...).Exec(ctx))
}
