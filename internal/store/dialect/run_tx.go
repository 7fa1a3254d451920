package dialect

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"
)

// RunTx is a transaction in which a processor runs consumers.
type RunTx struct {
	bun.Tx
	// Plans are the statements that its connection has planned; nil if there are none.
	Plans Plans
}

// Plans are the planned statements of a transaction's connection.
type Plans interface {
	// Lost reports whether an error means that the statements are gone or outdated. The transaction
	// has been rolled back; the next one has new ones, or none.
	Lost(ctx context.Context, err error) bool
	// Close gives the connection back. It waits for the end of the transaction.
	Close() error
}

// readCommitted is how each transaction of the library begins.
var readCommitted = sql.TxOptions{Isolation: sql.LevelReadCommitted} // immutable

// BeginRun begins the transaction, which ends with ctx at the latest.
func (Names) BeginRun(ctx context.Context, db *bun.DB) (RunTx, error) {
	tx, err := db.BeginTx(ctx, &readCommitted)
	return RunTx{Tx: tx}, err
}
