package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
		before := time.Now().Add(-time.Second)
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
		if !before.Before(time.Now()) {
			t.Error("the clock stands still")
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

func TestDuplicateInsertIDWritesNothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("first", &n), testapp.Counting("second", &n))
		a.Produce(order{ID: "1"}, outbox.InsertID("key"))
		again := a.Produce(order{ID: "2"}, outbox.InsertID("key"))
		if again.Enqueued != 0 || again.Duplicates != 2 {
			t.Errorf("receipt: got %+v, want 2 duplicates", again)
		}
		if rows := a.Pending(); len(rows) != 2 || rows[0].Payload != `{"id":"1","n":0}` {
			t.Errorf("rows: got %+v, want the first payload's two", rows)
		}
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "both are consumed", func() bool { return n.Load() == 2 && a.Empty() })
		r.MustStop()
		if r := a.Produce(order{ID: "3"}, outbox.InsertID("key")); r.Enqueued != 2 {
			t.Errorf("receipt after the key was consumed: got %+v, want 2 enqueued", r)
		}
	})
}

func TestRolledBackProduceLeavesNothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &n))
		r := a.Start(testapp.Fast())
		no := errors.New("no")
		err := a.Producer.RunInTx(t.Context(), db, func(ctx context.Context, tx bun.Tx) error {
			if _, err := a.Producer.Produce(ctx, tx, order{ID: "1"}); err != nil {
				return err
			}
			return no
		})
		if !errors.Is(err, no) {
			t.Fatalf("RunInTx: got %v, want the function's error", err)
		}
		a.Produce(order{ID: "2"})
		testapp.Eventually(t, "the second is consumed", func() bool { return n.Load() == 1 && a.Empty() })
		r.MustStop()
		if got := n.Load(); got != 1 {
			t.Errorf("runs: got %d, want 1", got)
		}
	})
}

func TestConsumedMessagesAreRemoved(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var mu sync.Mutex
		seen := map[string]int{}
		a := testapp.New(t, db, bus.Consume("c", func(ctx context.Context, o order) error {
			m, ok := bus.MessageFromContext(ctx)
			if !ok || m.Attempt != 1 || m.Consumer != "c" || m.PayloadType != "order.placed" || m.Headers["k"] != "" {
				t.Errorf("current message: got %+v", m)
			}
			mu.Lock()
			defer mu.Unlock()
			seen[o.ID]++
			return nil
		}))
		config := testapp.Fast()
		config.BatchSize = 7
		a.ProduceMany(100)
		r := a.Start(config)
		testapp.Eventually(t, "all are consumed", a.Empty)
		r.MustStop()
		for i := range 100 {
			if got := seen[fmt.Sprint(i)]; got != 1 {
				t.Errorf("message %d ran %d times, want once", i, got)
			}
		}
	})
}

func TestNothingRunsBeforeItIsDue(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &n))
		a.Produce(order{ID: "delayed"}, outbox.Delay(time.Hour))
		a.Produce(order{ID: "fixed"}, outbox.AvailableAt(time.Now().Add(time.Hour)))
		polls := countPolls(a)
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "several polls", func() bool { return polls.Load() >= 4 })
		if n.Load() != 0 || !r.Health().LastClaim.IsZero() {
			t.Errorf("runs: got %d, last claim %s, want none", n.Load(), r.Health().LastClaim)
		}
		a.Produce(order{ID: "now"})
		a.Produce(order{ID: "past"}, outbox.AvailableAt(time.Now().Add(-time.Hour)))
		testapp.Eventually(t, "the due ones run", func() bool { return n.Load() == 2 })
		r.MustStop()
		if got := len(a.Pending()); got != 2 {
			t.Errorf("messages left: got %d, want the 2 that are not due", got)
		}
	})
}

// countPolls counts the idle polls of processors that are started after it.
func countPolls(a *app) *atomic.Int64 {
	var polls atomic.Int64
	a.DB = a.DB.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
		if strings.Contains(query, "AS kind") {
			polls.Add(1)
		}
	}))
	return &polls
}

func TestFailuresCountAndPoison(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		options []bus.ConsumerOption
		want    int
	}{
		{"at the default of 5 attempts", nil, 5},
		{"at the consumer's own 2 attempts", []bus.ConsumerOption{bus.MaxAttempts(2)}, 2},
		{"at once with a single attempt", []bus.ConsumerOption{bus.MaxAttempts(1)}, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				var bad, good atomic.Int64
				a := testapp.New(t, db, failing("bad", &bad, test.options...), testapp.Counting("good", &good))
				receipt := a.Produce(order{ID: "1"}, outbox.Header("k", "v"), outbox.InsertID("key"))
				r := a.Start(testapp.Fast())
				testapp.Eventually(t, "the message is poisoned", func() bool { return len(a.Poisoned()) == 1 })
				testapp.Eventually(t, "nothing is left", a.Empty)
				r.MustStop()
				got := a.Poisoned()[0]
				if int(bad.Load()) != test.want || got.Attempts != test.want {
					t.Errorf("got %d runs and %d attempts, want %d", bad.Load(), got.Attempts, test.want)
				}
				if got.MessageID != receipt.MessageID.String() || got.ConsumerType != "bad" || got.Payload != `{"id":"1","n":0}` ||
					got.Headers != `{"k":"v"}` || got.InsertID != "key" {
					t.Errorf("poisoned: got %+v, want the whole message", got)
				}
				if want := fmt.Sprintf("attempt %d of %d failed", test.want, test.want); got.Reason != want {
					t.Errorf("reason: got %q, want %q", got.Reason, want)
				}
				if n := strings.Count(got.Errors, "no luck"); n != test.want {
					t.Errorf("errors: got %s, want %d entries", got.Errors, test.want)
				}
				if good.Load() != 1 {
					t.Errorf("the other consumer ran %d times, want once", good.Load())
				}
			})
		})
	}
}

