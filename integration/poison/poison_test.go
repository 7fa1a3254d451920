package poison_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

func TestPoisonedMessagesAreListed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, s := testapp.NewPoisoned(t, db, 205, testapp.Counting("c", &n))
		ctx := t.Context()
		a.Exec("UPDATE poisoned_messages SET payload_type = 'other', reason = 'process lost 3 times' WHERE id = 7")
		a.Exec(`UPDATE poisoned_messages SET errors = ?, consumer_type = 'd', order_key = 'k' WHERE id = 8`,
			`[{"attempt":1,"at":"2026-01-02T03:04:05Z","error":"100%_sure\\ said \"Ö <b>\"\nand left"}]`)
		a.Exec(`UPDATE poisoned_messages SET headers = '{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}' WHERE id = 9`)
		seen := map[int64]int{}
		pages := 0
		for page := (&admin.Page{Size: 40}); page != nil; pages++ {
			var link admin.Page // what travelled as text
			testapp.OK(t, json.Unmarshal(testapp.Must[[]byte](t)(json.Marshal(page)), &link))
			list, next, err := s.List(ctx, db, poison.Filter{}, link)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range list {
				seen[m.ID]++
				if m.AvailableAt.IsZero() || m.AvailableAt.After(m.PoisonedAt) {
					t.Errorf("message %d: due at %s, poisoned at %s", m.ID, m.AvailableAt, m.PoisonedAt)
				}
			}
			page = next
		}
		if pages != 6 || len(seen) != 205 {
			t.Errorf("paging: got %d messages on %d pages, want 205 on 6, at one and the same instant", len(seen), pages)
		}
		for _, test := range []struct {
			name   string
			filter poison.Filter
			want   int
		}{
			{"everything", poison.Filter{}, 205},
			{"by consumer", poison.Filter{Consumer: "d"}, 1},
			{"by payload type", poison.Filter{PayloadType: "other"}, 1},
			{"by message id", poison.Filter{MessageID: testapp.Must[poison.Message](t)(s.Get(ctx, db, 9)).MessageID}, 1},
			{"by trace", poison.Filter{TraceID: "0AF7651916CD43DD8448EB211C80319C"}, 1},
			{"by another trace", poison.Filter{TraceID: "1af7651916cd43dd8448eb211c80319c"}, 0},
			{"by text in the reason", poison.Filter{Error: "lost"}, 1},
			{"by text in the errors", poison.Filter{Error: "no luck"}, 204},
			{"a percent sign is a percent sign", poison.Filter{Error: "100%_sure"}, 1},
			{"and no wildcard", poison.Filter{Error: "1%sure"}, 0},
			{"an underscore is an underscore", poison.Filter{Error: "no_luck"}, 0},
			{"a backslash is a backslash", poison.Filter{Error: `sure\`}, 1},
			{"by key", poison.Filter{OrderingKey: "k"}, 1},
			{"by key and consumer", poison.Filter{OrderingKey: "k", Consumer: "c"}, 0},
			{"a quote is a quote", poison.Filter{Error: `'; --`}, 0},
			{"two quotes, too", poison.Filter{Error: `said "Ö <b>"`}, 1},
			{"and the end of a line", poison.Filter{Error: "\nand"}, 1},
			{"case counts", poison.Filter{Error: "NO LUCK"}, 0},
			{"and that of other letters", poison.Filter{Error: "ö"}, 0},
			{"poisoned since an hour ago", poison.Filter{PoisonedAfter: time.Now().Add(-time.Hour)}, 205},
			{"poisoned before that", poison.Filter{PoisonedBefore: time.Now().Add(-time.Hour)}, 0},
			{"all fields must match", poison.Filter{Consumer: "d", PayloadType: "other"}, 0},
		} {
			if got := testapp.Must[int](t)(s.Count(ctx, db, test.filter)); got != test.want {
				t.Errorf("%s: got %d, want %d", test.name, got, test.want)
			}
		}
		m := testapp.Must[poison.Message](t)(s.Get(ctx, db, 1))
		if m.Consumer != "c" || m.PayloadType != "order.placed" || string(m.Payload) != `{"id":"0","n":0}` || m.Headers["k"] != "v" ||
			m.Attempts != 5 ||
			m.Crashes != 1 || m.Reason != "attempt 5 of 5 failed" || len(m.Errors) != 1 || m.Errors[0].Error != "no luck" || m.PoisonedAt.IsZero() {
			t.Errorf("get: got %+v", m)
		}
		if _, err := s.Count(ctx, db, poison.Filter{TraceID: "0af7"}); !errors.Is(err, bus.ErrInvalidOption) {
			t.Errorf("count of a short trace id: got %v, want ErrInvalidOption", err)
		}
		if _, err := s.Get(ctx, db, 9999); !errors.Is(err, poison.ErrNotFound) {
			t.Errorf("get of a missing id: got %v, want ErrNotFound", err)
		}
	})
}

