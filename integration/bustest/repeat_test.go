package bustest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// checks are the two checks of idempotency.
func checks() map[string]func(k *bustest.Kit, state func() any) {
	return map[string]func(k *bustest.Kit, state func() any){
		"RequireIdempotent":    (*bustest.Kit).RequireIdempotent,
		"RequireRedeliverable": (*bustest.Kit).RequireRedeliverable,
	}
}

// handlers are consumers of every kind: some may run twice, and what is wrong
// with the others.
var handlers = []struct {
	name     string
	consumer func(k **bustest.Kit, db *bun.DB) bus.Consumer
	wrong    string // part of the failure, "" if there is none
}{
	{"has no effects", func(**bustest.Kit, *bun.DB) bus.Consumer {
		return bus.Consume("c", func(context.Context, OrderPlaced) error { return nil })
	}, ""},
	{"writes once per message id", func(_ **bustest.Kit, db *bun.DB) bus.Consumer {
		return bus.Consume("c", func(ctx context.Context, _ OrderPlaced) error {
			m, _ := bus.MessageFromContext(ctx)
			if n, err := db.NewSelect().Model((*Effect)(nil)).Where("of = ?", m.ID.String()).Count(ctx); err != nil || n > 0 {
				return err
			}
			return addEffect(ctx, db, m.ID.String())
		})
	}, ""},
	{"writes every time", func(_ **bustest.Kit, db *bun.DB) bus.Consumer {
		return bus.Consume("c", func(ctx context.Context, o OrderPlaced) error { return addEffect(ctx, db, o.ID) })
	}, "got the state [1 1], want it unchanged: [1]"},
	{"writes in the transaction", func(**bustest.Kit, *bun.DB) bus.Consumer {
		return outbox.ConsumeTx("c", func(ctx context.Context, tx bun.Tx, o OrderPlaced) error { return addEffect(ctx, tx, o.ID) })
	}, ""},
	{"produces every time", func(k **bustest.Kit, db *bun.DB) bus.Consumer {
		return bus.Consume("c", func(ctx context.Context, o OrderPlaced) error {
			_, err := (*k).Producer.Produce(ctx, db, OrderCharged(o))
			return err
		})
	}, `got stored messages, schedules or events changed, want none: new: message order.charged for after: {"id":"1"}`},
	{"produces with an insert id", func(k **bustest.Kit, db *bun.DB) bus.Consumer {
		return bus.Consume("c", func(ctx context.Context, o OrderPlaced) error {
			_, err := (*k).Producer.Produce(ctx, db, OrderCharged(o), outbox.InsertID("charged:"+o.ID))
			return err
		})
	}, ""},
	{"schedules every time", func(k **bustest.Kit, db *bun.DB) bus.Consumer {
		return bus.Consume("c", func(ctx context.Context, o OrderPlaced) error {
			_, err := (*k).Scheduler.Create(ctx, db, OrderCharged(o), "@yearly", "UTC")
			return err
		})
	}, `new: schedule "" of order.charged, @yearly UTC: {"id":"1"}`},
	{appends, func(k **bustest.Kit, db *bun.DB) bus.Consumer {
		return bus.Consume("c", func(ctx context.Context, _ OrderPlaced) error {
			log, err := eventlog.NewLog((*k).Registry, (*k).Producer, eventlog.LogConfig{})
			if err != nil {
				return err
			}
			return log.RunInTx(ctx, db, func(ctx context.Context, tx bun.Tx) error {
				_, err := log.Append(ctx, tx, "order-1", eventlog.AnyVersion, Packed{})
				return err
			})
		})
	}, "gone: event log: 1 events; new: event log: 2 events"},
	{"fails the second time", func(**bustest.Kit, *bun.DB) bus.Consumer {
		runs := 0
		return bus.Consume("c", func(context.Context, OrderPlaced) error {
			if runs++; runs == 2 {
				return errors.New("charged already")
			}
			return nil
		})
	}, "got retried, charged already, want it done again"},
	{"fails the first time", func(**bustest.Kit, *bun.DB) bus.Consumer {
		return bus.Consume("c", func(ctx context.Context, _ OrderPlaced) error {
			if m, _ := bus.MessageFromContext(ctx); m.Attempt == 1 {
				return bus.RetryAfter(0, errors.New("busy"))
			}
			return nil
		})
	}, ""},
}

const appends = "appends every time"

// Packed is an event that nobody consumes.
type Packed struct{}

