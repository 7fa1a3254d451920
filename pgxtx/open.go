package pgxtx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

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
	if pool == nil {
		return sql.OpenDB(connector{})
	}
	db := sql.OpenDB(connector{stdlib.GetPoolConnector(pool)})
	db.SetMaxIdleConns(0) // idle connections stay in the pool
	db.SetMaxOpenConns(int(pool.Config().MaxConns))
	return db
}

// connector makes connections of a pool. Its Connector is nil without one.
type connector struct{ driver.Connector }

// Driver implements driver.Connector.
func (c connector) Driver() driver.Driver { return stdlib.GetDefaultDriver() }

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.Connector == nil {
		return nil, errors.New("pgxtx: open: the pool is nil")
	}
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return unprepared{conn.(*stdlib.Conn)}, nil
}

// stdConn gives unprepared's field a name that does not hide the method Conn.
type stdConn = stdlib.Conn

// unprepared is a connection that does not prepare queries without arguments.
type unprepared struct{ *stdConn }

// ExecContext implements driver.ExecerContext. A [capture] gets the connection without a statement,
// which tracers would see.
func (c unprepared) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if len(args) == 1 && !c.Conn().IsClosed() {
		if use, ok := args[0].Value.(capture); ok {
			use(c.Conn())
			return nil, errCaptured
		}
	}
	return c.stdConn.ExecContext(ctx, query, args)
}

// QueryContext implements driver.QueryerContext.
func (c unprepared) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if len(args) == 0 {
		args = []driver.NamedValue{{Ordinal: 1, Value: pgx.QueryExecModeExec}}
	}
	return c.stdConn.QueryContext(ctx, query, args)
}