func TestRequeuedMessagesRunAgain(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		a, s := testapp.NewPoisoned(t, db, 3, bus.Consume("c", func(ctx context.Context, _ order) error {
			m, _ := bus.MessageFromContext(ctx)
			if m.Attempt != 1 || m.CrashCount != 0 || m.Headers["k"] != "v" {
				t.Errorf("message: got %+v, want a fresh one with its headers", m)
			}
			runs.Add(1)
			return nil
		}))
		before := testapp.Must[poison.Message](t)(s.Get(t.Context(), db, 1))
		r := a.Start(testapp.Fast())
		result := testapp.Must[poison.Result](t)(s.Requeue(t.Context(), db, 1, 2, 2, 9999))
		if want := (poison.Result{Requeued: 2, Missing: 1}); result != want {
			t.Errorf("requeue: got %+v, want %+v", result, want)
		}
		testapp.Eventually(t, "both run", func() bool { return runs.Load() == 2 && a.Empty() })
		r.MustStop()
		if n := len(a.Poisoned()); n != 1 {
			t.Errorf("poisoned: got %d, want the third", n)
		}
		testapp.Must[poison.Result](t)(s.Requeue(t.Context(), db, 3))
		if got := a.Pending()[0]; got.ID <= 3 || got.MessageID == before.MessageID.String() || got.Errors != "" {
			t.Errorf("requeued row: got %+v, want a new row id and its own message id", got)
		}
	})
}

func TestRequeueOfAKeyThatIsPendingIsAConflict(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, s := testapp.NewPoisoned(t, db, 700, testapp.Counting("c", &n))
		a.Exec("UPDATE poisoned_messages SET insert_id = 'key' WHERE id IN (1, 2, 3)")
		result := testapp.Must[poison.Result](t)(s.RequeueWhere(t.Context(), db, poison.Filter{Consumer: "c"}, 650))
		if want := (poison.Result{Requeued: 648, Conflicts: 2}); result != want {
			t.Errorf("requeue by filter: got %+v, want %+v", result, want)
		}
		if got := testapp.Must[int](t)(s.Count(t.Context(), db, poison.Filter{})); got != 52 {
			t.Errorf("still poisoned: got %d, want 50 beyond the limit and 2 conflicts", got)
		}
		result = testapp.Must[poison.Result](t)(s.RequeueWhere(t.Context(), db, poison.Filter{}, 10_000))
		if want := (poison.Result{Requeued: 50, Conflicts: 2}); result != want {
			t.Errorf("the rest: got %+v, want %+v", result, want)
		}
		if err := s.EditAndRequeue(t.Context(), db, 2, order{ID: "edited"}); !errors.Is(err, poison.ErrConflict) {
			t.Errorf("edit of a conflict: got %v, want ErrConflict", err)
		}
	})
}