func (Packed) PayloadType() string { return "order.packed" }

func TestChecksTellHandlersApart(t *testing.T) {
	t.Parallel()
	types := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[Packed]()))
	config := bustest.KitConfig{Registry: bus.RegistryConfig{Events: types}}
	for name, check := range checks() {
		for _, h := range handlers {
			t.Run(name+"/"+h.name, func(t *testing.T) {
				t.Parallel()
				testdb.Each(t, func(t *testing.T, db *bun.DB) {
					config := config
					if db.Dialect().Name() == dialect.MySQL { // no event log
						if h.name == appends {
							return
						}
						config = bustest.KitConfig{}
					}
					createEffects(t, db)
					got := failureOf(t, func(t testing.TB) {
						var k *bustest.Kit
						k = config.NewKit(t, db, h.consumer(&k, db), bus.Consume("after", func(context.Context, OrderCharged) error { return nil }))
						k.Produce(OrderPlaced{"1"})
						check(k, func() any { return effects(t, db) })
						if left := len(k.DrainUntilIdle()); left > 0 {
							t.Fatalf("got %d messages left, want none", left)
						}
					}).failure
					if h.wrong == "" {
						if got != "" {
							t.Errorf("got the failure %q, want none", got)
						}
						return
					}
					what := map[string]string{"RequireIdempotent": "second run", "RequireRedeliverable": "redelivery"}[name]
					wantParts(t, got, "bustest: "+name+`: consumer "c", `+what+" of message ", "(order.placed)", h.wrong)
				})
			})
		}
	}
}

func wantParts(t *testing.T, got string, parts ...string) {
	t.Helper()
	wantFailure(t, func(t testing.TB) {
		if got != "" {
			t.Fatalf("%s", got)
		}
	}, parts...)
}

func TestChecksRunEachHandlerTwice(t *testing.T) {
	t.Parallel()
	for name, check := range checks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				var ran []string
				note := func(ctx context.Context, id string) {
					m, _ := bus.MessageFromContext(ctx)
					ran = append(ran, fmt.Sprintf("%s %s, attempt %d, crashes %d", m.Consumer, id, m.Attempt, m.CrashCount))
				}
				var k *bustest.Kit
				k = bustest.NewKit(t, db,
					bus.Consume("place", func(ctx context.Context, o OrderPlaced) error {
						note(ctx, o.ID)
						_, err := k.Producer.Produce(ctx, db, OrderCharged(o), outbox.InsertID("charged:"+o.ID))
						return err
					}),
					outbox.ConsumeTx("ship", func(ctx context.Context, _ bun.Tx, o OrderCharged) error { note(ctx, o.ID); return nil }))
				mustSchedule(t, k, db, OrderPlaced{"by schedule"}, "@yearly")
				k.Produce(OrderPlaced{"1"})
				before := k.Now()
				check(k, nil)
				crashes, took := 0, time.Duration(0)
				if name == "RequireRedeliverable" {
					crashes, took = 1, 2*(30*time.Second+time.Millisecond) // a lease for each delivery that was lost
				}
				equal(t, "runs", ran, []string{"place 1, attempt 1, crashes 0", fmt.Sprintf("place 1, attempt 1, crashes %d", crashes),
					"ship 1, attempt 1, crashes 0"})
				if got := k.Now().Sub(before); got != took {
					t.Errorf("the clock moved by %s, want %s", got, took)
				}
				ran = nil
				k.Produce(OrderPlaced{"2"})
				k.DrainUntilIdle()
				equal(t, "runs after the check", ran, []string{"place 2, attempt 1, crashes 0", "ship 2, attempt 1, crashes 0"})
			})
		})
	}
}

func TestASchedulesFireIsNotTakenForAnEffect(t *testing.T) {
	t.Parallel()
	db := sqlite(t)
	var ran []string
	k := bustest.NewKit(t, db, noting("place", &ran))
	mustSchedule(t, k, db, OrderPlaced{"often"}, "@every 20s") // comes due while a lease runs out
	k.Produce(OrderPlaced{"1"})
	wantFailure(t, func(t testing.TB) {
		k := bustest.KitConfig{Start: k.Now(), Limit: 9}.NewKit(t, db, noting("place", &ran))
		k.RequireRedeliverable(nil)
	}, "got 10 messages run, want at most 9") // each loss brings the next fire; no other failure
	equal(t, "first runs", ran[:4], []string{"1", "1", "often", "often"})
}
