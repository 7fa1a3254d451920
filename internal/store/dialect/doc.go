// Package dialect is what the store and the databases share: the [Dialect] that each of
// them is, the rows that go to and fro, and code for databases that are alike in something.
//
// A package beside this one implements it for each database. The same file name in each
// answers the same question: how messages are inserted, claimed and settled, how leases are
// kept and a consumer's transaction is fenced, what people change and count.
//
// It speaks to no database of its own accord.
package dialect
