// Package stdqueries has the queries of query.sql for database/sql. It is written by hand in the form that sqlc
// generates.
package stdqueries

import (
	"context"
	"database/sql"
)

// DBTX is a database or a transaction.
type DBTX interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

// New returns the queries on a database.
func New(db DBTX) *Queries { return &Queries{db: db} }

// Queries are the queries.
type Queries struct{ db DBTX }

// WithTx returns the queries in a transaction.
func (q *Queries) WithTx(tx *sql.Tx) *Queries { return &Queries{db: tx} }
