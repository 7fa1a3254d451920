package bustest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func TestProcessNextRunsTheOldest(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var ran []string
		run := func(id string) { ran = append(ran, id) }
		k := bustest.NewKit(t, db,
			bus.Consume("z-places", func(_ context.Context, o OrderPlaced) error { run("placed " + o.ID); return nil }),
			bus.Consume("a-charges", func(_ context.Context, o OrderCharged) error { run("charged " + o.ID); return nil }))
		k.Produce(OrderPlaced{"1"}) // the consumer that is last by name
		k.Advance(time.Second)
		k.Produce(OrderCharged{"2"})
		k.Produce(OrderPlaced{"3"})
		first := k.ProcessNext()
		equal(t, "first", ran, []string{"placed 1"})
		if first.Message.Consumer != "z-places" || first.Message.Attempt != 1 || first.Outcome.Outcome != bus.Done || first.Outcome.Err != nil ||
			string(first.Message.Payload) != `{"id":"1"}` {
			t.Errorf("delivery: got %+v, want the first attempt of z-places, done", first)
		}
		k.ProcessNext("z-places")
		equal(t, "the other consumer's", ran, []string{"placed 1", "placed 3"})
		k.ProcessNext()
		equal(t, "all", ran, []string{"placed 1", "placed 3", "charged 2"})
	})
}

func TestProcessNextFailsWhenNothingIsDue(t *testing.T) {
	t.Parallel()
	db := sqlite(t)
	var ran []string
	newKit := func(t testing.TB) *bustest.Kit {
		return bustest.NewKit(t, db, noting("place", &ran), noting("other", &ran))
	}
	wantFailure(t, func(t testing.TB) { newKit(t).ProcessNext() }, "bustest: ProcessNext: no message is due, want one; waiting: nothing")
	wantFailure(t, func(t testing.TB) { newKit(t).ProcessNext("unknown") },
		`bustest: ProcessNext(["unknown"]): outbox: process next: consumer "unknown": no consumer is registered`)
	k := newKit(t)
	k.Produce(OrderPlaced{"1"}, outbox.Delay(time.Minute))
	wantFailure(t, func(t testing.TB) {
		k := bustest.KitConfig{Start: k.Now()}.NewKit(t, db, noting("place", &ran), noting("other", &ran))
		k.ProcessNext("place")
	}, `ProcessNext(["place"]): no message is due`, "order.placed for other, due in 1m0s, failed 0 times; order.placed for place")
	blocked := sqlite(t)
	wantFailure(t, func(t testing.TB) {
		fail := func(context.Context, OrderPlaced) error { return bus.Permanent(errAway) }
		k := bustest.NewKit(t, blocked, bus.Consume("ordered", fail, bus.Ordered(bus.BlockKey)))
		for _, id := range []string{"1", "2"} {
			k.Produce(OrderPlaced{id}, outbox.OrderingKey("k"))
		}
		k.ProcessNext()
		k.ProcessNext()
	}, `ProcessNext: no message is due`, "order.placed for ordered, due now, but key blocked (")
	equal(t, "ran", ran, nil)
}

func TestDrainRunsCascades(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var k *bustest.Kit
		var ran []string
		k = bustest.NewKit(t, db,
			bus.Consume("charge", func(ctx context.Context, o OrderPlaced) error {
				_, err := k.Producer.Produce(ctx, db, OrderCharged(o))
				return err
			}),
			outbox.ConsumeTx("remind", func(ctx context.Context, tx bun.Tx, o OrderCharged) error {
				_, err := k.Producer.Produce(ctx, tx, OrderPlaced{o.ID + " later"}, outbox.Delay(time.Hour))
				return err
			}),
			bus.Consume("ship", func(_ context.Context, o OrderCharged) error { ran = append(ran, o.ID); return nil }))
		k.Produce(OrderPlaced{"1"})
		equal(t, "runs", consumersOf(k.DrainUntilIdle()), []string{"charge", "remind", "ship"})
		equal(t, "shipped", ran, []string{"1"})
		equal(t, "a second drain", consumersOf(k.DrainUntilIdle()), nil)
		bustest.RequireProduced(t, k, func(o OrderPlaced) bool { return o.ID == "1 later" })
		k.Advance(time.Hour - time.Microsecond)
		equal(t, "a microsecond early", consumersOf(k.DrainUntilIdle()), nil)
		k.Advance(time.Microsecond)
		equal(t, "an hour later", consumersOf(k.DrainUntilIdle()), []string{"charge", "remind", "ship"})
	})
}

