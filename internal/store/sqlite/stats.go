package sqlite

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

func (s *database) Unhandled(ctx context.Context, db bun.IDB, wants []dialect.Want) (found []dialect.Unhandled, err error) {
	err = s.Query(ctx, db, dialect.UnregisteredAmong(`SELECT j.value ->> 0, j.value ->> 1 FROM json_each(?) j`), dialect.Pairs(wants)).
		Scan(ctx, &found)
	return found, err
}

func (s *database) Listed(names []string) (statement string, arg any) {
	return `SELECT value AS consumer FROM json_each(?)`, dialect.AsJSON(names)
}
