package bus

import (
	"context"
	"database/sql"
)

// Handle is a database handle: a *bun.DB, bun.Conn or bun.Tx, a *sql.Tx, or a transaction of another
// library with these two methods. *sqlx.Tx has them, and so have GORM's Statement.ConnPool inside a
// transaction and ent's *Tx, generated with the feature sql/execquery. Package pgxtx makes a Handle
// of a pgx.Tx.
//
// A transaction that is not Bun's needs [RegistryConfig.Dialect]. A pool that is not Bun's, such as
// *sql.DB, is refused: its statements would not be in one transaction.
type Handle interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}
