// Package storetest is the conformance suite of the store: what every dialect
// must do, whatever its SQL looks like.
//
// It opens no database, [Run] is given one, and it replaces the database's clock, so that
// nothing in it waits for a lease to run out. It may import only bus, internal/store,
// internal/txn, internal/dberr and bun.
package storetest
