// Package sqlite is the store's dialect for SQLite 3.42 and later.
package sqlite
