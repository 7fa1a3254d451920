package outbox

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/engine"
)

// ConsumeTx makes a transactional consumer. fn runs in a READ COMMITTED transaction that also
// removes the message, so writes of fn through tx happen exactly once. When fn fails, the
// transaction is rolled back and the message is retried like any other.
//
// The function's type decides whether tx is a bun.Tx or a *sql.Tx. Package pgxtx has consumers with
// a pgx.Tx.
//
// fn must not commit or roll back tx, not even in SQL; its result decides. If fn ends tx and
// returns nil, the message is poisoned at once. This does not apply if fn ends tx in SQL on MariaDB
// or SQLite, where the library cannot tell that the server did not end it. fn must close its rows
// before it returns, or else the run fails. Savepoints named asyncmonolith are the library's.
//
// Keep such consumers short: each holds a connection and a row lock. On SQLite each holds the
// database's write lock, and its timeout must be less than busy_timeout. Effects outside of tx, and
// through any other connection, are at-least-once.
func ConsumeTx[T bus.Payload, H bun.Tx | *sql.Tx](
	name string, fn func(ctx context.Context, tx H, payload T) error, options ...bus.ConsumerOption,
) bus.Consumer {
	return engine.ConsumeTx(name, fn, options...)
}

// ConsumeBatchTx makes a transactional consumer of batches. fn gets many payloads at once, as with
// bus.ConsumeBatch, in a transaction that also removes their messages, as with [ConsumeTx]. When
// one payload fails, the transaction is rolled back. Failed messages are retried like any other.
// The rest of the batch is passed to fn again at once, in a new transaction.
func ConsumeBatchTx[T bus.Payload, H bun.Tx | *sql.Tx](
	name string, fn func(ctx context.Context, tx H, payloads []T) error, options ...bus.ConsumerOption,
) bus.Consumer {
	return engine.ConsumeBatchTx(name, fn, options...)
}

// GroupCommit lets a consumer made by [ConsumeTx] share transactions. Up to n waiting messages are
// consumed in one transaction, one after the other, each after its own savepoint. This saves most
// round trips and commits, and multiplies the throughput of short handlers. n is 1 to 50.
// NewProcessor refuses any other n, consumers of batches, and those that are not transactional.
//
// The guarantees stay the same. A failed handler rolls back its own writes and nothing else. The
// chain of each message returns once the outcome of the commit is known. A message that has failed
// before gets its own transaction. A group counts once towards Concurrency and TxConcurrency.
//
// A handler must not end the transaction. If it commits, the messages before it in the group run
// again, although what they wrote is kept.
//
// SET LOCAL, advisory locks and row locks stay in effect for later messages of the group. A handler
// that writes through another connection to a row that its group has locked blocks until its
// timeout. When the commit fails, on a deferred constraint for instance, each message runs again in
// its own transaction, to find the one at fault. A message's timeout includes its wait for the rest
// of the group, which takes at most half of the timeout.
func GroupCommit(n int) bus.ConsumerOption { return engine.GroupCommit(n) }
