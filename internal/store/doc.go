// Package store is, with the packages below it, the only place with SQL: the tables, the
// migrations, and how messages are inserted, claimed and settled. What differs between databases is
// in a package for each, behind one interface; the rest is here.
//
// It has no handlers, loops or retry policies.
package store
