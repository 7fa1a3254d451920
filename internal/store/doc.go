// Package store is, with the packages below it, the only place that speaks SQL: the tables,
// how messages are inserted, claimed and settled, and the migrations. What differs between
// databases is in a package for each, behind one interface; what does not is here.
//
// It knows nothing of handlers, loops or retry policies.
package store
