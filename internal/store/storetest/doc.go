// Package storetest is the conformance suite of the store: what every dialect
// must do, whatever its SQL looks like.
//
// It opens no database, [Run] is given one, and it replaces the database's clock, so that
// nothing in it waits for a lease to run out.
package storetest
