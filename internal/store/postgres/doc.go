// Package postgres is the store's dialect for PostgreSQL 13 and later.
//
// It may import only bus, internal/dberr, internal/store/dialect, bun and its pgdialect.
package postgres
