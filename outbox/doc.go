// Package outbox produces messages in the caller's transaction and consumes
// them with background processors: the transactional outbox.
//
// A [Producer] writes one row per registered consumer in the transaction it is
// given. A [Processor] claims due rows under a lease, runs each through the
// consume chain, and settles the outcome. A client of package admin shows
// what waits, says why, and changes it.
//
// # Guarantees
//
// Every consumer gets every committed message at least once. The database
// effects of a consumer made with [ConsumeTx] happen exactly once, since they
// commit together with the removal of the message. A crash repeats at most what
// was in flight. A message that kills its process is poisoned after three
// deliveries, the last one alone, without taking others with it. There is no global
// order, and no row lock or transaction of the library is open while an ordinary consumer
// runs; a ConsumeTx consumer runs inside a transaction that locks its own row.
package outbox
