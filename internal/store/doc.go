// Package store is the only place that speaks SQL: the tables, how messages are
// inserted, claimed and settled, and the migrations. There is one file per
// dialect; everything else is shared.
//
// It knows nothing of handlers, loops or retry policies. It may import only bus, internal/txn,
// internal/dberr, internal/errorlog, bun and its dialects.
package store
