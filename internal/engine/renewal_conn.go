package engine

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
)

// renewalConn is a connection for renewals only. Consumers may use up the pool, and waits for a
// connection end in random order: a renewal could come too late for its leases.
//
// A database with one writer needs none: the pool may have one connection, and renewals wait for
// the writer anyway.
type renewalConn struct {
	db   *bun.DB
	keep bool
	conn *bun.Conn // nil while there is none
}

// use runs a statement within statementTimeout.
func (c *renewalConn) use(ctx context.Context, statement func(context.Context, bun.IDB) error) error {
	kept := c.conn != nil
	err := c.try(ctx, statement)
	if kept && c.conn == nil && ctx.Err() == nil {
		return c.try(ctx, statement) // it may have broken long ago, while idle
	}
	return err
}

func (c *renewalConn) try(ctx context.Context, statement func(context.Context, bun.IDB) error) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if !c.keep {
		return statement(ctx, c.db)
	}
	if c.conn == nil {
		conn, err := c.db.Conn(ctx)
		if err != nil {
			return err
		}
		c.conn = &conn
	}
	err := statement(ctx, *c.conn)
	if dberr.IsConnectionDoubtful(err) {
		c.close() // after a lesser error it is kept: a new one would have to wait for the pool
	}
	return err
}

// open takes the connection before consumers can use up the pool.
func (c *renewalConn) open(ctx context.Context) error {
	return c.try(ctx, func(context.Context, bun.IDB) error { return nil })
}

func (c *renewalConn) close() {
	if c.conn != nil {
		_ = c.conn.Close() // returns it to the pool, which drops it if broken
		c.conn = nil
	}
}
