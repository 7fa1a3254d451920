// Package pgxqueries has the queries of query.sql for pgx/v5. It is written by hand in the form that sqlc
// generates.
package pgxqueries

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DBTX is a database or a transaction.
type DBTX interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	Query(context.Context, string, ...any) (pgx.Rows, error)
	QueryRow(context.Context, string, ...any) pgx.Row
}

// New returns the queries on a database.
func New(db DBTX) *Queries { return &Queries{db: db} }

// Queries are the queries.
type Queries struct{ db DBTX }

// WithTx returns the queries in a transaction.
func (q *Queries) WithTx(tx pgx.Tx) *Queries { return &Queries{db: tx} }
