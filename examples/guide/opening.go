package guide

import (
	"database/sql"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

// OpenPostgres opens PostgreSQL with pgx.
func OpenPostgres() (*bun.DB, error) {
	// snippet: postgres
	conns, err := sql.Open("pgx", "postgres://app:secret@db:5432/shop?default_query_exec_mode=exec")
	if err != nil {
		return nil, err
	}
	db := bun.NewDB(conns, pgdialect.New())
	// end
	return db, nil
}
