package handles_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
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
