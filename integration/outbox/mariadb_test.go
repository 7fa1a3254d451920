package outbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// killing opens connections on which COMMIT and ROLLBACK fail while it is armed, as
// when that statement is killed: the server leaves the transaction open.
type killing struct {
	driver.Connector
	armed *atomic.Bool
}

func (k killing) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := k.Connector.Connect(ctx)
	return &killedConn{mysqlConn: conn.(mysqlConn), armed: k.armed}, err
}

// mysqlConn is what database/sql may ask the driver's connections for.
type mysqlConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
}

type killedConn struct {
	mysqlConn
	armed *atomic.Bool
	ended bool // its session was: the driver finds out by itself
}

func (c *killedConn) kills() bool { return c.armed.Load() && !c.ended }

var errKilled = &mysql.MySQLError{Number: 1317, SQLState: [5]byte([]byte("70100")), Message: "Query execution was interrupted"}

func (c *killedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.ended = c.ended || strings.HasPrefix(query, "KILL CONNECTION")
	if c.kills() && (query == "COMMIT" || query == "ROLLBACK") {
		return nil, errKilled
	}
	return c.mysqlConn.ExecContext(ctx, query, args)
}

func (c *killedConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	tx, err := c.mysqlConn.BeginTx(ctx, options)
	return killedTx{tx, c}, err
}

type killedTx struct {
	driver.Tx
	conn *killedConn
}

func (t killedTx) Commit() error {
	if t.conn.kills() {
		return errKilled
	}
	return t.Tx.Commit()
}

func (t killedTx) Rollback() error {
	if t.conn.kills() {
		return errKilled
	}
	return t.Tx.Rollback()
}

// TestMariaDBTransactionsThatCannotEnd: the pool takes a connection back whose COMMIT
// or ROLLBACK was killed, with the transaction open. Who got it next wrote into that,
// and lost what was written.
func TestMariaDBTransactionsThatCannotEnd(t *testing.T) {
	t.Parallel()
	refused := bus.Permanent(nil)
	for name, fail := range map[string]func(a *app) error{
		"commit of a produce": func(a *app) error {
			_, err := a.Producer.Produce(a.Context(), a.DB, order{ID: "lost"}, outbox.InsertID("key")) // with one it takes several statements
			return err
		},
		"commit of the application's": func(a *app) error {
			return a.Producer.RunInTx(a.Context(), a.DB, func(ctx context.Context, tx bun.Tx) error {
				_, err := a.Producer.Produce(ctx, tx, order{ID: "lost"})
				return err
			})
		},
		"rollback of the application's": func(a *app) error {
			return a.Producer.RunInTx(a.Context(), a.DB, func(ctx context.Context, tx bun.Tx) error {
				_, err := a.Producer.Produce(ctx, tx, order{ID: "lost"})
				if err == nil {
					err = refused
				}
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.MariaDBDSN(t)
			connector := testapp.Must[driver.Connector](t)(mysql.NewConnector(testapp.Must[*mysql.Config](t)(mysql.ParseDSN(dsn))))
			var armed atomic.Bool
			db := bun.NewDB(sql.OpenDB(killing{connector, &armed}), mysqldialect.New())
			db.SetMaxOpenConns(1)
			a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { return nil }))
			armed.Store(true)
			if err := fail(a); err == nil {
				t.Fatal("the transaction that cannot end: got no error")
			}
			armed.Store(false)
			a.Produce(order{ID: "kept"}) // in the next connection of the pool
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			var payloads []string
			testapp.OK(t, testdb.OpenMariaDB(t, dsn).NewRaw("SELECT payload FROM consumer_messages").Scan(t.Context(), &payloads))
			if len(payloads) != 1 || payloads[0] != `{"id":"kept","n":0}` {
				t.Errorf("messages: got %q, want the one that was produced", payloads)
			}
		})
	}
}

