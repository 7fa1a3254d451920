package contender

import (
	"context"
	"database/sql"
	"fmt"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
)

// OursMariaDB is AsyncMonolith on MariaDB.
func OursMariaDB(v Variant) Contender {
	return Contender{Name: "ours-mariadb", Open: func(ctx context.Context, dsn string, work Work) (System, error) {
		conns, err := sql.Open("mysql", dsn)
		if err != nil {
			return nil, fmt.Errorf("open mariadb: %w", err)
		}
		conns.SetMaxOpenConns(Pool)
		conns.SetMaxIdleConns(Pool)
		return openOurs(ctx, bun.NewDB(conns, mysqldialect.New()), v, work)
	}}
}
