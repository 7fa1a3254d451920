package pending_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/pending"
)

// unused is a database that fails the test when it is used.
type unused struct{ t *testing.T }

func (u unused) Connect(context.Context) (driver.Conn, error) {
	u.t.Error("the database was used")
	return nil, errors.New("refused")
}

func (u unused) Driver() driver.Driver { return nil }

func TestBadInputIsRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	registry, err := bus.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	conns := sql.OpenDB(unused{t})
	defer conns.Close()
	reader, db, ctx := pending.NewReader(registry), bun.NewDB(conns, pgdialect.New()), t.Context()
	second := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"a head of -1 bytes":       second(reader.Head(ctx, db, 1, -1)),
		"more ids than are listed": second(reader.ListByID(ctx, db, make([]int64, 1001)...)),
		"no keys":                  second(reader.BlockedKeys(ctx, db, "", 0)),
		"too many crashes":         second(reader.Crashes(ctx, db, 0, 1001)),
	} {
		if !errors.Is(err, bus.ErrInvalidOption) || !strings.HasPrefix(err.Error(), "admin: ") {
			t.Errorf("%s: got %v, want ErrInvalidOption", name, err)
		}
	}
	if found, err := reader.ListByID(ctx, db); err != nil || len(found) != 0 {
		t.Errorf("listing nothing: got %+v, %v", found, err)
	}
}
