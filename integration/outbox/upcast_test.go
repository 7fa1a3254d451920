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
	return []bus.Consumer{
		bus.Consume("one", func(_ context.Context, p priceV2) error { s.add("one", p.Cents); return nil }),
		bus.ConsumeBatch("batch", func(_ context.Context, all []priceV2) error {
			for _, p := range all {
				s.add("batch", p.Cents)
			}
			return nil
		}),
		outbox.ConsumeTx("tx", func(_ context.Context, _ bun.Tx, p priceV2) error { s.add("tx", p.Cents); return nil }),
		outbox.ConsumeTx("group", func(_ context.Context, _ bun.Tx, p priceV2) error { s.add("group", p.Cents); return nil },
			outbox.GroupCommit(10)),
		outbox.ConsumeBatchTx("batch-tx", func(_ context.Context, _ bun.Tx, all []priceV2) error {
			for _, p := range all {
				s.add("batch-tx", p.Cents)
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
		before := testapp.New(t, db, bus.Consume("one", func(context.Context, priceV1) error { ran.Add(1); return nil }, bus.MaxAttempts(1)))
		r := before.Start(testapp.Fast())
		waits := func() bool {
			return before.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'one' AND available_after > created_at") == 1
		}
		testapp.Eventually(t, "the older process leaves it", waits)
		r.MustStop()
		if n := before.Count("SELECT count(*) FROM consumer_messages WHERE attempts > 0"); n != 0 || ran.Load() != 0 || len(before.Poisoned()) != 0 {
			t.Errorf("got %d with an attempt, %d runs and %d poisoned, want none", n, ran.Load(), len(before.Poisoned()))
		}
		now.Start(testapp.Fast())
		var got []string
		for range 5 {
			got = append(got, s.next(t))
		}
		if !slices.Contains(got, "one 7") {
			t.Errorf("got %q, want the message of consumer one", got)
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
		if err != nil {
			t.Fatal(err)
		}
		if err := store.EditAndRequeue(t.Context(), db, all[0].ID, priceV2{10}); err != nil {
			t.Fatal(err)
		}
		if _, err := store.CheckEdit(t.Context(), db, all[1].ID, []byte(`{"amount":20}`)); err != nil {
			t.Errorf("check: got %v, want none", err)
		}
		if err := store.EditAndRequeueText(t.Context(), db, all[1].ID, []byte(`{"amount":20}`)); err != nil {
			t.Fatal(err)
		}
		now.Start(testapp.Fast())
		got := []string{s.next(t), s.next(t)}
		if slices.Sort(got); !slices.Equal(got, []string{"one 10", "one 20"}) {
			t.Errorf("got %q, want both as they were edited", got)
		}
	})
}
