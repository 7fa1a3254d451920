// Package outbox is a transactional outbox: it produces messages in the caller's transaction and
// consumes them with background processors.
//
// A [Producer] writes one row per registered consumer in the given transaction. A [Processor]
// claims due rows under a lease, runs each through the consume chain, and settles the outcome.
// Package admin lists, explains, cancels and reschedules pending messages.
//
// # Guarantees
//
// Every consumer gets every committed message at least once. The database effects of a consumer
// made with [ConsumeTx] happen exactly once, since they commit together with the removal of the
// message. A crash repeats at most the messages in flight. A message that kills its process is
// poisoned after three deliveries. It runs alone in the last one, so other messages are not
// affected. There is no global order. While an ordinary consumer runs, the library holds no row
// lock and no open transaction. A ConsumeTx consumer runs inside a transaction that locks its own
// row.
package outbox
