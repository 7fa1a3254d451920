package poison_test

import (
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
