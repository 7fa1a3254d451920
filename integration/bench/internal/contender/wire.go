package contender

import (
	"context"
	"net"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// Wire counts what the connections of a contender carry. It is safe for concurrent use.
type Wire struct {
	// Trips is how often a connection has waited for an answer.
	Trips atomic.Int64
	// Claims and Outcomes are statements of ours: those that have claimed messages, and
	// those that have written what became of them.
	Claims, Outcomes atomic.Int64
}

// count has the connections of a configuration counted. A nil Wire does not.
func (w *Wire) count(config *pgx.ConnConfig) {
	if w == nil {
		return
	}
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &wired{Conn: conn, wire: w}, nil
	}
	if config.Tracer == nil {
		config.Tracer = w
	}
}

// TraceQueryStart implements pgx.QueryTracer.
func (w *Wire) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	switch name, ours := strings.CutPrefix(data.SQL, "EXECUTE asyncmonolith_"); {
	case !ours:
	case strings.HasPrefix(name, "record"):
		w.Claims.Add(1)
	case strings.HasPrefix(name, "finish"), strings.HasPrefix(name, "settle"):
		w.Outcomes.Add(1)
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (w *Wire) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// wired is a counted connection.
type wired struct {
	net.Conn
	wire *Wire
	sent atomic.Bool
}

// Write implements net.Conn.
func (c *wired) Write(b []byte) (int, error) {
	c.sent.Store(true)
	return c.Conn.Write(b)
}

// Read implements net.Conn.
func (c *wired) Read(b []byte) (int, error) {
	if c.sent.Swap(false) {
		c.wire.Trips.Add(1)
	}
	return c.Conn.Read(b)
}