func TestEditAndRequeue(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, s := testapp.NewPoisoned(t, db, 3, testapp.Counting("c", &n), bus.Consume("r", func(context.Context, refund) error { return nil }))
		ctx := t.Context()
		a.Exec("UPDATE poisoned_messages SET consumer_type = 'gone' WHERE id = 3")
		for name, test := range map[string]struct{ err, want error }{
			"another payload type": {s.EditAndRequeue(ctx, db, 1, refund{}), poison.ErrPayload},
			"text that is no JSON": {s.EditAndRequeueText(ctx, db, 1, []byte(`{"id":`)), poison.ErrPayload},
			"text with a NUL byte": {s.EditAndRequeueText(ctx, db, 1, []byte("{\x00}")), bus.ErrInvalidText},
			"text that is too big": {s.EditAndRequeueText(ctx, db, 1, make([]byte, 2<<20)), bus.ErrTooLarge},
			"a missing message":    {s.EditAndRequeue(ctx, db, 9999, order{}), poison.ErrNotFound},
			"an unknown consumer":  {s.EditAndRequeue(ctx, db, 3, order{}), bus.ErrNoConsumer},
		} {
			if !errors.Is(test.err, test.want) || !strings.HasPrefix(test.err.Error(), "poison: ") {
				t.Errorf("%s: got %v, want %v", name, test.err, test.want)
			}
		}
		if err := errors.Join(s.EditAndRequeue(ctx, db, 1, order{ID: "edited"}),
			s.EditAndRequeueText(ctx, db, 2, []byte(`{"id": "typed"}`))); err != nil {
			t.Fatal(err)
		}
		rows := a.Pending()
		if len(rows) != 2 || rows[0].Payload != `{"id":"edited","n":0}` || rows[1].Payload != `{"id": "typed"}` ||
			rows[0].Headers != `{"k":"v"}` {
			t.Errorf("requeued: got %+v", rows)
		}
		if n := len(a.Poisoned()); n != 1 {
			t.Errorf("poisoned: got %d, want the unknown consumer's", n)
		}
	})
}

// TestRequeueWithoutAConsumerIsCounted removes a consumer while messages of it are
// poisoned: they are requeued, for another program may take them.
func TestRequeueWithoutAConsumerIsCounted(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, s := testapp.NewPoisoned(t, db, 4, bus.Consume("c", func(context.Context, order) error { n.Add(1); return nil },
			bus.Aliases("former")))
		a.Exec("UPDATE poisoned_messages SET consumer_type = 'gone' WHERE id = 1")
		a.Exec("UPDATE poisoned_messages SET payload_type = 'gone' WHERE id = 2")
		a.Exec("UPDATE poisoned_messages SET consumer_type = 'former' WHERE id = 3")
		result := testapp.Must[poison.Result](t)(s.Requeue(t.Context(), db, 1, 2, 3))
		if want := (poison.Result{Requeued: 3, Unhandled: 2}); result != want {
			t.Errorf("requeue: got %+v, want %+v", result, want)
		}
		result = testapp.Must[poison.Result](t)(s.RequeueWhere(t.Context(), db, poison.Filter{}, 10))
		if want := (poison.Result{Requeued: 1}); result != want {
			t.Errorf("requeue where: got %+v, want %+v", result, want)
		}
	})
}

func TestPoisonedMessagesAreDiscardedAndPurged(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, s := testapp.NewPoisoned(t, db, 600, testapp.Counting("c", &n))
		if got := testapp.Must[int](t)(s.Discard(t.Context(), db, 3, 4, 9999)); got != 2 {
			t.Errorf("discarded: got %d, want 2", got)
		}
		if got := testapp.Must[int](t)(s.Purge(t.Context(), db, time.Hour)); got != 0 {
			t.Errorf("purged what is older than an hour: got %d, want none", got)
		}
		if got := testapp.Must[int](t)(s.Purge(t.Context(), db, 0)); got != 598 || len(a.Poisoned()) != 0 {
			t.Errorf("purged everything: got %d, want 598", got)
		}
	})
}