func TestTimeoutCountsAnAttempt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		a := testapp.New(t, db, bus.Consume("slow", func(ctx context.Context, _ order) error {
			if runs.Add(1) > 1 {
				return nil
			}
			<-ctx.Done()
			if cause := context.Cause(ctx); cause != bus.ErrTimeout {
				t.Errorf("cause: got %v, want ErrTimeout", cause)
			}
			return ctx.Err()
		}, bus.Timeout(20*time.Millisecond), bus.Backoff(func(int) time.Duration { return time.Hour })))
		a.Produce(order{ID: "1"})
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "an attempt is counted", func() bool {
			rows := a.Pending()
			return len(rows) == 1 && rows[0].Attempts == 1 && strings.Contains(rows[0].Errors, "consumer timeout 20ms")
		})
		r.MustStop()
	})
}

func TestOutcomesOfHandlers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		boom := errors.New("boom")
		once := func(err error) func(context.Context, order) error {
			var done atomic.Bool
			return func(context.Context, order) error {
				if done.Swap(true) {
					return nil
				}
				return err
			}
		}
		a := testapp.New(t, db,
			bus.Consume("permanent", func(context.Context, order) error { return bus.Permanent(boom) }),
			bus.Consume("discard", func(context.Context, order) error { return bus.Discard(boom) }),
			bus.Consume("snooze", once(bus.Snooze(time.Hour))),
			bus.Consume("retry-after", once(bus.RetryAfter(time.Hour, boom))),
			bus.Consume("panics", func(context.Context, order) error { panic("boom") }, bus.Backoff(func(int) time.Duration { return time.Hour })),
			bus.Consume("undecodable", func(context.Context, order) error { return nil }),
		)
		a.Produce(order{ID: "1"})
		a.Exec(`UPDATE consumer_messages SET payload = '{"id":' WHERE consumer_type = 'undecodable'`)
		r := a.Start(testapp.Fast())
		want := map[string]string{"snooze": "pending 0", "retry-after": "pending 1", "panics": "pending 1",
			"permanent": "poisoned 1", "undecodable": "poisoned 1"}
		got := func() map[string]string {
			states := map[string]string{}
			for _, m := range a.Pending() {
				states[m.ConsumerType] = fmt.Sprintf("pending %d", m.Attempts)
			}
			for _, m := range a.Poisoned() {
				states[m.ConsumerType] = fmt.Sprintf("poisoned %d", m.Attempts)
			}
			return states
		}
		testapp.Eventually(t, "every outcome is settled", func() bool {
			return fmt.Sprint(got()) == fmt.Sprint(want) && a.Count("SELECT count(*) FROM message_claims") == 0
		})
		r.MustStop()
		for _, m := range a.Poisoned() {
			if m.ConsumerType == "undecodable" && !strings.Contains(m.Errors, "malformed JSON") {
				t.Errorf("errors of the undecodable message: got %s, want the decode error", m.Errors)
			}
		}
	})
}

func TestUnregisteredMessagesAreLeftInPlace(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("known", &n), testapp.Counting("unknown", &n), testapp.Counting("misfit", &n))
		a.Produce(order{ID: "1"})
		a.Exec("UPDATE consumer_messages SET payload_type = 'order.unheard-of' WHERE consumer_type = 'misfit'")
		b := testapp.New(t, db, testapp.Counting("known", &n), testapp.Counting("misfit", &n))
		polls := countPolls(b)
		r := b.Start(testapp.Fast())
		testapp.Eventually(t, "the known one runs", func() bool { return n.Load() == 1 && polls.Load() > 3 })
		r.MustStop()
		rows := a.Pending()
		if len(rows) != 2 {
			t.Fatalf("left: got %+v, want the unknown consumer's and the unknown payload's", rows)
		}
		for _, m := range rows {
			if m.Attempts != 0 || m.Crashes != 0 {
				t.Errorf("%s: got %d attempts and %d crashes, want it untouched", m.ConsumerType, m.Attempts, m.Crashes)
			}
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

// brokenError panics when it is asked for its text through a nil pointer.
type brokenError struct{ text string }

func (e *brokenError) Error() string { return e.text }

func TestErrorThatCannotBePrintedIsAnErrorLikeAnyOther(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { return (*brokenError)(nil) }, bus.MaxAttempts(2)))
		a.Produce(order{ID: "1"})
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "the message is poisoned", func() bool { return len(a.Poisoned()) == 1 })
		r.MustStop()
		if got := a.Poisoned()[0]; got.Attempts != 2 || !strings.Contains(got.Errors, "brokenError panicked") {
			t.Errorf("poisoned: got %+v, want 2 attempts and what happened", got)
		}
	})
}
