package poison_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

type order struct{}

func (order) PayloadType() string { return "order.placed" }

type orphan struct{}

func (orphan) PayloadType() string { return "orphan" }

// refusing is a database that fails the test when it is used.
type refusing struct{ t *testing.T }

func (r refusing) Connect(context.Context) (driver.Conn, error) {
	r.t.Error("the database was used")
	return nil, errors.New("refused")
}

func (r refusing) Driver() driver.Driver { return nil }

func TestBadInputIsRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	registry, err := bus.NewRegistry(bus.Consume("c", func(context.Context, order) error { return nil }))
	if err != nil {
		t.Fatal(err)
	}
	store, err := poison.NewStore(registry)
	if err != nil {
		t.Fatal(err)
	}
	conns := sql.OpenDB(refusing{t})
	defer conns.Close()
	db, ctx := bun.NewDB(conns, pgdialect.New()), t.Context()
	second := func(_ any, err error) error { return err }
	third := func(_ []poison.Message, _ *admin.Page, err error) error { return err }
	listed := func(_ []poison.Group, _ bool, err error) error { return err }
	for name, err := range map[string]error{
		"no registry":       second(poison.NewStore(nil)),
		"no database":       second(store.Count(ctx, nil, poison.Filter{})),
		"a nil *bun.DB":     second(store.Requeue(ctx, (*bun.DB)(nil), 1)),
		"a negative page":   third(store.List(ctx, db, poison.Filter{}, admin.Page{Size: -1})),
		"a page too large":  third(store.List(ctx, db, poison.Filter{}, admin.Page{Size: 1001})),
		"no place":          third(store.List(ctx, db, poison.Filter{}, admin.Page{After: "x"})),
		"another place":     third(store.List(ctx, db, poison.Filter{}, admin.Page{After: "e30"})),
		"a negative age":    second(store.Purge(ctx, db, -1)),
		"no ids":            second(store.Count(ctx, db, poison.Filter{IDs: []int64{}})),
		"too many ids":      second(store.Preview(ctx, db, poison.Filter{IDs: make([]int64, 1001)}, 1)),
		"a preview of none": second(store.Preview(ctx, db, poison.Filter{}, 0)),
		"bad text":          listed(store.Groups(ctx, db, "a\x00")),
		"no limit":          second(store.RequeueWhere(ctx, db, poison.Filter{}, 0)),
		"a pointer payload": store.EditAndRequeue(ctx, db, 1, &order{}),
		"no consumer":       store.EditAndRequeue(ctx, db, 1, orphan{}),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "poison: ") {
			t.Errorf("%s: got %v, want an error of this package", name, err)
		}
	}
	if n, err := store.Discard(ctx, db); n != 0 || err != nil {
		t.Errorf("discarding nothing: got %d, %v", n, err)
	}
	if result, err := store.Requeue(ctx, db); result != (poison.Result{}) || err != nil {
		t.Errorf("requeueing nothing: got %+v, %v", result, err)
	}
}