func TestDrainStopsACascadeWithoutEnd(t *testing.T) {
	t.Parallel()
	db := sqlite(t)
	runs := 0
	wantFailure(t, func(t testing.TB) {
		var k *bustest.Kit
		k = bustest.KitConfig{Limit: 20}.NewKit(t, db, bus.Consume("again", func(ctx context.Context, o OrderPlaced) error {
			runs++
			_, err := k.Producer.Produce(ctx, db, o)
			return err
		}), bus.Consume("never", func(context.Context, OrderCharged) error { return nil }))
		k.Produce(OrderCharged{"1"})
		k.Produce(OrderPlaced{"1"})
		k.DrainUntilIdle()
	}, "bustest: DrainUntilIdle: got 21 messages run, want at most 20 (KitConfig.Limit)", "runs: again 20, never 1")
	if runs != 20 {
		t.Errorf("got %d runs, want 20", runs)
	}
}

func TestRetriesComeDueWithAdvance(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		fail := errors.New("no luck")
		k := bustest.NewKit(t, db, bus.Consume("charge", func(context.Context, OrderPlaced) error { return fail }, bus.MaxAttempts(4)))
		k.Produce(OrderPlaced{"1"})
		for i, wait := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
			d := k.ProcessNext()
			if d.Message.Attempt != i+1 || d.Outcome.Outcome != bus.Retried || d.Outcome.Delay != wait || !errors.Is(d.Outcome.Err, fail) {
				t.Errorf("attempt %d: got %+v, want it retried after %s", i+1, d.Outcome, wait)
			}
			k.Advance(wait - time.Microsecond)
			equal(t, "a microsecond early", consumersOf(k.DrainUntilIdle()), nil)
			k.Advance(time.Microsecond)
		}
		wantFailure(t, func(t testing.TB) { bustest.RequirePoisoned[OrderPlaced](t, k, "charge", nil) },
			`bustest: RequirePoisoned[bustest_test.OrderPlaced]: got none of consumer "charge", want one; poisoned: nothing`)
		if d := k.ProcessNext(); d.Outcome.Outcome != bus.Poisoned {
			t.Errorf("attempt 4: got %+v, want it poisoned", d.Outcome)
		}
		got := bustest.RequirePoisoned(t, k, "charge", func(o OrderPlaced) bool { return o.ID == "1" })
		if got.Reason != "attempt 4 of 4 failed" || got.Attempts != 4 || len(got.Errors) != 4 || !got.PoisonedAt.Equal(k.Now()) {
			t.Errorf("poisoned: got %+v, want four attempts, at %s", got, k.Now())
		}
		wantFailure(t, func(t testing.TB) {
			bustest.RequirePoisoned(t, k, "charge", func(o OrderPlaced) bool { return o.ID == "2" })
		}, `got none of consumer "charge" that matches, want one; poisoned: order.placed {"id":"1"} of charge (attempt 4 of 4 failed)`)
		wantFailure(t, func(t testing.TB) { bustest.RequirePoisoned[OrderPlaced](t, k, "ship", nil) }, `none of consumer "ship"`)
		bustest.RequireProduced(t, k, func(o OrderPlaced) bool { return o.ID == "1" })
		k.Advance(time.Hour)
		equal(t, "after it is poisoned", consumersOf(k.DrainUntilIdle()), nil)
	})
}

func TestSteadyBackoffKeepsToItsMaximum(t *testing.T) {
	t.Parallel()
	k := bustest.NewKit(t, sqlite(t), bus.Consume("charge", func(context.Context, OrderPlaced) error { return errors.New("no luck") },
		bus.AttemptDelay(4*time.Minute), bus.MaxAttempts(10)))
	k.Produce(OrderPlaced{"1"})
	for attempt, want := range []time.Duration{4 * time.Minute, 8 * time.Minute, 15 * time.Minute, 15 * time.Minute} {
		if got := k.ProcessNext().Outcome.Delay; got != want {
			t.Errorf("attempt %d: got %s, want %s", attempt+1, got, want)
		}
		k.Advance(want)
	}
}