// TestMariaDBTransactionThatEndsEarly: a deadlock ends a transaction, and the
// handle goes on to take statements, each of which commits. A consumer that
// swallows such an error must not have its message removed.
func TestMariaDBTransactionThatEndsEarly(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]string{"rolled back, as by a deadlock": "ROLLBACK", "committed, as by CREATE TABLE": "COMMIT"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.MariaDB(t)
			a := withEffects(testapp.New(t, db, outbox.ConsumeTx("stock", func(ctx context.Context, tx bun.Tx, o order) error {
				if m, _ := bus.MessageFromContext(ctx); m.Attempt == 1 {
					_, err := tx.NewRaw(end).Exec(ctx)
					return err
				}
				return addEffect(ctx, tx, o)
			}, bus.Timeout(3*time.Second))))
			a.Produce(order{ID: "1"})
			r := a.Start(testapp.Fast())
			testapp.Eventually(t, "it is consumed", a.Empty)
			r.MustStop()
			if n := a.Count("SELECT COALESCE(SUM(attempt), 0) FROM effects"); n != 2 {
				t.Errorf("effects: got those of attempts that add up to %d, want that of attempt 2", n)
			}
		})
	}
}

// TestMariaDBTransactionOfAGroupThatEndsEarly: a deadlock whose error a handler hides ends the transaction of its group. The
// handlers after it must not write outside of any transaction.
// Promise: exactly-once
func TestMariaDBTransactionOfAGroupThatEndsEarly(t *testing.T) {
	t.Parallel()
	a := grouped(t, testdb.MariaDB(t), 20, func(ctx context.Context, tx bun.Tx, o order) error {
		if m, _ := bus.MessageFromContext(ctx); o.N == 7 && m.Attempt == 1 {
			_, err := tx.NewRaw("ROLLBACK").Exec(ctx) // as by a deadlock
			return err
		}
		return nil
	})
	r := a.Start(once())
	testapp.Eventually(t, "all are settled", a.Empty)
	r.MustStop()
	requireEffects(a, 20, map[string]string{"7": "[2]"})
}

// keyed runs a processor that has run message k, whose insert id an open transaction has
// met: its outcome cannot be written.
func keyed(t *testing.T, config outbox.ProcessorConfig, consumers ...bus.Consumer) (a *app, r *testapp.Running, tx bun.Tx,
	runs *atomic.Int64) {
	t.Helper()
	gate := make(chan struct{})
	runs = new(atomic.Int64)
	a = testapp.New(t, testdb.MariaDB(t), append(consumers,
		bus.Consume("keyed", func(context.Context, order) error { runs.Add(1); <-gate; return nil }))...)
	a.Produce(order{ID: "k"}, outbox.InsertID("k"))
	r = a.Start(config)
	testapp.Eventually(t, "run", func() bool { return runs.Load() == 1 })
	tx = testapp.Must[bun.Tx](t)(a.DB.BeginTx(context.WithoutCancel(t.Context()), nil))
	t.Cleanup(func() { _ = tx.Rollback() })
	if receipt, err := a.Producer.Produce(t.Context(), tx, order{ID: "k2"}, outbox.InsertID("k")); err != nil || receipt.Duplicates != 1 {
		t.Fatalf("produce: got %+v, error %v, want a duplicate", receipt, err)
	}
	close(gate)
	return a, r, tx, runs
}

// TestMariaDBLockedMessageDoesNotDelayOthers: while one message cannot be settled, others are
// claimed and settled, and leases are renewed; once it can be, it is.
func TestMariaDBLockedMessageDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	config := testapp.Fast()
	config.LeaseDuration, config.DefaultTimeout, config.DrainTimeout = 3*time.Second, time.Minute, time.Minute
	var slow, cancelled atomic.Int64
	a, r, tx, runs := keyed(t, config,
		bus.Consume("other", func(_ context.Context, f refund) error {
			if strings.HasSuffix(f.ID, "3") {
				return bus.Snooze(time.Millisecond * 100)
			}
			return nil
		}),
		bus.Consume("slow", func(ctx context.Context, _ slowRefund) error {
			slow.Add(1)
			select {
			case <-time.After(4 * time.Second): // longer than the lease
			case <-ctx.Done():
				cancelled.Add(1)
			}
			return nil
		}))
	for began, n := time.Now(), 0; time.Since(began) < 5*time.Second; n++ {
		a.Produce(refund{ID: fmt.Sprint(n, n%3)})
		if n%10 == 0 {
			a.Produce(slowRefund{})
		}
		testapp.Eventually(t, "other settled", func() bool {
			return a.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'other'") == 0
		})
	}
	if slow.Load() == 0 || cancelled.Load() > 0 {
		t.Errorf("beside a locked message: got %d of %d slow ones cancelled, want some and none", cancelled.Load(), slow.Load())
	}
	if left := a.Count("SELECT count(*) FROM consumer_messages WHERE insert_id = 'k'"); left != 1 {
		t.Errorf("the locked message: got %d, want 1", left)
	}
	testapp.OK(t, tx.Rollback())
	testapp.Eventually(t, "settled", func() bool { return a.Count("SELECT count(*) FROM consumer_messages WHERE insert_id = 'k'") == 0 })
	r.MustStop()
	if stats := r.Stats(); runs.Load() != 1 || stats.Fenced != 0 || cancelled.Load() > 0 {
		t.Errorf("in the end: got %d runs of the locked message, %d fenced, %d cancelled, want 1, 0, 0", runs.Load(), stats.Fenced,
			cancelled.Load())
	}
}

