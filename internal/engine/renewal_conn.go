package engine

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
)

// turnWait is how long a renewal waits for those of other processors.
const turnWait = 100 * time.Millisecond

// renewalConn is a connection of a pool for renewals only. The processors of the pool share it.
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

// use runs a statement within statementTimeout. It takes another connection of db while the
// connection is in use by a statement that hangs, and if c is nil.
func (c *renewalConn) use(ctx context.Context, db *bun.DB, statement func(context.Context, bun.IDB) error) error {
	if !c.take(ctx) {
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

// take reports whether the caller has the connection to itself now.
func (c *renewalConn) take(ctx context.Context) bool {
	if c == nil {
		return false
	}
	wait := time.NewTimer(turnWait)
	defer wait.Stop()
	select {
	case c.turn <- struct{}{}:
		return true
	case <-wait.C:
	case <-ctx.Done():
	}
	return false
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
