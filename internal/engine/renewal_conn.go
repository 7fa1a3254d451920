package engine

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
)

// turnLook is how often a renewal that waits for those of other processors looks for a free connection.
const turnLook = 100 * time.Millisecond

// renewalConn is a connection of a pool for renewals only. The processors of the pool share it,
// with the query hooks of the handle that opened it.
// Consumers may use up the pool, and waits for a connection end in random order: a renewal could
// come too late for its leases.
type renewalConn struct {
	users int           // guarded by renewalConns.mu
	turn  chan struct{} // full while the connection is in use
	conn  *bun.Conn     // nil while there is none; guarded by turn
}

// renewalConns are those of the pools of this process that have running processors.
var renewalConns = struct {
	mu    sync.Mutex
	pools map[*sql.DB]*renewalConn
}{pools: make(map[*sql.DB]*renewalConn)}

// renewalConnOf returns the connection of a pool. The caller must release it.
func renewalConnOf(pool *sql.DB) (c *renewalConn, release func()) {
	renewalConns.mu.Lock()
	defer renewalConns.mu.Unlock()
	c = renewalConns.pools[pool]
	if c == nil {
		c = &renewalConn{turn: make(chan struct{}, 1)}
		renewalConns.pools[pool] = c
	}
	c.users++
	return c, func() {
		renewalConns.mu.Lock()
		defer renewalConns.mu.Unlock()
		if c.users--; c.users == 0 {
			delete(renewalConns.pools, pool)
			c.close()
		}
	}
}

// use runs a statement within statementTimeout. While another processor's statement hangs, it takes
// a connection that is free in the pool. It takes one of the pool, too, if c is nil.
func (c *renewalConn) use(ctx context.Context, db *bun.DB, statement func(context.Context, bun.IDB) error) error {
	if c == nil || !c.take(ctx, db.DB) {
		ctx, cancel := context.WithTimeout(ctx, statementTimeout)
		defer cancel()
		return statement(ctx, db)
	}
	defer func() { <-c.turn }()
	kept := c.conn != nil
	err := c.try(ctx, db, statement)
	if kept && c.conn == nil && ctx.Err() == nil {
		return c.try(ctx, db, statement) // it may have broken long ago, while idle
	}
	return err
}

// take waits until the caller has the connection to itself. It returns false if the pool has a free
// one meanwhile. In an exhausted pool it would wait longer than for its turn.
func (c *renewalConn) take(ctx context.Context, pool *sql.DB) bool {
	look := time.NewTicker(turnLook)
	defer look.Stop()
	for {
		select {
		case c.turn <- struct{}{}:
			return true
		case <-look.C:
			if s := pool.Stats(); s.MaxOpenConnections == 0 || s.InUse < s.MaxOpenConnections {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
}

func (c *renewalConn) try(ctx context.Context, db *bun.DB, statement func(context.Context, bun.IDB) error) error {
	// The end of ctx gives a statement stopGrace: an interrupted one would cost the others the connection.
	stopping := ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	defer context.AfterFunc(stopping, func() { time.AfterFunc(stopGrace, cancel) })()
	if c.conn == nil {
		conn, err := db.Conn(ctx)
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

func (c *renewalConn) close() {
	if c.conn != nil {
		_ = c.conn.Close() // returns it to the pool, which drops it if broken
		c.conn = nil
	}
}
