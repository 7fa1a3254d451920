package outbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
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
// when somebody kills that statement: the server leaves the transaction open.
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
