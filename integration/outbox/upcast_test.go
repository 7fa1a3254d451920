package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/poisoned"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// priceV1 and priceV2 are one payload in two releases.
type (
	priceV1 struct {
		Amount int `json:"amount"`
	}
	priceV2 struct {
		Cents int `json:"cents"`
	}
)

func (priceV1) PayloadType() string { return "price" }
func (priceV2) PayloadType() string { return "price" }

func (priceV2) Upcasters() []bus.Upcaster {
	return []bus.Upcaster{func(_ context.Context, text []byte) ([]byte, error) {
		if strings.Contains(string(text), "666") {
			panic("unlucky")
		}
		if !strings.Contains(string(text), "amount") {
			return nil, errors.New("it is no schema 1")
		}
		return []byte(strings.Replace(string(text), "amount", "cents", 1)), nil
	}}
}

// seen collects what consumers got.
type seen struct{ got chan string }

func (s seen) add(by string, cents int) { s.got <- fmt.Sprintf("%s %d", by, cents) }

func (s seen) consumers() []bus.Consumer {
	return kinds(func(by string, p priceV2) { s.add(by, p.Cents) })
}

// kinds returns a consumer of each kind.
func kinds[T bus.Payload](add func(by string, p T)) []bus.Consumer {
	return []bus.Consumer{
		bus.Consume("one", func(_ context.Context, p T) error { add("one", p); return nil }),
		bus.ConsumeBatch("batch", func(_ context.Context, all []T) error {
			for _, p := range all {
				add("batch", p)
			}
			return nil
		}),
		outbox.ConsumeTx("tx", func(_ context.Context, _ bun.Tx, p T) error { add("tx", p); return nil }),
		outbox.ConsumeTx("group", func(_ context.Context, _ bun.Tx, p T) error { add("group", p); return nil }, outbox.GroupCommit(10)),
		outbox.ConsumeBatchTx("batch-tx", func(_ context.Context, _ bun.Tx, all []T) error {
			for _, p := range all {
				add("batch-tx", p)
			}
			return nil
		}),
	}
}

// next returns what a consumer got next.
func (s seen) next(t *testing.T) string {
	t.Helper()
	select {
	case text := <-s.got:
		return text
	case <-time.After(30 * time.Second):
		t.Fatal("no consumer got any more")
		return ""
	}
}

// old returns the consumers of the release before.
func old(fail error) (all []bus.Consumer) {
	for _, name := range []string{"one", "batch", "tx", "group", "batch-tx"} {
		all = append(all, bus.Consume(name, func(context.Context, priceV1) error { return fail }))
	}
	return all
}

// TestMessagesOfAnOlderReleaseAreUpcast, those that wait and those that were poisoned and are requeued, beside messages of
// today.
// Promise: upcast
func TestMessagesOfAnOlderReleaseAreUpcast(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		before := testapp.New(t, db, old(bus.Permanent(errors.New("bad")))...)
		before.Produce(priceV1{1})
		r := before.Start(testapp.Fast())
		testapp.Eventually(t, "all are poisoned", func() bool { return len(before.Poisoned()) == 5 })
		r.MustStop()
		before.Produce(priceV1{2})

		s := seen{make(chan string, 100)}
		now := testapp.New(t, db, s.consumers()...)
		now.Produce(priceV2{3})
		store := testapp.Must[*poison.Store](t)(poison.NewStore(now.Registry))
		if done := testapp.Must[poison.Result](t)(store.RequeueWhere(t.Context(), db, poison.Filter{}, 10)); done.Requeued != 5 {
			t.Fatalf("got %+v, want 5 requeued", done)
		}
		now.Start(testapp.Fast())
		var got, want []string
		for _, name := range []string{"one", "batch", "tx", "group", "batch-tx"} {
			for cents := range 3 {
				want, got = append(want, fmt.Sprint(name, " ", cents+1)), append(got, s.next(t))
			}
		}
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestAnUpcasterThatPanicsPoisonsItsMessage and no other.
func TestAnUpcasterThatPanicsPoisonsItsMessage(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		before := testapp.New(t, db, old(nil)...)
		before.Produce(priceV1{666})
		before.Produce(priceV1{1})
		s := seen{make(chan string, 100)}
		now := testapp.New(t, db, s.consumers()...)
		now.Start(testapp.Fast())
		for range 5 {
			if got := s.next(t); !strings.HasSuffix(got, " 1") {
				t.Errorf("got %q, want the other message", got)
			}
		}
		testapp.Eventually(t, "five are poisoned", func() bool { return len(now.Poisoned()) == 5 })
		for _, m := range now.Poisoned() {
			if !strings.Contains(m.Errors, "upcast from schema 1") || strings.Contains(m.Errors, "unlucky") || m.Attempts != 1 {
				t.Errorf("got %d attempts and errors %s, want one attempt and no content", m.Attempts, m.Errors)
			}
		}
	})
}