type slowRefund struct{}

func (slowRefund) PayloadType() string { return "slow" }

// TestMariaDBStopDoesNotWaitForALockedMessage: a stop ends in its time, says so, and
// gives the message back.
func TestMariaDBStopDoesNotWaitForALockedMessage(t *testing.T) {
	t.Parallel()
	config := testapp.Fast()
	config.DrainTimeout = time.Second
	a, r, tx, _ := keyed(t, config)
	if err := r.Wait(); err == nil || !strings.Contains(err.Error(), "have locked their messages") {
		t.Errorf("stop beside a locked message: got error %v, want one that says so", err)
	}
	if left := a.Pending(); len(left) != 1 || left[0].Crashes != 0 || a.Count("SELECT count(*) FROM message_claims") != 0 {
		t.Errorf("after the stop: got %+v and %d claims, want the message unclaimed and no crash", left,
			a.Count("SELECT count(*) FROM message_claims"))
	}
	testapp.OK(t, tx.Rollback())
	b := a.Start(testapp.Fast())
	testapp.Eventually(t, "run again", a.Empty)
	b.MustStop()
}

// TestMariaDBFindsMessagesBehindALockedGap: a transaction can hold up a settle without a
// lock on the message: here the message cannot be put to its new place in the index.
func TestMariaDBFindsMessagesBehindALockedGap(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	var runs atomic.Int64
	a := testapp.New(t, testdb.MariaDB(t),
		bus.Consume("other", func(context.Context, refund) error { <-gate; return nil }),
		bus.Consume("zz", func(context.Context, order) error { runs.Add(1); <-gate; return bus.Snooze(time.Hour) }))
	a.Produce(order{})
	for range 5 {
		a.Produce(refund{})
	}
	config := testapp.Fast()
	config.Concurrency = 10
	r := a.Start(config)
	testapp.Eventually(t, "claimed", func() bool {
		return runs.Load() == 1 && a.Count("SELECT SUM(JSON_LENGTH(message_ids)) FROM message_claims") == 6
	})
	tx := testapp.Must[bun.Tx](t)(a.DB.BeginTx(context.WithoutCancel(t.Context()), nil))
	defer tx.Rollback() //nolint:errcheck // rolled back below
	_, err := tx.NewRaw("SELECT id FROM consumer_messages FORCE INDEX (consumer_messages_due) WHERE keyed = FALSE AND crashes = 0 AND consumer_type = 'zz' AND payload_type = 'order.placed' AND available_after > " +
		testapp.NowOf(a.DB) + " + 60000000 LOCK IN SHARE MODE").Exec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	close(gate)
	testapp.Eventually(t, "others settled", func() bool { return len(a.Pending()) == 1 })
	a.Produce(refund{})
	testapp.Eventually(t, "one more settled", func() bool { return len(a.Pending()) == 1 })
	testapp.OK(t, tx.Rollback())
	testapp.Eventually(t, "settled", func() bool { return a.Count("SELECT count(*) FROM message_claims") == 0 })
	r.MustStop()
	if stats := r.Stats(); runs.Load() != 1 || stats.Fenced != 0 {
		t.Errorf("in the end: got %d runs and %d fenced, want 1 and 0", runs.Load(), stats.Fenced)
	}
}