func TestConcurrentRequeuesMakeOneMessage(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, s := testapp.NewPoisoned(t, db, 50, testapp.Counting("c", &n))
		ids := make([]int64, 50)
		for i := range ids {
			ids[i] = int64(50 - i)
		}
		var requeued, missing atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				result, err := s.Requeue(context.WithoutCancel(t.Context()), db, ids...)
				if err != nil {
					t.Error(err)
				}
				requeued.Add(int64(result.Requeued))
				missing.Add(int64(result.Missing))
			})
		}
		all.Wait()
		if requeued.Load() != 50 || missing.Load() != 350 || len(a.Pending()) != 50 {
			t.Errorf("got %d requeued, %d missing and %d rows, want each message once", requeued.Load(), missing.Load(), len(a.Pending()))
		}
	})
}

type crateOf struct {
	Customer string `json:"customer"`
}

func (crateOf) PayloadType() string   { return "crate.of" }
func (p crateOf) OrderingKey() string { return p.Customer }

// TestAnEditedMessageHasTheKeyOfItsPayload, and runs in the order of that; a key that the producer chose stays.
func TestAnEditedMessageHasTheKeyOfItsPayload(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		keys := make(chan string, 2)
		fails := true
		a := testapp.New(t, db, bus.Consume("c", func(ctx context.Context, p crateOf) error {
			if fails {
				return bus.Permanent(errors.New("bad"))
			}
			m, _ := bus.MessageFromContext(ctx)
			keys <- p.Customer + " under " + m.OrderingKey
			return nil
		}, bus.Ordered(bus.SkipPoisoned), bus.Concurrency(4)))
		s := testapp.Must[*poison.Store](t)(poison.NewStore(a.Registry))
		a.Produce(crateOf{"a"})
		a.Produce(crateOf{"c"}, outbox.OrderingKey("chosen"))
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "both are poisoned", func() bool { return len(a.Poisoned()) == 2 })
		r.MustStop()
		fails = false
		all, _, err := s.List(t.Context(), db, poison.Filter{}, admin.Page{})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			testapp.OK(t, s.EditAndRequeue(t.Context(), db, m.ID, crateOf{"b"}))
		}
		a.Start(testapp.Fast())
		got := []string{<-keys, <-keys}
		if slices.Sort(got); !slices.Equal(got, []string{"b under b", "b under chosen"}) {
			t.Errorf("got %q, want one message of customer b under key b, and one under the chosen key", got)
		}
	})
}

// TestRenamedElsewhere: a program without the consumer, such as the command, goes by the names that a live process
// tells. What is poisoned under the former one runs once, under the present one, and a pause holds for both.
func TestRenamedElsewhere(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		a, _ := testapp.NewPoisoned(t, db, 6, testapp.Counting("c", &runs, bus.Aliases("former")))
		ctx, elsewhere := t.Context(), testapp.Must[*bus.Registry](t)(bus.NewRegistry())
		s, client := testapp.Must[*poison.Store](t)(poison.NewStore(elsewhere)), testapp.Must[*admin.Client](t)(admin.NewClient(elsewhere))
		before := runs.Load()
		testapp.OK(t, a.Admin().Pause(ctx, db, "c", admin.PauseNote{}))
		r := a.Start(testapp.Fast())
		defer r.MustStop()
		testapp.Eventually(t, "a process is there", func() bool {
			return len(testapp.Must[[]admin.Process](t)(client.Processes(ctx, db, time.Hour))) > 0
		})

		a.Exec("UPDATE poisoned_messages SET consumer_type = 'former' WHERE id <> 5")
		a.Exec("UPDATE poisoned_messages SET insert_id = CASE id WHEN 1 THEN 'present' WHEN 3 THEN 'past' ELSE 'both' END WHERE id IN (1, 3, 4, 5)")
		a.Produce(order{}, outbox.InsertID("present"))
		a.Produce(order{}, outbox.InsertID("past"))
		a.Exec("UPDATE consumer_messages SET consumer_type = 'former' WHERE id = (SELECT x.id FROM (SELECT MAX(id) AS id FROM consumer_messages) x)")
		if p := testapp.Must[poison.Preview](t)(s.Preview(ctx, db, poison.Filter{}, 100)); p.Messages != 6 || p.Conflicts != 2 ||
			p.Unhandled != 0 {
			t.Errorf("preview: got %+v, want 6 messages with 2 conflicts, which somebody takes", p)
		}
		if got := testapp.Must[poison.Result](t)(s.RequeueWhere(ctx, db, poison.Filter{}, 100)); got.Requeued != 3 || got.Conflicts != 3 {
			t.Errorf("requeued: got %+v, want 3, and 3 conflicts", got)
		}
		if n := a.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'c'"); n != 4 {
			t.Errorf("pending under the present name: got %d, want 4, the requeued ones and one from before", n)
		}

		testapp.OK(t, client.Resume(ctx, db, "c"))
		testapp.Eventually(t, "all have run", func() bool { return a.Count("SELECT count(*) FROM consumer_messages") == 0 })
		if got := runs.Load() - before; got != 5 {
			t.Errorf("runs: got %d, want 5, one of each", got)
		}
		testapp.OK(t, client.Pause(ctx, db, "former", admin.PauseNote{}))
		if n := a.Count("SELECT count(*) FROM paused_consumers"); n != 2 {
			t.Errorf("names paused: got %d, want both", n)
		}
	})
}