// TestAnOlderProcessLeavesANewerSchema to a newer one: no attempt is counted, and nothing is poisoned.
// Promise: upcast
func TestAnOlderProcessLeavesANewerSchema(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		s := seen{make(chan string, 100)}
		now := testapp.New(t, db, s.consumers()...)
		now.Produce(priceV2{7})
		var ran atomic.Int64
		before := testapp.New(t, db, kinds(func(_ string, p priceV1) {
			if p.Amount != 1 {
				ran.Add(1)
			}
		})...)
		before.Produce(priceV1{1}) // runs beside them
		r := before.Start(testapp.Fast())
		testapp.Eventually(t, "the older process leaves them", func() bool {
			return before.Count("SELECT count(*) FROM consumer_messages WHERE available_after > created_at") == 5 &&
				before.Count("SELECT count(*) FROM consumer_messages") == 5
		})
		r.MustStop()
		for _, m := range before.Pending() {
			if m.Attempts != 0 || !strings.Contains(m.Errors, "schema 2 is unknown, 1 to 1 are known") {
				t.Errorf("%s: got %d attempts and errors %s, want no attempt, and why it waits", m.ConsumerType, m.Attempts, m.Errors)
			}
		}
		if n, poisoned := len(before.Pending()), len(before.Poisoned()); n != 5 || poisoned != 0 || ran.Load() != 0 {
			t.Errorf("got %d messages, %d poisoned and %d runs, want 5 messages and no more", n, poisoned, ran.Load())
		}
		now.Start(testapp.Fast())
		var got []string
		for range 5 {
			got = append(got, s.next(t))
		}
		slices.Sort(got)
		if want := []string{"batch 7", "batch-tx 7", "group 7", "one 7", "tx 7"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestEditedPayloadsHaveTheirSchema: a payload of a type is in the newest schema, and a text in that of the stored one.
func TestEditedPayloadsHaveTheirSchema(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		before := testapp.New(t, db, bus.Consume("former", func(context.Context, priceV1) error { return bus.Permanent(errors.New("bad")) }))
		before.Produce(priceV1{1})
		before.Produce(priceV1{2})
		r := before.Start(testapp.Fast())
		testapp.Eventually(t, "both are poisoned", func() bool { return len(before.Poisoned()) == 2 })
		r.MustStop()

		s := seen{make(chan string, 100)}
		one := func(_ context.Context, p priceV2) error { s.add("one", p.Cents); return nil }
		now := testapp.New(t, db, bus.Consume("one", one, bus.Aliases("former")))
		store := testapp.Must[*poisoned.Store](t)(poisoned.NewStore(now.Registry))
		all, _, err := store.List(t.Context(), db, poison.Filter{}, admin.Page{})
		testapp.OK(t, err)
		testapp.OK(t, store.EditAndRequeue(t.Context(), db, all[0].ID, priceV2{10}))
		if _, err := store.CheckEdit(t.Context(), db, all[1].ID, []byte(`{"amount":20}`)); err != nil {
			t.Errorf("check: got %v, want none", err)
		}
		testapp.OK(t, store.EditAndRequeueText(t.Context(), db, all[1].ID, []byte(`{"amount":20}`)))
		now.Start(testapp.Fast())
		got := []string{s.next(t), s.next(t)}
		if slices.Sort(got); !slices.Equal(got, []string{"one 10", "one 20"}) {
			t.Errorf("got %q, want both as they were edited", got)
		}
	})
}

// TestHandedOffPayloadsHaveTheirSchema: a payload that is handed off to a processor of its process is not upcast.
// Promise: upcast
func TestHandedOffPayloadsHaveTheirSchema(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	h := &handOffs{db: db, runs: make(map[string]int), born: make(map[string]bool)}
	a := testapp.New(t, db, bus.Consume("one", func(ctx context.Context, p priceV2) error {
		m, _ := bus.MessageFromContext(ctx)
		return h.run(ctx, order{ID: fmt.Sprint(p.Cents, " of schema ", m.Schema)})
	}))
	a.Start(testapp.Fast())
	cents := 0
	testapp.Eventually(t, "a message is handed off", func() bool {
		cents++
		a.Produce(priceV2{cents})
		want := fmt.Sprint(cents, " of schema 2")
		testapp.Eventually(t, want+" ran", func() bool { runs, _ := h.of(want); return runs > 0 })
		_, handedOff := h.of(want)
		return handedOff
	})
}
