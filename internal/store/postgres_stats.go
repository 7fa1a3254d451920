package store

import (
	"context"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

func (p *postgres) strangers(ctx context.Context, db bun.IDB, wants []Want) (found []Stranger, err error) {
	w := columnsOf(wants)
	err = p.raw(ctx, db, strangersAmong(`SELECT * FROM unnest(?::text[], ?::text[])`), pgdialect.Array(w.consumers), pgdialect.Array(w.payloads)).Scan(ctx, &found)
	return found, err
}

func (p *postgres) listed(names []string) (statement string, arg any) {
	return `SELECT unnest(?::text[]) AS consumer`, pgdialect.Array(names)
}

func (p *postgres) held() string { return pgHeld }

func (p *postgres) heldClaims() string {
	return `SELECT c.id AS claim_id, u.mid FROM {claims} c CROSS JOIN LATERAL unnest(c.message_ids) u(mid)`
}
