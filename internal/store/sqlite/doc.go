// Package sqlite is the store's dialect for SQLite 3.42 and later.
//
// It may import only bus, internal/store/dialect, internal/dberr and bun.
package sqlite