func TestOutcomesAreThoseOfTheProcessor(t *testing.T) {
	t.Parallel()
	no := errors.New("no luck")
	tests := map[string]struct {
		returns func() error
		want    bus.Outcome
		wait    time.Duration
	}{
		"done":          {func() error { return nil }, bus.Done, 0},
		"retry after":   {func() error { return bus.RetryAfter(time.Minute, no) }, bus.Retried, time.Minute},
		"snooze":        {func() error { return bus.Snooze(time.Hour) }, bus.Snoozed, time.Hour},
		"permanent":     {func() error { return bus.Permanent(no) }, bus.Poisoned, 0},
		"discard":       {func() error { return bus.Discard(no) }, bus.Discarded, 0},
		"panic":         {func() error { panic("no luck") }, bus.Retried, 10 * time.Second},
		"any error":     {func() error { return no }, bus.Retried, 10 * time.Second},
		"wrapped error": {func() error { return fmt.Errorf("charge: %w", bus.Permanent(no)) }, bus.Poisoned, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := bustest.NewKit(t, sqlite(t), bus.Consume("c", func(context.Context, OrderPlaced) error { return test.returns() }))
			k.Produce(OrderPlaced{"1"})
			got := k.ProcessNext()
			if got.Outcome.Outcome != test.want || got.Outcome.Delay != test.wait {
				t.Errorf("verdict: got %+v, want %s after %s", got.Outcome, test.want, test.wait)
			}
			k.Advance(test.wait)
			if again := len(k.DrainUntilIdle()) > 0; again != (test.wait > 0) {
				t.Errorf("after %s: got another run: %t, want %t", test.wait, again, test.wait > 0)
			}
		})
	}
}

func TestUndecodablePayloadIsPoisoned(t *testing.T) {
	t.Parallel()
	db := sqlite(t)
	k := bustest.NewKit(t, db, bus.Consume("c", func(context.Context, OrderPlaced) error { return nil }))
	testapp.OK(t, k.Producer.Send(t.Context(), db, &bus.Message{PayloadType: "order.placed", Payload: []byte(`{"id":7}`)}))
	if got := k.ProcessNext(); got.Outcome.Outcome != bus.Poisoned {
		t.Errorf("got %+v, want it poisoned", got.Outcome)
	}
}

func TestAHandlerMayEndTheTest(t *testing.T) {
	t.Parallel()
	db := sqlite(t)
	var after bool
	got := failureOf(t, func(t testing.TB) {
		k := bustest.NewKit(t, db, bus.Consume("c", func(context.Context, OrderPlaced) error {
			t.FailNow()
			return nil
		}))
		k.Produce(OrderPlaced{"1"})
		k.ProcessNext()
		after = true
	})
	if !got.Failed() || after {
		t.Errorf("the test went on after a consumer called FailNow, want it to end")
	}
}

