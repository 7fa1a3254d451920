package postgres

import (
	"context"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

const receiveSQL = `
INSERT INTO {inbox} (receiver, hash, received_at) SELECT ?, decode(u.hash, 'hex'), {now} FROM unnest(?::text[]) u(hash)
ON CONFLICT (receiver, hash) DO NOTHING RETURNING encode(hash, 'hex')`

func (p *database) Receive(ctx context.Context, tx bun.IDB, receiver string, hashes []string) (added []string, err error) {
	err = p.Query(ctx, tx, receiveSQL, receiver, pgdialect.Array(hashes)).Scan(ctx, &added)
	return added, err
}
