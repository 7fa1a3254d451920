package poisoned_test

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
	"github.com/asyncmonolith/asyncmonolith-go/internal/poisoned"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
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
	s, err := poisoned.NewStore(registry)
	if err != nil {
		t.Fatal(err)
	}
	conns := sql.OpenDB(unused{t})
	defer conns.Close()
	db, ctx := bun.NewDB(conns, pgdialect.New()), t.Context()
	second := func(_ any, err error) error { return err }
	discarded := func(_ int, _ int64, err error) error { return err }
	for name, err := range map[string]error{
		"a count of none":   second(s.CountUpTo(ctx, db, poison.Filter{}, 0)),
		"a negative head":   second(s.GetHead(ctx, db, 1, -1)),
		"an empty batch":    second(s.RequeueChunk(ctx, db, poisoned.Chunk{})),
		"a batch too large": second(s.RequeueChunk(ctx, db, poisoned.Chunk{UpTo: 1, Limit: 501})),
		"a batch of no ids": second(s.RequeueChunk(ctx, db, poisoned.Chunk{Filter: poison.Filter{IDs: []int64{}}, UpTo: 1, Limit: 1})),
		"a batch no end":    second(s.RequeueChunk(ctx, db, poisoned.Chunk{Limit: 1})),
		"after nothing":     discarded(s.DiscardChunk(ctx, db, poisoned.Chunk{After: -1, UpTo: 1, Limit: 1})),
	} {
		if !errors.Is(err, bus.ErrInvalidOption) || !strings.HasPrefix(err.Error(), "poison: ") {
			t.Errorf("%s: got %v, want ErrInvalidOption", name, err)
		}
	}
}
