// Package projection reads the event log in order and keeps tables up to date
// with it.
//
// A [Projection] is a name, a version, and functions that apply events in a
// transaction. A [Runner] gives it the events in the order of their positions, or
// of their streams where it has several shards, and moves its checkpoint in the
// transaction that applies them: each is applied exactly once, as far as the
// database is concerned. While it applies events a transaction is open that locks
// the checkpoint. A projection that fails keeps its place until the event is
// applied, or put aside if it says so. An [Admin] shows how far all of them are, without their functions.
//
// It does not append events, that is package eventlog; where order does not matter a consumer
// is simpler.
package projection
