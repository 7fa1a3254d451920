// Package postgres is the store's dialect for PostgreSQL 13 and later.
package postgres
