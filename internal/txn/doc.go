// Package txn handles transactions and the handles that lead to them: those of callers, which a
// call must leave whole or unchanged, and those that the library begins. It repeats transactions
// that lose a conflict, and announces what was written once it is committed.
//
// It knows no tables.
package txn
