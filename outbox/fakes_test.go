package outbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"go.uber.org/goleak"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type order struct {
	ID string `json:"id"`
}

func (order) PayloadType() string { return "order.placed" }

type orphan struct{}

func (orphan) PayloadType() string { return "orphan" }

// noDatabase is a database handle that fails the test when it is used: what is
// refused must be refused before any SQL.
func noDatabase(t *testing.T) *bun.DB {
	t.Helper()
	conns := sql.OpenDB(refusing{t})
	t.Cleanup(func() { _ = conns.Close() })
	return bun.NewDB(conns, pgdialect.New())
}

type refusing struct{ t *testing.T }

func (r refusing) Connect(context.Context) (driver.Conn, error) {
	r.t.Error("the database was used")
	return nil, errors.New("refused")
}

func (r refusing) Driver() driver.Driver { return nil }

// noStatements is a database handle whose transactions may begin and end: the layers of a
// producer run in one.
func noStatements(t *testing.T) *bun.DB {
	t.Helper()
	conns := sql.OpenDB(empty{t})
	t.Cleanup(func() { _ = conns.Close() })
	return bun.NewDB(conns, pgdialect.New())
}

type empty struct{ t *testing.T }

func (e empty) Connect(context.Context) (driver.Conn, error) { return e, nil }
func (e empty) Driver() driver.Driver                        { return nil }
func (e empty) Close() error                                 { return nil }
func (e empty) Commit() error                                { return nil }
func (e empty) Rollback() error                              { return nil }
func (e empty) Begin() (driver.Tx, error)                    { return e, nil }

func (e empty) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return e, nil }

func (e empty) Prepare(query string) (driver.Stmt, error) {
	e.t.Errorf("a statement was sent: %s", query)
	return nil, errors.New("refused")
}

func newRegistry(t *testing.T, consumers ...bus.Consumer) *bus.Registry {
	t.Helper()
	registry, err := bus.NewRegistry(consumers...)
	if err != nil {
		t.Fatalf("registry: %v", err)
	}
	return registry
}

func orders(name string, options ...bus.ConsumerOption) bus.Consumer {
	return bus.Consume(name, func(context.Context, order) error { return nil }, options...)
}
