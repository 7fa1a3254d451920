package bustest_test

import (
	"context"
	"database/sql"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
)

// The tests that docs/testing.md shows.

// snippet: memory

// openMemory opens a database in memory for one test.
func openMemory(t testing.TB) *bun.DB {
	t.Helper()
	conns, err := sql.Open("sqlite", "file:/"+url.PathEscape(t.Name())+"?vfs=memdb&_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conns.Close() }) // removes the database
	return bun.NewDB(conns, sqlitedialect.New())
}

// end

// snippet: newshop

// newShop makes the application and a kit that runs its consumers.
func newShop(t testing.TB, db *bun.DB) (*Shop, *bustest.Kit) {
	t.Helper()
	createEffects(t, db)
	shop := &Shop{db: db, provider: func(string, string) error { return nil }}
	kit := bustest.NewKit(t, db, shop.Consumers()...)
	shop.producer = kit.Producer
	return shop, kit
}

// end

// snippet: cascade
func TestOrderIsShippedAnHourAfterItIsCharged(t *testing.T) {
	db := openMemory(t)
	_, kit := newShop(t, db)
	kit.Produce(OrderPlaced{ID: "o-1"})

	kit.DrainUntilIdle() // charge-card has run; its message for ship is not due yet
	charged := bustest.RequireProduced(t, kit, func(e OrderCharged) bool { return e.ID == "o-1" })
	if wait := charged.AvailableAt.Sub(kit.Now()); wait != time.Hour {
		t.Errorf("shipped after %s, want an hour", wait)
	}

	kit.Advance(time.Hour)
	kit.DrainUntilIdle()
	if got := effects(t, db); !slices.Equal(got, []string{"shipped o-1"}) {
		t.Errorf("effects: got %v, want the order shipped", got)
	}
}

// end

// snippet: retries
func TestChargeCardIsPoisonedAfterThreeAttempts(t *testing.T) {
	shop, kit := newShop(t, openMemory(t))
	shop.provider = func(string, string) error { return errBusy }
	kit.Produce(OrderPlaced{ID: "o-1"})

	first := kit.ProcessNext("charge-card")
	if first.Outcome.Outcome != bus.Retried || first.Outcome.Delay != 10*time.Second {
		t.Errorf("first attempt: got %+v, want a retry after 10s", first.Outcome)
	}
	kit.Advance(10 * time.Second)
	kit.ProcessNext()
	kit.Advance(20 * time.Second)
	kit.ProcessNext()

	poisoned := bustest.RequirePoisoned(t, kit, "charge-card", func(e OrderPlaced) bool { return e.ID == "o-1" })
	if len(poisoned.Errors) != 3 || poisoned.Errors[0].Error != errBusy.Error() {
		t.Errorf("errors: got %+v, want errBusy three times", poisoned.Errors)
	}
	bustest.RequireNotProduced[OrderCharged](t, kit, nil)
}

// end

func TestNightlyOrder(t *testing.T) {
	db := openMemory(t)
	kit := bustest.KitConfig{Start: time.Date(2031, 2, 3, 18, 0, 0, 0, time.UTC)}.NewKit(t, db,
		bus.Consume("c", func(context.Context, OrderPlaced) error { return nil }))
	if err := scheduleNightly(kit.Context(), db, kit.Scheduler); err != nil {
		t.Fatal(err)
	}
	nightly := bustest.RequireScheduled[OrderPlaced](t, kit, nil)
	if want := time.Date(2031, 2, 4, 2, 0, 0, 0, time.UTC); !nightly.NextFire.Equal(want) {
		t.Errorf("next fire: got %s, want %s", nightly.NextFire, want)
	}
	kit.Advance(72 * time.Hour)
	if runs := kit.DrainUntilIdle(); len(runs) != 3 {
		t.Errorf("runs in three nights: got %d, want 3", len(runs))
	}
}

func TestPlaceOrderProduces(t *testing.T) {
	db := openMemory(t)
	shop, kit := newShop(t, db)
	tx, err := db.BeginTx(kit.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() // nothing of this test is ever committed

	if err := shop.PlaceOrder(kit.Context(), tx, "o-1"); err != nil {
		t.Fatal(err)
	}
	bustest.RequireProduced(t, kit.In(tx), func(e OrderPlaced) bool { return e.ID == "o-1" })
}

// snippet: idempotent
func TestChargeCardMayRunTwice(t *testing.T) {
	for name, check := range map[string]func(*bustest.Kit, func() any){
		"run twice":       (*bustest.Kit).RequireIdempotent,
		"lost and redone": (*bustest.Kit).RequireRedeliverable,
	} {
		t.Run(name, func(t *testing.T) {
			shop, kit := newShop(t, openMemory(t))
			charged := map[string]string{} // orders by idempotency key
			shop.provider = func(key, order string) error {
				charged[key] = order
				return nil
			}
			kit.Produce(OrderPlaced{ID: "o-1"})
			check(kit, func() any { return len(charged) })
		})
	}
}

// end
