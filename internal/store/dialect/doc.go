// Package dialect is what the store and the databases share: the [Dialect] that each of them
// implements, the rows that they exchange, and code for databases that are alike in something.
//
// A package beside this one implements it for each database. Files of the same name answer the same
// question: how messages are inserted, claimed and settled, how leases are kept and a consumer's
// transaction is fenced, what people change and count.
//
// It runs no statements of its own accord.
package dialect
