package sqlite

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

const receiveSQL = `
INSERT INTO {inbox} (receiver, hash, received_at) SELECT ?, unhex(j.value), {now} FROM json_each(?) j WHERE TRUE
ON CONFLICT (receiver, hash) DO NOTHING RETURNING lower(hex(hash))`

func (s *database) Receive(ctx context.Context, tx bun.IDB, receiver string, hashes []string) (added []string, err error) {
	err = s.Query(ctx, tx, receiveSQL, receiver, dialect.AsJSON(hashes)).Scan(ctx, &added)
	return added, err
}

func (s *database) Trim(ctx context.Context, db bun.IDB, t dialect.Trimmed, limit int) (int, error) {
	return s.Changed(ctx, db, `DELETE FROM `+t.Table+` WHERE (`+t.Key+`) IN (SELECT `+t.Key+` FROM `+t.Table+` WHERE `+t.Where+` ORDER BY `+t.OldestBy+` LIMIT ?)`,
		append(t.Args, limit)...)
}
