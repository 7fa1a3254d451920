// Package differential carries out random operations of producers, consumers, people
// and schedules, in random transactions, on PostgreSQL and SQLite, and compares after
// every step what the two store, and what a model of its own expects.
//
// It goes through the public API, with one clock for all. Package model does the same
// for the claims below it.
package differential
