// Package postgres is the store's dialect for PostgreSQL 13 and later.
//
// It may import only bus, internal/store/dialect, internal/txn, internal/dberr, bun and its pgdialect.
package postgres
