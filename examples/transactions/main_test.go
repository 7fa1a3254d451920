package main

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"
	"gorm.io/gorm"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/examples/transactions/pgxqueries"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1")) // GORM does not end it
}

func TestEachLibraryCommitsBothOrNeither(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	err := withDatabase(t.Context(), os.Getenv("ASYNCMONOLITH_TEST_POSTGRES"), func(pool *pgxpool.Pool) error {
		return run(t.Context(), pool, &out)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"database/sql, sqlc", "pgx, sqlc", "GORM", "ent", "sqlx", "Bun", "consumed: 30 messages of 6 orders"} {
		if !strings.Contains(out.String(), name) {
			t.Errorf("got output %s, want it to name %s", &out, name)
		}
	}
}

func TestNoServerIsExplained(t *testing.T) {
	t.Parallel()
	err := withDatabase(t.Context(), "", nil)
	if err == nil || !strings.Contains(err.Error(), "scripts/with-postgres.sh") {
		t.Errorf("got %v, want it to say how to get a server", err)
	}
}

// TestGORMKeepsNoStatements has GORM prepare statements, of which each produce would be another.
func TestGORMKeepsNoStatements(t *testing.T) {
	t.Parallel()
	err := withDatabase(t.Context(), os.Getenv("ASYNCMONOLITH_TEST_POSTGRES"), func(pool *pgxpool.Pool) error {
		p, err := wire(t.Context(), pool, newGORMConsumer())
		if err != nil {
			return err
		}
		defer p.db.Close()
		db, err := openGORM(p.db.DB)
		if err != nil {
			return err
		}
		return db.Session(&gorm.Session{PrepareStmt: true}).Transaction(func(tx *gorm.DB) error {
			prepared := tx.Statement.ConnPool.(*gorm.PreparedStmtTX)
			for _, c := range []struct {
				handle bus.Handle
				kept   int
			}{{prepared.Tx, 0}, {prepared, 10}} {
				for range 10 {
					if _, err := p.producer.Produce(t.Context(), c.handle, OrderPlaced{OrderID: rand.Text()}); err != nil {
						return err
					}
				}
				if got := len(prepared.PreparedStmtDB.Stmts.Keys()); got != c.kept {
					t.Errorf("%T: got %d statements that GORM keeps, want %d", c.handle, got, c.kept)
				}
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// TestOnePoolWithFx places an order inside Producer.Within while the processor runs.
func TestOnePoolWithFx(t *testing.T) {
	t.Parallel()
	err := withDatabase(t.Context(), os.Getenv("ASYNCMONOLITH_TEST_POSTGRES"), func(pool *pgxpool.Pool) error {
		_, err := pool.Exec(t.Context(), "CREATE TABLE orders (id TEXT PRIMARY KEY, item TEXT NOT NULL, handled INTEGER NOT NULL DEFAULT 0)")
		if err != nil {
			return err
		}
		consumed := make(chan string, 1)
		var producer *outbox.Producer
		app := fxtest.New(t, fx.NopLogger, fx.Populate(&producer), withFx(pool, func() []bus.Consumer {
			return []bus.Consumer{bus.Consume("tell", func(_ context.Context, e OrderPlaced) error { consumed <- e.OrderID; return nil })}
		}))
		app.RequireStart()
		defer app.RequireStop()
		s, id := &pgxShop{pool, pgxqueries.New(pool), producer}, rand.Text()
		if err := s.PlaceOrderNow(t.Context(), Order{ID: id, Item: "book"}); err != nil {
			return err
		}
		select {
		case got := <-consumed:
			if got != id {
				t.Errorf("consumed: got %s, want %s", got, id)
			}
		case <-time.After(time.Minute):
			t.Error("nothing was consumed within a minute")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
