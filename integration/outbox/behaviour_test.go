package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func failing(name string, runs *atomic.Int64, options ...bus.ConsumerOption) bus.Consumer {
	return bus.Consume(name, func(context.Context, order) error { runs.Add(1); return errors.New("no luck") }, options...)
}

func TestProducerWritesOneRowPerConsumer(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("first", &n), testapp.Counting("second", &n))
		receipt := a.Produce(order{ID: "1", N: 7}, outbox.Header("tenant", "acme"))
		if receipt.Enqueued != 2 || receipt.Duplicates != 0 {
			t.Errorf("receipt: got %+v, want 2 enqueued", receipt)
		}
		rows := a.Pending()
		if len(rows) != 2 || rows[0].ConsumerType != "first" || rows[1].ConsumerType != "second" {
			t.Fatalf("rows: got %+v, want one for each consumer", rows)
		}
		for _, r := range rows {
			want := testapp.Row{ID: r.ID, MessageID: receipt.MessageID.String(), ConsumerType: r.ConsumerType,
				PayloadType: "order.placed", Payload: `{"id":"1","n":7}`, Headers: `{"tenant":"acme"}`}
			if r != want {
				t.Errorf("row: got %+v, want %+v", r, want)
			}
		}
		due := "SELECT count(*) FROM consumer_messages WHERE available_after = created_at"
		if n := a.Count(due); n != 2 {
			t.Errorf("rows available at once: got %d, want 2", n)
		}
	})
}

func TestProduceManyWritesMixedPayloads(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("orders", &n), testapp.Counting("audit", &n),
			bus.Consume("refunds", func(context.Context, refund) error { return nil }))
		items := []outbox.Item{{Payload: order{ID: "1"}}, {Payload: refund{ID: "2"}}}
		for i := range 1200 { // more than one statement
			items = append(items, outbox.Item{Payload: refund{ID: fmt.Sprint(i)}, Options: []outbox.Option{outbox.InsertID(fmt.Sprint(i % 600))}})
		}
		receipts, err := a.Producer.ProduceMany(t.Context(), db, items...)
		if err != nil {
			t.Fatalf("produce: %v", err)
		}
		if receipts[0].Enqueued != 2 || receipts[1].Enqueued != 1 {
			t.Errorf("receipts: got %+v and %+v, want 2 and 1 enqueued", receipts[0], receipts[1])
		}
		duplicates := 0
		for _, r := range receipts {
			duplicates += r.Duplicates
		}
		if got := len(a.Pending()); got != 603 || duplicates != 600 {
			t.Errorf("got %d rows and %d duplicates, want 603 and 600", got, duplicates)
		}
	})
}

func TestOldNamesAreStillConsumed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		old := testapp.New(t, db, testapp.Counting("old-name", &n))
		old.Produce(order{ID: "1"})
		old.Exec("UPDATE consumer_messages SET payload_type = 'order.created'")
		renamed := testapp.New(t, db, testapp.Counting("new-name", &n, bus.Aliases("old-name"), bus.PayloadAliases("order.created")))
		renamed.Produce(order{ID: "2"})
		r := renamed.Start(testapp.Fast())
		testapp.Eventually(t, "both are consumed", func() bool { return n.Load() == 2 && renamed.Empty() })
		r.MustStop()
	})
}

func TestSQLiteRefusesSeveralProcessors(t *testing.T) {
	t.Parallel()
	a := testapp.New(t, testdb.SQLite(t))
	_, err := outbox.NewProcessor(a.DB, a.Registry, outbox.ProcessorConfig{Fetchers: 2})
	if err == nil || !strings.Contains(err.Error(), "Fetchers 2: 1 is allowed") {
		t.Errorf("got %v, want Fetchers refused", err)
	}
	if _, err := outbox.NewProcessor(a.DB, a.Registry, outbox.ProcessorConfig{Fetchers: 1}); err != nil {
		t.Errorf("one processor: got %v, want no error", err)
	}
}

func TestAnUndecodablePayloadIsPoisonedAfterOneAttempt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		a.Produce(order{ID: "1"})
		a.Exec(`UPDATE consumer_messages SET payload = '{"id":'`)
		a.Start(testapp.Fast())
		testapp.Eventually(t, "it is poisoned", func() bool { return len(a.Poisoned()) == 1 })
		if m := a.Poisoned()[0]; m.Attempts != 1 || !strings.Contains(m.Errors, "malformed JSON") {
			t.Errorf("poisoned: got %+v, want one attempt and the decode error", m)
		}
	})
}

func TestTheDefaultIsFiveAttempts(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	a := testapp.New(t, testdb.SQLite(t), failing("c", &runs))
	a.Produce(order{ID: "1"})
	a.Start(testapp.Fast())
	testapp.Eventually(t, "the message is poisoned", func() bool { return len(a.Poisoned()) == 1 })
	if got := a.Poisoned()[0]; runs.Load() != 5 || got.Reason != "attempt 5 of 5 failed" || strings.Count(got.Errors, "no luck") != 5 {
		t.Errorf("got %d runs and %+v, want 5 and their errors", runs.Load(), got)
	}
}
