package pgxtx

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// Open returns a database for bun.NewDB that uses the connections of the pool, so that the
// application and the library share one. The pool may use pgx's default mode, which prepares
// statements: the library's queries are not prepared. Open sets SetMaxOpenConns to the pool's
// MaxConns, which outbox.NewProcessor checks. The caller closes the database, which does not close
// the pool.
func Open(pool *pgxpool.Pool) *sql.DB {
	db := sql.OpenDB(connector{stdlib.GetPoolConnector(pool)})
	db.SetMaxIdleConns(0) // idle connections stay in the pool
	db.SetMaxOpenConns(int(pool.Config().MaxConns))
	return db
}

type connector struct{ driver.Connector }

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return unprepared{conn.(*stdlib.Conn)}, nil
}

// unprepared is a connection that does not prepare queries without arguments.
type unprepared struct{ *stdlib.Conn }

// QueryContext implements driver.QueryerContext.
func (c unprepared) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if len(args) == 0 {
		args = []driver.NamedValue{{Ordinal: 1, Value: pgx.QueryExecModeExec}}
	}
	return c.Conn.QueryContext(ctx, query, args)
}
