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
