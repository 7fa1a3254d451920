// Package differential carries out random operations of producers, consumers, operators
// and schedules, in random transactions, on PostgreSQL, SQLite and MariaDB. After every
// step the answers and the stored rows must be the same on all three.
//
// It goes through the public API, with one clock for all. It has no model, so it cannot notice
// a mistake that all databases share. Package model has one, of the claims.
package differential
