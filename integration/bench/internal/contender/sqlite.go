package contender

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// OursSQLite is AsyncMonolith on SQLite; it is opened with the path of a file.
func OursSQLite(v Variant) Contender {
	return Contender{Name: "ours-sqlite", Open: func(ctx context.Context, path string, work Work) (System, error) {
		// As the README says; synchronous stays at its default, FULL.
		dsn := fmt.Sprintf("file:%s?_txlock=immediate&_pragma=busy_timeout(15000)&_pragma=journal_mode(WAL)", path)
		conns, err := sql.Open("sqlite", dsn)
		if err != nil {
			return nil, fmt.Errorf("open sqlite: %w", err)
		}
		conns.SetMaxOpenConns(4)
		return openOurs(ctx, bun.NewDB(conns, sqlitedialect.New()), v, work)
	}}
}
