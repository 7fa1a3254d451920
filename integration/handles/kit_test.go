package handles_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/schema"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/fxmodule"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/pgxtx"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// TestTheKitLooksIntoAnyTransaction asserts before the commit, and consumes after it.
func TestTheKitLooksIntoAnyTransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db *bun.DB, w world) {
		consumed := 0
		kit := bustest.NewKit(t, db, outbox.ConsumeTx("c", func(context.Context, *sql.Tx, order) error { consumed++; return nil }))
		tx := w.begin(t, db)
		must(kit.Producer.Produce(kit.Context(), tx, order{ID: "a"}))(t)
		must(kit.Scheduler.Upsert(kit.Context(), tx, order{}, "@hourly", "UTC", schedule.Name("hourly")))(t)
		bustest.RequireProduced(t, kit.In(tx), func(o order) bool { return o.ID == "a" })
		bustest.RequireScheduled[order](t, kit.In(tx), nil)
		must(0, tx.Commit())(t)
		kit.ProcessNext()
		if consumed != 1 {
			t.Errorf("got %d runs, want 1", consumed)
		}
	})
}

// TestTheFakeTakesAnyTransaction records what code produces in a transaction of its own.
func TestTheFakeTakesAnyTransaction(t *testing.T) {
	t.Parallel()
	fake := new(bustest.FakeProducer)
	place := func(ctx context.Context, fail error) error {
		return fake.Within(ctx, func(ctx context.Context) error {
			if _, err := fake.Produce(ctx, (*sql.Tx)(nil), order{ID: "a"}); err != nil {
				return err
			}
			return fail
		})
	}
	if err := place(t.Context(), sql.ErrConnDone); err != sql.ErrConnDone {
		t.Errorf("got %v, want the function's error", err)
	}
	bustest.RequireNotProduced[order](t, fake, nil)
	must(0, place(t.Context(), nil))(t)
	bustest.RequireProduced(t, fake, func(o order) bool { return o.ID == "a" })
}

// TestTheFakeRefusesAPool, as the producer does.
func TestTheFakeRefusesAPool(t *testing.T) {
	t.Parallel()
	fake := new(bustest.FakeProducer)
	for _, pool := range []bus.Handle{new(sql.DB), (*sql.DB)(nil), new(sql.Conn)} {
		if _, err := fake.Produce(t.Context(), pool, order{}); err == nil || !strings.Contains(err.Error(), "a transaction, or a handle of Bun, is allowed") {
			t.Errorf("%T: got %v, want an error that says what is allowed", pool, err)
		}
	}
	bustest.RequireNotProduced[order](t, fake, nil)
}

// TestFxWorksWithoutBun has applications that provide a *sql.DB, and a pool of pgx.
func TestFxWorksWithoutBun(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var producer *outbox.Producer
		consumed := make(chan string, 1)
		app := fxtest.New(t, fx.NopLogger, fxmodule.Module, fxmodule.Migrate(), fx.Supply(db.DB),
			fx.Supply(fx.Annotate(db.Dialect(), fx.As(new(schema.Dialect)))), fx.Populate(&producer),
			fxmodule.Consumers(outbox.ConsumeTx("c", func(_ context.Context, _ *sql.Tx, o order) error { consumed <- o.ID; return nil })))
		app.RequireStart()
		defer app.RequireStop()
		tx := must(db.DB.BeginTx(t.Context(), nil))(t)
		must(producer.Produce(t.Context(), tx, order{ID: "a"}))(t)
		must(0, tx.Commit())(t)
		receive(t, consumed)
	})
	t.Run("pgx", func(t *testing.T) {
		t.Parallel()
		pool, _ := onePool(t, 20)
		var producer *outbox.Producer
		consumed := make(chan string, 1)
		app := fxtest.New(t, fx.NopLogger, fxmodule.Module, fxmodule.Migrate(), fx.Provide(func(l fx.Lifecycle) *sql.DB {
			db := pgxtx.Open(pool)
			l.Append(fx.StopHook(db.Close))
			return db
		}),
			fx.Supply(fx.Annotate(pgdialect.New(), fx.As(new(schema.Dialect)))), fx.Populate(&producer),
			fxmodule.Consumers(pgxtx.ConsumeTx("c", func(_ context.Context, _ pgx.Tx, o order) error { consumed <- o.ID; return nil })))
		app.RequireStart()
		defer app.RequireStop()
		must(0, producer.Within(t.Context(), func(ctx context.Context) error { return produceIn(ctx, pool, producer) }))(t)
		receive(t, consumed)
	})
}

func produceIn(ctx context.Context, pool *pgxpool.Pool, producer *outbox.Producer) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := producer.Produce(ctx, pgxtx.Of(tx), order{ID: "a"})
		return err
	})
}

func receive(t *testing.T, consumed <-chan string) {
	t.Helper()
	select {
	case <-consumed:
	case <-time.After(time.Minute):
		t.Fatal("nothing was consumed within a minute")
	}
}

func TestFxNamesAMissingDatabase(t *testing.T) {
	t.Parallel()
	for want, options := range map[string]fx.Option{
		"fxmodule: no database is provided: provide a *bun.DB, or a *sql.DB and a schema.Dialect":      fx.Options(),
		"fxmodule: a *sql.DB is provided without a dialect: provide a *bun.DB, or a *sql.DB and a sch": fx.Supply(new(sql.DB), pgdialect.New()),
	} {
		if err := fx.New(fx.NopLogger, fxmodule.Module, options).Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}
