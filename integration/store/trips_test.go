package store_test

import (
	"context"
	"database/sql"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// trips counts round trips on the wire: how often an answer is waited for once something
// was sent.
type trips struct{ n atomic.Int64 }

type countedConn struct {
	net.Conn
	trips *trips
	sent  atomic.Bool
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.sent.Store(true)
	return c.Conn.Write(b)
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.sent.Swap(false) { // not before: the driver may begin to read ahead of its writing
		c.trips.n.Add(1)
	}
	return n, err
}

// open opens a database of one connection, whose trips are counted.
func (n *trips) open(t *testing.T, dsn string) *bun.DB {
	t.Helper()
	config := testapp.Must[*pgx.ConnConfig](t)(pgx.ParseConfig(dsn))
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &countedConn{Conn: conn, trips: n}, err
	}
	db := bun.NewDB(stdlib.OpenDB(*config), pgdialect.New())
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// TestRoundTrips: what a processor does all the time costs so many round trips, on a
// connection that it has used before.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	var counted trips
	db := counted.open(t, l.dsn)
	var c store.Claim
	claim := func() (err error) {
		c, err = l.Claims.Claim(l.ctx, db, ledgerRequest("a", 10))
		return err
	}
	result := func() []store.Result {
		return []store.Result{{Claim: c.ID, Message: c.Messages[0].ID, Outcome: store.Done}}
	}
	for _, test := range []struct {
		what    string
		trips   int64
		prepare func() error // not counted
		run     func() error
	}{
		{"a claim of nothing", 3, nil, claim}, // begin, pick, commit
		{"a claim", 4, nil, claim},            // and record
		{"a poll", 1, nil, func() error { _, err := l.Claims.Poll(l.ctx, db, ledgerWants(1)); return err }},
		{"a poll without the next message", 1, nil, func() error { _, err := l.Claims.PollNow(l.ctx, db, ledgerWants(1)); return err }},
		{"a look for what is due", 1, nil, func() error { _, err := l.Claims.PollDue(l.ctx, db, ledgerWants(1)); return err }},
		{"a renewal", 1, nil, func() error { _, err := l.Claims.Extend(l.ctx, db, "a", time.Minute); return err }},
		{"a finish", 1, claim, func() error { _, err := l.Claims.Finish(l.ctx, db, "a", []int64{c.ID}); return err }},
		{"a settle", 1, claim, func() error { _, err := l.Claims.Settle(l.ctx, db, "a", time.Minute, result()); return err }},
		{"a settle of what is free", 1, claim, func() error { _, err := l.Claims.SettleFree(l.ctx, db, "a", time.Minute, result()); return err }},
		{"a fence, with begin and rollback", 3, claim, func() error {
			tx, err := db.BeginTx(l.ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
			if err != nil {
				return err
			}
			defer tx.Rollback() //nolint:errcheck // nothing is written
			_, err = l.Claims.Fence(l.ctx, tx, store.Fence{Owner: "a", Idle: time.Minute,
				Messages: []store.Fenced{{Claim: c.ID, ID: c.Messages[0].ID}}})
			return err
		}},
	} {
		least := int64(1000) // the first may connect and prepare, and the driver asks after a rest
		for range 4 {
			if test.what != "a claim of nothing" {
				l.add(3)
			}
			if test.prepare != nil {
				if err := test.prepare(); err != nil {
					t.Fatalf("%s: prepare: %v", test.what, err)
				}
			}
			before := counted.n.Load()
			if err := test.run(); err != nil {
				t.Fatalf("%s: %v", test.what, err)
			}
			least = min(least, counted.n.Load()-before)
		}
		if least != test.trips {
			t.Errorf("%s: got %d round trips, want %d", test.what, least, test.trips)
		}
	}
}
