package bustest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func TestATransactionThatIsRolledBackLeavesNothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var ran []string
		k := bustest.NewKit(t, db, noting("place", &ran))
		k.Produce(OrderPlaced{"before"})
		tx := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
		testapp.OK(t, testapp.Second(k.Producer.Produce(t.Context(), tx, OrderPlaced{"inside"}, outbox.Header("tenant", "acme"))))
		mustSchedule(t, k, tx, OrderPlaced{"daily"}, "@daily")
		inside := func(o OrderPlaced) bool { return o.ID == "inside" }
		if m := bustest.RequireProduced(t, k.In(tx), inside); m.Headers["tenant"] != "acme" {
			t.Errorf("message: got %+v, want its header", m)
		}
		bustest.RequireProduced(t, k.In(&tx), func(o OrderPlaced) bool { return o.ID == "before" })
		bustest.RequireScheduled[OrderPlaced](t, k.In(tx), nil)
		wantFailure(t, func(t testing.TB) { bustest.RequireNotProduced(t, k.In(tx), inside) }, "got {ID:inside}")
		wantFailure(t, func(t testing.TB) { bustest.RequirePoisoned[OrderPlaced](t, k.In(tx), "place", nil) }, "poisoned: nothing")
		bustest.RequireNotProduced(t, k, inside)
		testapp.OK(t, tx.Rollback())
		bustest.RequireNotProduced(t, k, inside)
		wantFailure(t, func(t testing.TB) { bustest.RequireScheduled[OrderPlaced](t, k, nil) }, "schedules: nothing")
		k.DrainUntilIdle()
		equal(t, "ran", ran, []string{"before"})
	})
}

func TestTransactionalConsumersRunAsInProduction(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		createEffects(t, db)
		fail := errors.New("no luck")
		var k *bustest.Kit
		k = bustest.NewKit(t, db, outbox.ConsumeTx("reserve", func(ctx context.Context, tx bun.Tx, o OrderPlaced) error {
			if err := addEffect(ctx, tx, o.ID); err != nil {
				return err
			}
			if _, err := k.Producer.Produce(ctx, tx, OrderCharged(o)); err != nil {
				return err
			}
			if m, _ := bus.MessageFromContext(ctx); m.Attempt == 1 {
				return fail
			}
			return nil
		}), bus.Consume("ship", func(context.Context, OrderCharged) error { return nil }))
		k.Produce(OrderPlaced{"1"})
		d := k.ProcessNext()
		if d.Outcome.Outcome != bus.Retried || !errors.Is(d.Outcome.Err, fail) {
			t.Errorf("first attempt: got %+v, want it retried", d.Outcome)
		}
		equal(t, "effects of a failed attempt", effects(t, db), nil)
		bustest.RequireNotProduced[OrderCharged](t, k, nil)
		k.Advance(d.Outcome.Delay)
		equal(t, "runs", consumersOf(k.DrainUntilIdle()), []string{"reserve", "ship"})
		equal(t, "effects", effects(t, db), []string{"1"})
		bustest.RequireProduced[OrderCharged](t, k, nil)
	})
}
