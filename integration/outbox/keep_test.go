package outbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// consumedBy lists what is kept of a consumer.
func consumedBy(a *app, consumer string) []admin.ConsumedMessage {
	a.Helper()
	ctx, filter := context.WithoutCancel(a.Context()), admin.ConsumedFilter{Consumer: consumer}
	found, next, err := a.Admin().Consumed(ctx, a.DB, filter, admin.Page{Size: 1000})
	if err != nil || next != nil {
		a.Fatalf("consumed: got next page %v and error %v, want neither", next, err)
	}
	return found
}

// TestAConsumerKeepsWhatItConsumed of each kind: once, with what became of it.
func TestAConsumerKeepsWhatItConsumed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		keep, fails := bus.Keep(time.Hour), map[string]int{"7": 2}
		fail := func(o order) error {
			if fails[o.ID]--; fails[o.ID] >= 0 {
				return errors.New("not yet")
			}
			return nil
		}
		kinds := []string{"plain", "batch", "tx", "group", "batch tx"}
		a := testapp.New(t, db,
			bus.Consume("plain", func(_ context.Context, o order) error { return fail(o) }, keep, bus.Concurrency(1)),
			bus.ConsumeBatch("batch", func(context.Context, []order) error { return nil }, keep),
			outbox.ConsumeTx("tx", func(context.Context, bun.Tx, order) error { return nil }, keep),
			outbox.ConsumeTx("group", func(context.Context, bun.Tx, order) error { return nil }, keep, outbox.GroupCommit(10)),
			outbox.ConsumeBatchTx("batch tx", func(context.Context, bun.Tx, []order) error { return nil }, keep),
			testapp.Consumed("forgets"))
		a.ProduceMany(30)
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "all is consumed", a.Empty)
		r.MustStop()
		for _, kind := range kinds {
			found := consumedBy(a, kind)
			ids := make(map[uuid.UUID]bool)
			for i, m := range found {
				ids[m.MessageID] = true
				if m.Outcome != "done" || m.PayloadKept || m.Payload != nil || m.StartedAt.IsZero() || m.RunTime < 0 || m.Reason != "" ||
					m.ExpiresAt.Sub(m.FinishedAt) != time.Hour || m.StartedAt.Before(m.CreatedAt.Add(-time.Second)) ||
					i > 0 && m.FinishedAt.After(found[i-1].FinishedAt) {
					t.Errorf("%s: got %+v, want it done, without a payload, kept for an hour, newest first", kind, m)
				}
			}
			if len(found) != 30 || len(ids) != 30 {
				t.Errorf("%s: got %d kept, %d of them distinct, want 30", kind, len(found), len(ids))
			}
		}
		tries := attemptsOf(consumedBy(a, "plain"))
		slices.Sort(tries)
		if n := len(tries); n < 2 || tries[n-2] != 1 || tries[n-1] != 3 {
			t.Errorf("attempts: got %v, want one of 3 and the others of 1", tries)
		}
		if found := consumedBy(a, "forgets"); len(found) > 0 {
			t.Errorf("without Keep: got %+v, want none", found)
		}
	})
}

func attemptsOf(found []admin.ConsumedMessage) (attempts []int) {
	for _, m := range found {
		attempts = append(attempts, m.Attempts)
	}
	return attempts
}

// TestDiscardedAndExpiredMessagesAreKept with the reason; poisoned ones are not.
func TestDiscardedAndExpiredMessagesAreKept(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		runs := 0
		a := testapp.New(t, db, bus.Consume("c", func(_ context.Context, o order) error {
			runs++
			if o.ID == "poison" {
				return bus.Permanent(errors.New("broken"))
			}
			return bus.Discard(errors.New("not wanted"))
		}, bus.Keep(time.Hour), bus.KeepPayload(), bus.Concurrency(1)))
		a.Produce(order{ID: "discard"}, outbox.Header("tenant", "acme"))
		a.Produce(order{ID: "late"}, outbox.DeliverBy(time.Now().Add(-time.Minute), bus.Discarded))
		a.Produce(order{ID: "poison"})
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "all is consumed", a.Empty)
		r.MustStop()
		found := consumedBy(a, "c")
		slices.SortFunc(found, func(a, b admin.ConsumedMessage) int { return int(a.ID - b.ID) })
		if len(found) != 2 || runs != 2 || len(a.Poisoned()) != 1 {
			t.Fatalf("got %+v kept after %d runs, want two after two", found, runs)
		}
		discarded, late := found[0], found[1]
		if discarded.Outcome != "discarded" || discarded.Reason != "not wanted" || string(discarded.Payload) != `{"id":"discard","n":0}` ||
			discarded.Headers["tenant"] != "acme" {
			t.Errorf("discarded: got %+v, want its reason, payload and headers", discarded)
		}
		if late.Outcome != "expired" || !late.StartedAt.IsZero() || late.RunTime != 0 || late.Reason == "" {
			t.Errorf("expired: got %+v, want that it never began", late)
		}
	})
}

