package dialect

import (
	"context"

	"github.com/uptrace/bun"
)

// RunTx is a transaction in which a processor runs consumers.
type RunTx struct {
	bun.Tx
	// Plans are the statements that its connection has planned; nil if there are none.
	Plans Plans
}

// GiveBack gives the connection of a transaction back that is over.
func (tx *RunTx) GiveBack() {
	if tx.Plans != nil {
		_ = tx.Plans.Close()
		tx.Plans = nil
	}
}

// Plans are the planned statements of a transaction's connection.
type Plans interface {
	// Lost reports whether an error means that the statements are gone or outdated. The transaction
	// has been rolled back; the next one has new ones, or none.
	Lost(ctx context.Context, err error) bool
	// Close gives the connection back. It waits for the end of the transaction.
	Close() error
}
