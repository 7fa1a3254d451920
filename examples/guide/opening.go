package guide

import (
	"database/sql"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
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

// OpenSQLite opens SQLite. The program imports the driver, modernc.org/sqlite.
func OpenSQLite() (*bun.DB, error) {
	// snippet: sqlite
	conns, err := sql.Open("sqlite", "file:shop.db?_txlock=immediate&_pragma=busy_timeout(15000)&_pragma=journal_mode(WAL)")
	// end
	if err != nil {
		return nil, err
	}
	return bun.NewDB(conns, sqlitedialect.New()), nil
}
