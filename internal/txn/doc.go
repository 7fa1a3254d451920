// Package txn is about transactions and the handles that lead to them: those of callers,
// which a call must leave whole or as they were, and those that the library begins. It
// repeats what loses a conflict, and announces what was written once that is committed.
//
// It knows no tables.
package txn
