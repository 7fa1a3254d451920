package store

import (
	"context"

	"github.com/uptrace/bun"
)

func (s *sqlite) strangers(ctx context.Context, db bun.IDB, wants []Want) (found []Stranger, err error) {
	err = s.raw(ctx, db, strangersAmong(`SELECT j.value ->> 0, j.value ->> 1 FROM json_each(?) j`), pairs(wants)).Scan(ctx, &found)
	return found, err
}

func (s *sqlite) listed(names []string) (statement string, arg any) {
	return `SELECT value AS consumer FROM json_each(?)`, asJSON(names)
}

func (s *sqlite) held() string { return sqliteHeld }

func (s *sqlite) heldClaims() string {
	return `SELECT c.id AS claim_id, j.value AS mid FROM {claims} c, json_each(c.message_ids) j`
}
