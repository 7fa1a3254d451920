package outbox

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/engine"
)

// ConsumeTx makes a transactional consumer: fn runs in a READ COMMITTED
// transaction that also removes the message, so what fn writes through tx
// happens exactly once. When fn fails the transaction is rolled back and the
// message is retried like any other.
//
// fn must not commit or roll back tx; what it returns decides. Keep such consumers
// short: each holds a connection and a row lock, and on SQLite the write lock of
// the database, where the timeout must be less than busy_timeout. Effects outside
// of tx, and through any other connection, are at-least-once.
func ConsumeTx[T bus.Payload](name string, fn func(ctx context.Context, tx bun.Tx, payload T) error, options ...bus.ConsumerOption) bus.Consumer {
	return engine.ConsumeTx(name, fn, options...)
}

// ConsumeBatchTx makes a consumer that gets many payloads at once, as bus.ConsumeBatch does,
// in a transaction that also removes their messages, as [ConsumeTx] does. When one of them
// fails the transaction is rolled back. The failed ones are retried like any other, and the
// rest of the batch is given to fn again at once, in a new transaction.
func ConsumeBatchTx[T bus.Payload](name string, fn func(ctx context.Context, tx bun.Tx, payloads []T) error, options ...bus.ConsumerOption) bus.Consumer {
	return engine.ConsumeBatchTx(name, fn, options...)
}

// GroupCommit has a consumer made by [ConsumeTx] share its transactions: up to n
// messages that wait at the same time are consumed in one transaction, one after
// the other, each behind a savepoint of its own. That saves most of the round
// trips and commits, and so multiplies the throughput of short handlers. n is 1 to
// 50. NewProcessor refuses any other, and consumers made by bus.Consume.
//
// Nothing changes in what is promised: a message whose handler fails takes back
// what that handler has written and nothing else, and the chain of each message
// returns when it is known whether the transaction was committed. A message that
// has failed before gets a transaction of its own. A group counts once towards
// Concurrency and TxConcurrency.
//
// What a handler does to the transaction as a whole now outlives it, until the
// others are done: SET LOCAL, advisory locks, locks of its rows, for which it waits
// in vain when it writes them through another connection. And when the commit fails
// for what one of them did, a deferred constraint for instance, each runs again in a
// transaction of its own, to find out which. The timeout of a consumer includes the
// wait for the others of the group, which takes at most half of it.
func GroupCommit(n int) bus.ConsumerOption { return engine.GroupCommit(n) }