func TestProducedIsDueByTheKitsClock(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var ran []string
		k := bustest.KitConfig{Start: start(), IDs: bustest.SequentialIDs()}.NewKit(t, db, noting("c", &ran))
		// Any context, and a transaction: as the code under test does it.
		err := k.Producer.RunInTx(t.Context(), db, func(ctx context.Context, tx bun.Tx) error {
			receipt, err := k.Producer.Produce(ctx, tx, OrderPlaced{"1"}, outbox.Delay(time.Second), outbox.Header("tenant", "acme"),
				outbox.InsertID("key"))
			if want := "00000000-0000-7000-8000-000000000001"; receipt.MessageID.String() != want || receipt.Enqueued != 1 {
				t.Errorf("receipt: got %+v, want one row with the id %s", receipt, want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		m := bustest.RequireProduced[OrderPlaced](t, k, nil)
		if m.Value != (OrderPlaced{"1"}) || !m.CreatedAt.Equal(start()) || !m.AvailableAt.Equal(start().Add(time.Second)) ||
			m.Headers["tenant"] != "acme" || m.InsertID != "key" {
			t.Errorf("message: got %+v, want it due a second after %s", m, start())
		}
		k.Advance(time.Second)
		if now := k.Now(); !now.Equal(start().Add(time.Second)) {
			t.Errorf("now: got %s, want a second after %s", now, start())
		}
		delivery := k.ProcessNext()
		if delivery.Message.Headers["tenant"] != "acme" || delivery.Message.ID != m.ID {
			t.Errorf("delivery: got %+v, want the id and the header", delivery.Message)
		}
		// Consumed, but produced all the same.
		bustest.RequireProduced(t, k, func(o OrderPlaced) bool { return o.ID == "1" })
		wantFailure(t, func(t testing.TB) { bustest.RequireNotProduced[OrderPlaced](t, k, nil) },
			"bustest: RequireNotProduced[bustest_test.OrderPlaced]: got {ID:1} (message 00000000-0000-7000-8000-000000000001), want none")
	})
}

func TestConfigIsUsed(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var seen []string
	note := func(name string) bus.Middleware {
		return func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, m *bus.Message) error {
				seen = append(seen, name)
				return next(ctx, m)
			}
		}
	}
	logger := slog.New(slog.NewTextHandler(&log, nil))
	c := bustest.KitConfig{
		Registry: bus.RegistryConfig{Tables: bus.Tables{Prefix: "shop_"}},
		Producer: outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{bus.PerMessage(func(_ context.Context, m *bus.Message) error {
			m.Headers = map[string]string{"tenant": "acme"}
			return nil
		})}},
		Processor: outbox.ProcessorConfig{Logger: logger, Middleware: middleware.Default(middleware.Options{
			Logger: logger, Backoff: middleware.Constant(time.Minute), Middleware: []bus.Middleware{note("outer"), note("inner")},
		})},
	}
	k := c.NewKit(t, sqlite(t), bus.Consume("c", func(ctx context.Context, _ OrderPlaced) error {
		m, _ := bus.MessageFromContext(ctx)
		seen = append(seen, m.Headers["tenant"])
		return errors.New("no luck")
	}))
	k.Produce(OrderPlaced{"1"})
	if got := k.ProcessNext().Outcome.Delay; got != time.Minute {
		t.Errorf("delay: got %s, want that of the chain, 1m", got)
	}
	equal(t, "layers", seen, []string{"outer", "inner", "acme"})
	if k.Registry.Tables().Prefix != "shop_" || !strings.Contains(log.String(), "consumer=c") {
		t.Errorf("tables %+v and log %q: want the prefix shop_ and a line about c", k.Registry.Tables(), log.String())
	}
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	db := sqlite(t)
	fine := bus.Consume("c", func(context.Context, OrderPlaced) error { return nil })
	tests := map[string]struct {
		make func(t testing.TB)
		want string
	}{
		"no database":      {func(t testing.TB) { bustest.NewKit(t, nil, fine) }, "bustest: NewKit: the database handle is nil"},
		"a consumer twice": {func(t testing.TB) { bustest.NewKit(t, db, fine, fine) }, `bustest: NewKit: bus: consumer "c" is registered twice`},
		"a zero consumer":  {func(t testing.TB) { bustest.NewKit(t, db, bus.Consumer{}) }, "bustest: NewKit: bus: a Consumer must be made by"},
		"a bad processor": {func(t testing.TB) {
			bustest.KitConfig{Processor: outbox.ProcessorConfig{MaxAttempts: -1}}.NewKit(t, db, fine)
		}, "MaxAttempts -1"},
		"a bad producer": {func(t testing.TB) {
			bustest.KitConfig{Producer: outbox.ProducerConfig{MaxPayload: -1}}.NewKit(t, db, fine)
		}, "MaxPayload -1"},
		"a bad table prefix": {func(t testing.TB) {
			bustest.KitConfig{Registry: bus.RegistryConfig{Tables: bus.Tables{Prefix: "A"}}}.NewKit(t, db)
		}, "bustest: NewKit: "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantFailure(t, test.make, test.want)
		})
	}
	wantFailure(t, func(t testing.TB) { bustest.NewKit(t, db, fine).Produce(OrderCharged{"1"}) },
		`bustest: Produce: outbox: produce: payload "order.charged" (bustest_test.OrderCharged): `+
			`no consumer is registered: register a consumer, or bus.Declare another program's`)
}

func TestAKitWithoutConsumersIsIdle(t *testing.T) {
	t.Parallel()
	k := bustest.NewKit(t, sqlite(t))
	equal(t, "drain", consumersOf(k.DrainUntilIdle()), nil)
	k.Advance(time.Hour)
}

func TestFailuresOfTheDatabaseAreTold(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(t testing.TB, k *bustest.Kit){
		"ProcessNext":     func(_ testing.TB, k *bustest.Kit) { k.ProcessNext() },
		"DrainUntilIdle":  func(_ testing.TB, k *bustest.Kit) { k.DrainUntilIdle() },
		"Advance(1s)":     func(_ testing.TB, k *bustest.Kit) { k.Advance(time.Second) },
		"Produce":         func(_ testing.TB, k *bustest.Kit) { k.Produce(OrderPlaced{}) },
		"RequireProduced": func(t testing.TB, k *bustest.Kit) { bustest.RequireProduced[OrderPlaced](t, k, nil) },
		"RequirePoisoned": func(t testing.TB, k *bustest.Kit) { bustest.RequirePoisoned[OrderPlaced](t, k, "c", nil) },
	} {
		db := sqlite(t)
		wantFailure(t, func(t testing.TB) {
			k := bustest.NewKit(t, db, bus.Consume("c", func(context.Context, OrderPlaced) error { return nil }))
			_ = db.Close()
			use(t, k)
		}, "bustest: "+name, "closed")
	}
}
