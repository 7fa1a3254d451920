// Package pgxtx is for applications that use pgx without database/sql. [Of] lets them produce in
// their pgx.Tx, [ConsumeTx] gives consumers one, and [Open] lets the library use their pool.
//
// It is a module of its own, so that only applications which use pgx depend on it.
package pgxtx
