// Package model is the claim ledger as a pure state machine: what producing,
// claiming, settling, extending and recovering mean, without SQL, without time
// that passes by itself, and without concurrency that nobody chose.
//
// It is put to use three times. A scheduler draws the steps of several processors, of
// which some are slow, repeat themselves or vanish, down to the two halves of a
// claim, and after every step the invariants I1 to I7 (invariants.go) are checked,
// and O1 to O6 (order.go), since some of the consumers have keys or rates, and there
// is a limit with its slots (rules.go). And the same sequences of
// operations are replayed on databases through internal/store, whose tables must
// agree with the model after every step. Third, what producers, consumers, operators and schedules
// call through the public API, in random transactions, leaves the same on every database as in the
// model (programs.go).
//
// The invariants are checked on what is visible before and after a step, and
// know nothing of how the model, or a database, gets from one to the other.
package model