// TestARepeatedMessageRunsAgain for its consumer alone, with a message id of its own.
func TestARepeatedMessageRunsAgain(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var got []*bus.Message
		a := testapp.New(t, db,
			bus.ConsumeRaw("c", func(_ context.Context, batch []*bus.Message) error {
				got = append(got, batch...)
				return nil
			}, []string{order{}.PayloadType()}, bus.Keep(time.Hour), bus.KeepPayload(), bus.Concurrency(1)),
			testapp.Consumed("other", bus.Keep(time.Hour)))
		receipt := a.Produce(order{ID: "17"}, outbox.Header("tenant", "acme"), outbox.DeliverBy(time.Now().Add(time.Hour), bus.Discarded))
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "it is kept", func() bool { return len(consumedBy(a, "c"))+len(consumedBy(a, "other")) == 2 })
		ctx, client := a.Context(), a.Admin()
		_, err := client.Repeat(ctx, db, consumedBy(a, "other")[0].ID)
		if !errors.Is(err, admin.ErrPayloadNotKept) {
			t.Errorf("without its payload: got error %v, want %v", err, admin.ErrPayloadNotKept)
		}
		if _, err := client.Repeat(ctx, db, consumedBy(a, "c")[0].ID, 1<<40); !errors.Is(err, admin.ErrNotFound) {
			t.Errorf("with an unknown id: got error %v, want %v", err, admin.ErrNotFound)
		}
		ids, err := client.Repeat(ctx, db, consumedBy(a, "c")[0].ID)
		if err != nil || len(ids) != 1 || ids[0] == receipt.MessageID {
			t.Fatalf("repeat: got %v and error %v, want a new message id", ids, err)
		}
		testapp.Eventually(t, "it has run again", func() bool { return len(consumedBy(a, "c")) == 2 })
		r.MustStop()
		if len(got) != 2 || len(consumedBy(a, "other")) != 1 {
			t.Fatalf("got %d runs, want two, and one of the other consumer", len(got))
		}
		again := got[1]
		if again.ID != ids[0] || string(again.Payload) != string(got[0].Payload) || again.Headers["tenant"] != "acme" ||
			again.Headers["asyncmonolith-repeats"] != receipt.MessageID.String() || again.Headers["asyncmonolith-deliver-by"] != "" {
			t.Errorf("again: got %+v, want the same payload and headers, without the deadline", again)
		}
	})
}

// TestConsumedMessagesAreForgotten when their time is over, also if no consumer keeps messages any more.
func TestConsumedMessagesAreForgotten(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		a := newApp(testapp.Consumed("c", bus.Keep(time.Minute)))
		a.ProduceAt(ctx, order{ID: "1"})
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		testapp.Sooner(t, "it is kept", func() bool { return a.Count("SELECT count(*) FROM consumed_messages") == 1 })
		kept := time.Now()
		testapp.Sooner(t, "it is forgotten", func() bool { return a.Count("SELECT count(*) FROM consumed_messages") == 0 })
		if after := time.Since(kept); after < 55*time.Second || after > 90*time.Second {
			t.Errorf("forgotten after %s, want a minute and at most one look of the processor more", after)
		}
		a.ProduceAt(ctx, order{ID: "2"})
		testapp.Sooner(t, "another is kept", func() bool { return a.Count("SELECT count(*) FROM consumed_messages") == 1 })
		r.MustStop()
		later := part(a, testapp.Consumed("c")).StartWith(ctx, outbox.ProcessorConfig{})
		testapp.Sooner(t, "it is forgotten", func() bool { return a.Count("SELECT count(*) FROM consumed_messages") == 0 })
		later.MustStop()
	})
}

// TestAVersionThatNoColumnTakes is cut for what is kept, as it is for reports.
func TestAVersionThatNoColumnTakes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db)
		registry := bus.RegistryConfig{AppVersion: "v\x00" + strings.Repeat("1", 300)}
		a.Registry = testapp.Must[*bus.Registry](t)(registry.NewRegistry(testapp.Consumed("c", bus.Keep(time.Hour))))
		a.Producer = testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry, outbox.ProducerConfig{}))
		a.Produce(order{ID: "1"})
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "it is consumed", a.Empty)
		r.MustStop()
		if found := consumedBy(a, "c"); len(found) != 1 || len(found[0].Version) != 255 || !strings.HasPrefix(found[0].Version, "v\uFFFD1") {
			t.Errorf("got %+v, want one with 255 bytes of the version", found)
		}
	})
}

// TestWhatCannotBeKeptIsDone: the database refuses its row, here since there is one of the same ids.
func TestWhatCannotBeKeptIsDone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &runs, bus.Keep(time.Hour)))
		a.ProduceMany(3)
		a.Exec(`INSERT INTO consumed_messages (id, message_id, consumer_type, payload_type, any_order, created_at, attempts, outcome, version,
  run_micros, finished_at, expires_at)
SELECT id, message_id, 'old', payload_type, FALSE, created_at, 1, 'done', '', 0, created_at, ` + testapp.In(db, time.Hour) + `
FROM consumer_messages ORDER BY id LIMIT 1`)
		var lines testapp.Lines
		config := testapp.Fast()
		config.Logger = lines.Logger()
		r := a.Start(config)
		testapp.Eventually(t, "all is consumed", a.Empty)
		r.MustStop()
		if found := consumedBy(a, "c"); len(found) != 2 || runs.Load() != 3 {
			t.Errorf("got %d kept after %d runs, want the other two after 3", len(found), runs.Load())
		}
		if !strings.Contains(lines.String(), "and the kept message") {
			t.Errorf("got the log %s, want that one is not kept", lines.String())
		}
	})
}
