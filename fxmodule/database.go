package fxmodule

import (
	"database/sql"
	"errors"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"
	"go.uber.org/fx"
)

type databaseParams struct {
	fx.In

	Bun     *bun.DB        `optional:"true"`
	SQL     *sql.DB        `optional:"true"`
	Dialect schema.Dialect `optional:"true"`
}

// database is the application's *bun.DB, or one made of its *sql.DB.
type database struct{ db *bun.DB }

func newDatabase(p databaseParams) (database, error) {
	switch {
	case p.Bun != nil:
		return database{p.Bun}, nil
	case p.SQL != nil && p.Dialect != nil:
		return database{bun.NewDB(p.SQL, p.Dialect)}, nil
	}
	const allowed = "provide a *bun.DB, or a *sql.DB and a schema.Dialect"
	if p.SQL != nil {
		return database{}, errors.New("fxmodule: a *sql.DB is provided without a dialect: " + allowed +
			" of Bun (as the interface: fx does not convert the *Dialect of pgdialect.New)")
	}
	return database{}, errors.New("fxmodule: no database is provided: " + allowed)
}