// TestRequeueUsesTheNewestName: a program without the consumer requeues under the name that processes have by now,
// and nothing beside the same that is pending under it.
func TestRequeueUsesTheNewestName(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 4, testapp.Consumed("c"))
		stranger := testapp.Must[*poison.Store](t)(poison.NewStore(testapp.Must[*bus.Registry](t)(bus.NewRegistry())))
		a.Exec("UPDATE poisoned_messages SET consumer_type = 'former'")
		a.Exec("UPDATE poisoned_messages SET insert_id = 'once' WHERE id = 1")
		a.Produce(testapp.Order{}, outbox.InsertID("once"))
		tell := func(id, manifest string, ago time.Duration) {
			t.Helper()
			a.Exec("INSERT INTO message_processes (id, kind, host, pid, program, version, started_at, seen_at, manifest, state) VALUES (?, 'processor', 'h', 1, 'shop', 'v1', "+testapp.In(db, -ago)+", "+testapp.In(db, -ago)+", ?, '{}')", id, manifest)
		}
		tell("before", `{"consumers":[{"name":"former","payload_types":["order.placed"]}]}`, 0)
		tell("now", `{"consumers":[{"name":"c","former":["former"],"payload_types":["order.placed"]}]}`, time.Second)
		if p := testapp.Must[poison.Preview](t)(stranger.Preview(t.Context(), db, poison.Filter{}, 100)); p.Conflicts != 1 {
			t.Errorf("preview: got %+v, want a conflict", p)
		}
		if r := testapp.Must[poison.Result](t)(stranger.Requeue(t.Context(), db, 1, 2)); r.Conflicts != 1 || r.Requeued != 1 {
			t.Errorf("got %+v, want a conflict and one requeued", r)
		}
		if n := a.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'c'"); n != 2 || len(a.Pending()) != 2 {
			t.Errorf("got %d messages, %d of them under the present name, want 2", len(a.Pending()), n)
		}
		a.Exec("UPDATE message_processes SET seen_at = " + testapp.In(db, -24*time.Hour) + " WHERE id = 'now'") // it was taken back
		if r := testapp.Must[poison.Result](t)(stranger.Requeue(t.Context(), db, 3)); r.Requeued != 1 ||
			a.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'former'") != 1 {
			t.Errorf("while only the former name is taken: got %+v and %+v, want it under that", r, a.Pending())
		}
		a.Exec("UPDATE message_processes SET seen_at = " + testapp.In(db, -25*time.Hour) + " WHERE id = 'before'")
		if r := testapp.Must[poison.Result](t)(stranger.Requeue(t.Context(), db, 4)); r.Requeued != 1 ||
			a.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'c'") != 3 {
			t.Errorf("while nobody is alive: got %+v and %+v, want it under the name of who was seen last", r, a.Pending())
		}
	})
}
