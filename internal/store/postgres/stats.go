package postgres

import (
	"context"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

func (p *database) Unregistered(ctx context.Context, db bun.IDB, wants []dialect.Want) (found []dialect.Unregistered, err error) {
	w := columnsOf(wants)
	err = p.Query(ctx, db, dialect.UnregisteredAmong(`SELECT * FROM unnest(?::text[], ?::text[])`), pgdialect.Array(w.consumers), pgdialect.Array(w.payloads)).Scan(ctx, &found)
	return found, err
}

func (p *database) Listed(names []string) (statement string, arg any) {
	return `SELECT unnest(?::text[]) AS consumer`, pgdialect.Array(names)
}
