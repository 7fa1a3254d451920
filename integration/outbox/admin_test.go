package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/minutes"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func TestAdminListsPages(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("b"), testapp.Consumed("a"))
		client := a.Admin()
		a.ProduceMany(60)
		a.Exec("UPDATE consumer_messages SET crashes = 1 WHERE id IN (7, 70)")
		var consumers []string
		seen := map[int64]bool{}
		pages := 0
		for page := (&admin.Page{Size: 50}); page != nil; pages++ {
			list, next, err := client.List(t.Context(), db, admin.Filter{}, *page)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range list {
				seen[m.ID] = true
				consumers = append(consumers, m.Consumer)
				if m.State != admin.Ready || m.Payload != nil || m.Claim != nil || m.CreatedAt.IsZero() {
					t.Errorf("message: got %+v, want a ready one without its payload", m)
				}
			}
			page = next
		}
		if pages != 3 || len(seen) != 120 || !slices.IsSorted(consumers) {
			t.Errorf("paging: got %d messages on %d pages, by consumer: %t, want 120 on 3", len(seen), pages, slices.IsSorted(consumers))
		}
		list, next, err := client.List(t.Context(), db, admin.Filter{Consumer: "a", Crashed: true}, admin.Page{})
		if err != nil || next != nil || len(list) != 1 && len(list) != 2 {
			t.Errorf("crashed messages of one consumer: got %+v, %v, %v", list, next, err)
		}
		n := testapp.Must[int](t)(client.Count(t.Context(), db, admin.Filter{Crashed: true}))
		if n != 2 {
			t.Errorf("count: got %d, want 2", n)
		}
	})
}

func TestAdminGetsAMessage(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, failing("c", &n, bus.AttemptDelay(time.Hour)))
		a.Produce(order{ID: "1"}, outbox.InsertID("k"), outbox.Header("tenant", "acme"))
		newProcessor(a, testapp.Fast())
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "it failed", func() bool { return a.Pending()[0].Attempts == 1 })
		r.MustStop()
		m := testapp.Must[admin.Message](t)(a.Admin().Get(t.Context(), db, 1))
		if m.State != admin.Delayed || string(m.Payload) != `{"id":"1","n":0}` || m.Headers["tenant"] != "acme" || m.InsertID != "k" ||
			m.Attempts != 1 ||
			len(m.Errors) != 1 || m.Errors[0].Error != "no luck" || m.Errors[0].Attempt != 1 || !m.AvailableAt.After(m.CreatedAt.Add(time.Minute)) {
			t.Errorf("get: got %+v", m)
		}
		if _, err := a.Admin().Get(t.Context(), db, 2); !errors.Is(err, admin.ErrNotFound) {
			t.Errorf("get of a missing id: got %v, want ErrNotFound", err)
		}
	})
}

func TestAdminExplains(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"), bus.Consume("paused", func(context.Context, refund) error { return nil }))
		client, ctx := a.Admin(), t.Context()
		second := func(n int) string { // an instant so many seconds from now, as it is stored
			if db.Dialect().Name().String() == "pg" {
				return fmt.Sprintf("statement_timestamp() + %d * interval '1 second'", n)
			}
			return fmt.Sprintf("%s + %d", testapp.NowOf(db), n*1_000_000)
		}
		claim := func(owner, claimed string, lease int) {
			ids := "'[" + claimed + "]'"
			if db.Dialect().Name().String() == "pg" {
				ids = "'{" + claimed + "}'"
			}
			a.Exec("INSERT INTO message_claims (owner, solo, claimed_at, leased_until, message_ids) VALUES ('" + owner + "', TRUE, " +
				second(0) + ", " + second(lease) + ", " + ids + ")")
		}
		a.ProduceMany(10)
		a.Produce(refund{ID: "11"})
		a.ProduceMany(4)
		a.Exec("UPDATE consumer_messages SET available_after = " + second(5430) + " WHERE id IN (2, 3)")
		a.Exec("UPDATE consumer_messages SET attempts = 2 WHERE id = 3")
		claim("owner-1", "4, 12, 13, 14", 300)
		claim("owner-2", "5", -30)
		claim("owner-3", "15", 300)
		a.Exec("UPDATE consumer_messages SET consumer_type = 'gone' WHERE id = 6")
		a.Exec("UPDATE consumer_messages SET payload_type = 'gone' WHERE id = 7")
		a.Exec("UPDATE consumer_messages SET crashes = id - 7 WHERE id IN (8, 9)")
		a.Exec(`INSERT INTO poisoned_messages (id, message_id, consumer_type, payload_type, payload, created_at, available_after, attempts, crashes, poisoned_at, reason)
			SELECT id, message_id, consumer_type, payload_type, payload, created_at, available_after, 5, 1, created_at, 'secret' FROM consumer_messages WHERE id = 10`)
		a.Exec("DELETE FROM consumer_messages WHERE id = 10")
		testapp.OK(t, client.Pause(ctx, db, "paused", admin.PauseNote{}))
		for id, want := range map[int64]struct {
			reason admin.State
			text   string
		}{
			1:  {admin.Ready, "Due since"},
			2:  {admin.Delayed, "Due in 1h30m"},
			3:  {admin.Delayed, "Failed runs: 2."},
			4:  {admin.Leased, " UTC, with 3 other unfinished messages. The lease ends at"},
			5:  {admin.LeaseExpired, " ended "},
			6:  {admin.NoConsumer, `No consumer "gone"`},
			7:  {admin.OtherPayload, `not "gone"`},
			8:  {admin.Suspect, "at most 8"},
			9:  {admin.Suspect, "runs without other suspects"},
			10: {admin.Poisoned, "5 failed runs and 1 crash."},
			15: {admin.Leased, " UTC. The lease ends at"},
			11: {admin.Paused, `Consumer "paused" has been paused since`},
		} {
			e, err := client.Explain(ctx, db, id)
			if err != nil || e.Reason != want.reason || !strings.Contains(e.Text, want.text) || !strings.HasSuffix(e.Text, ".") {
				t.Errorf("explain %d: got %q: %q, %v, want %q: %q", id, e.Reason, e.Text, err, want.reason, want.text)
			}
			if m := e.Message; m.ID != id || m.Payload != nil || m.Headers != nil || m.Errors != nil {
				t.Errorf("explain %d: got message %+v, want it without payload, headers and errors", id, m)
			}
			if e.PausedAt.IsZero() == (id == 11) || e.PoisonedAt.IsZero() == (id == 10) ||
				(e.Message.Claim == nil) == (id == 4 || id == 5 || id == 15) {
				t.Errorf("explain %d: got %+v", id, e)
			}
		}
		if _, err := client.Explain(ctx, db, 99); !errors.Is(err, admin.ErrNotFound) {
			t.Errorf("explain of a missing id: got %v, want ErrNotFound", err)
		}
	})
}

func TestAdminReschedulesAndCancels(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &runs))
		client, ctx := a.Admin(), t.Context()
		items := make([]outbox.Item, 1200)
		for i := range items {
			items[i] = outbox.Item{Payload: order{N: i}, Options: []outbox.Option{outbox.Delay(time.Hour)}}
		}
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(ctx, db, items...))
		var ids []int64
		for _, m := range a.Pending() {
			ids = append(ids, m.ID)
		}
		r := a.Start(testapp.Fast())
		result := testapp.Must[admin.Result](t)(client.Cancel(ctx, db, append([]int64{9999}, ids[:700]...)...))
		if result.Changed != 700 || len(result.Running) != 0 || !slices.Equal(result.Missing, []int64{9999}) || len(a.Pending()) != 500 {
			t.Errorf("cancel: got %+v, left %d, want 700 gone", result, len(a.Pending()))
		}
		if result = testapp.Must[admin.Result](t)(client.Reschedule(ctx, db, time.Now().Add(2*time.Hour),
			ids[700:]...)); result.Changed != 500 || runs.Load() != 0 {
			t.Errorf("reschedule: got %+v and %d runs, want 500 and none", result, runs.Load())
		}
		if result = testapp.Must[admin.Result](t)(client.RunNow(ctx, db,
			ids[700:]...)); result.Changed+len(result.Running)+len(result.Missing) != 500 {
			t.Errorf("run now: got %+v, want an answer for each", result)
		}
		testapp.Eventually(t, "all run", func() bool { return runs.Load() == 500 && a.Empty() })
		r.MustStop()
	})
}

// TestAdminNeverWaitsForARunningMessage has one message locked: by a consumer's
// transaction, which on SQLite keeps everybody else from writing.
func TestAdminNeverWaitsForARunningMessage(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		started, gate := make(chan struct{}), make(chan struct{})
		a := testapp.New(t, db, outbox.ConsumeTx("c", func(context.Context, bun.Tx, order) error { close(started); <-gate; return nil }))
		a.Produce(order{ID: "1"})
		config := testapp.Fast()
		config.DefaultTimeout = 9 * time.Second // less than SQLite waits for its lock
		r := a.Start(config)
		<-started
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		client := a.Admin()
		for what, change := range map[string]func() (admin.Result, error){
			"cancel":     func() (admin.Result, error) { return client.Cancel(ctx, db, 1) },
			"reschedule": func() (admin.Result, error) { return client.Reschedule(ctx, db, time.Now(), 1) },
			"run now":    func() (admin.Result, error) { return client.RunNow(ctx, db, 1, 77) },
		} {
			if result, err := change(); err != nil || !slices.Equal(result.Running, []int64{1}) || result.Changed != 0 {
				t.Errorf("%s: got %+v, %v, want it running", what, result, err)
			}
		}
		e, err := client.Explain(ctx, db, 1)
		if err != nil || e.Reason != admin.Leased || e.Message.Claim.Messages != 1 {
			t.Errorf("explain: got %+v, %v, want it leased", e, err)
		}
		if claims, err := a.PendingReader().Claims(ctx, db); err != nil || len(claims) != 1 || claims[0].Owner == "" || claims[0].Expired ||
			claims[0].ID != e.Message.Claim.ID {
			t.Errorf("claims: got %+v, %v, want one", claims, err)
		}
		close(gate)
		r.MustStop()
		if !a.Empty() {
			t.Errorf("left: got %+v, want it consumed", a.Pending())
		}
	})
}

// TestAdminSkipsWhatAnotherTransactionHasLocked: nobody has claimed it, but
// somebody is at it.
func TestAdminSkipsWhatAnotherTransactionHasLocked(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	a := testapp.New(t, db, testapp.Consumed("c"))
	a.ProduceMany(2)
	tx := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
	testapp.OK(t, testapp.Second(tx.ExecContext(t.Context(), "SELECT 1 FROM consumer_messages WHERE id = 1 FOR UPDATE")))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	result, err := a.Admin().Cancel(ctx, db, 1, 2)
	if err != nil || result.Changed != 1 || !slices.Equal(result.Running, []int64{1}) {
		t.Errorf("cancel: got %+v, %v, want the locked one left", result, err)
	}
	testapp.OK(t, tx.Rollback())
}

// TestCancelledMessagesNeverRun cancels and postpones messages while processors
// claim them: what was answered as changed has not run.
func TestCancelledMessagesNeverRun(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const messages = 1000
		if db.Dialect().Name().String() == "sqlite" { // on a busy machine the lock may be long in coming
			db = testdb.OpenSQLiteWith(t, t.TempDir()+"/patient.db",
				"_txlock=immediate&_pragma=busy_timeout(120000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
		}
		var started sync.Map
		a := testapp.New(t, db, bus.Consume("c", func(_ context.Context, o order) error { started.Store(o.ID, true); return nil }))
		client, ctx := a.Admin(), t.Context()
		items := make([]outbox.Item, messages)
		for i := range items {
			items[i] = outbox.Item{Payload: order{ID: fmt.Sprint(i)}}
		}
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(ctx, db, items...))
		names := map[int64]string{} // orders by row
		for _, m := range a.Pending() {
			names[m.ID] = strings.Split(m.Payload, `"`)[3]
		}
		processors, admins := 2, 2
		config := testapp.Fast()
		if db.Dialect().Name().String() == "sqlite" { // whose only write lock is handed out unfairly
			processors, admins = 1, 1
			config.PollInterval = time.Second
		}
		var running []*testapp.Running
		for range processors {
			running = append(running, a.Start(config))
		}
		var mu sync.Mutex
		changed := map[int64]bool{}
		var changes sync.WaitGroup
		for range admins {
			changes.Go(func() {
				for range 100 {
					id := 1 + rand.Int64N(messages)
					do := client.Cancel
					if id%2 == 0 {
						do = func(ctx context.Context, db bus.Handle, ids ...int64) (admin.Result, error) {
							return client.Reschedule(ctx, db, time.Now().Add(time.Hour), ids...)
						}
					}
					result, err := do(ctx, db, id)
					if err != nil || result.Changed+len(result.Running)+len(result.Missing) != 1 {
						t.Errorf("change %d: got %+v, %v, want one answer", id, result, err)
					}
					if result.Changed == 1 {
						mu.Lock()
						changed[id] = true
						mu.Unlock()
					}
				}
			})
		}
		changes.Wait()
		testapp.Eventually(t, "what is due has run", func() bool {
			return testapp.Must[int](t)(client.Count(ctx, db, admin.Filter{State: admin.Ready}))+testapp.Must[int](t)(client.Count(ctx, db,
				admin.Filter{State: admin.Leased})) == 0
		})
		for _, r := range running {
			r.MustStop()
		}
		ran := 0
		for id, name := range names {
			if _, ok := started.Load(name); ok && changed[id] {
				t.Errorf("message %d: got a run, although it was answered as changed", id)
			} else if ok {
				ran++
			}
		}
		if ran+len(changed) != messages {
			t.Errorf("messages: got %d run and %d changed, want %d in all", ran, len(changed), messages)
		}
		t.Logf("%d changed, %d run", len(changed), ran)
	})
}

func TestAdminInTransactions(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		client, ctx := a.Admin(), t.Context()
		a.ProduceMany(3)
		undo := errors.New("undo")
		err := a.Producer.RunInTx(ctx, db, func(ctx context.Context, tx bun.Tx) error {
			if _, err := client.Cancel(ctx, db, 1); !errors.Is(err, txn.ErrNotInTx) {
				t.Errorf("cancel beside the transaction: got %v, want ErrNotInTx", err)
			}
			if err := client.Pause(ctx, db, "c", admin.PauseNote{}); !errors.Is(err, txn.ErrNotInTx) {
				t.Errorf("pause beside the transaction: got %v, want ErrNotInTx", err)
			}
			return errors.Join(client.Pause(ctx, tx, "c", admin.PauseNote{}), undo)
		})
		if !errors.Is(err, undo) {
			t.Errorf("pause that is rolled back: got %v, want it undone", err)
		}
		var options *sql.TxOptions
		if db.Dialect().Name().String() == "pg" { // whose default may be another
			options = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
		}
		err = db.RunInTx(ctx, options, func(ctx context.Context, tx bun.Tx) error {
			result, err := client.Cancel(ctx, tx, 1, 2)
			if db.Dialect().Name() == dialect.MySQL && errors.Is(err, bus.ErrInvalidOption) {
				return fmt.Errorf("2: %w", undo) // as documented
			}
			return errors.Join(err, fmt.Errorf("%d: %w", result.Changed, undo))
		})
		if !errors.Is(err, undo) || !strings.Contains(err.Error(), "2: undo") || len(a.Pending()) != 3 {
			t.Errorf("cancel that is rolled back: got %v, left %d, want 2 and 3", err, len(a.Pending()))
		}
		if queues := testapp.Must[[]admin.Queue](t)(client.Queues(ctx, db)); !queues[0].PausedAt.IsZero() {
			t.Error("pause that is rolled back: got a pause")
		}
		if db.Dialect().Name().String() != "pg" {
			return
		}
		tx := testapp.Must[bun.Tx](t)(db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead}))
		defer tx.Rollback() //nolint:errcheck // nothing is written
		if _, err := client.Cancel(ctx, tx, 1); !errors.Is(err, bus.ErrInvalidOption) || !strings.Contains(err.Error(), "repeatable read") {
			t.Errorf("cancel under repeatable read: got %v, want ErrInvalidOption that names it", err)
		}
	})
}

func TestAdminTellsWhatWaits(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c", bus.Aliases("former")),
			bus.Consume("r", func(context.Context, refund) error { return nil }))
		client, ctx := a.Admin(), t.Context()
		a.ProduceMany(6)
		a.Exec("UPDATE consumer_messages SET consumer_type = 'former' WHERE id = 1")
		a.Exec("UPDATE consumer_messages SET consumer_type = 'gone' WHERE id IN (2, 3)")
		a.Exec("UPDATE consumer_messages SET payload_type = 'gone' WHERE id = 4")
		testapp.OK(t, errors.Join(client.Pause(ctx, db, "c", admin.PauseNote{}), client.Pause(ctx, db, "elsewhere", admin.PauseNote{})))
		var got []string
		for _, q := range testapp.Must[[]admin.Queue](t)(client.Queues(ctx, db)) {
			got = append(got, fmt.Sprint(q.Consumer, " ", q.Ready, " ", q.Registered, " ", !q.PausedAt.IsZero(), " ", q.OldestReady > 0))
		}
		if want := []string{"c 3 true true true", "elsewhere 0 false true false", "former 1 true true true", "gone 2 false false true",
			"r 0 true false false"}; !slices.Equal(got, want) {
			t.Errorf("queues:\n got %q\nwant %q", got, want)
		}
		unregistered := testapp.Must[[]admin.Unhandled](t)(client.Unhandled(ctx, db))
		if want := []admin.Unhandled{{Consumer: "c", PayloadType: "gone"},
			{Consumer: "gone", PayloadType: "order.placed"}}; !slices.Equal(unregistered, want) {
			t.Errorf("unregistered: got %+v, want %+v", unregistered, want)
		}
	})
}

// TestChangesSeeClaimsNewerThanTheirLocks puts a claim between the two statements
// of a change. It stands for one that was committed after the first had taken its
// snapshot and before it had its locks.
func TestChangesSeeClaimsNewerThanTheirLocks(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	a := testapp.New(t, db, testapp.Consumed("c"))
	a.ProduceMany(2)
	var once sync.Once
	hooked := db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
		if strings.HasPrefix(query, `DELETE FROM "consumer_messages"`) {
			once.Do(func() {
				a.Exec("INSERT INTO message_claims (owner, solo, claimed_at, leased_until, message_ids) VALUES ('o', FALSE, now(), now() + interval '1 hour', '{1}')")
			})
		}
	}))
	result := testapp.Must[admin.Result](t)(a.Admin().Cancel(t.Context(), hooked, 1, 2))
	if result.Changed != 1 || !slices.Equal(result.Running, []int64{1}) {
		t.Errorf("cancel: got %+v, want the claimed one left", result)
	}
}

// TestQueuesOfManyConsumers: however many there are, what is asked about all of them is answered.
func TestQueuesOfManyConsumers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var consumers []bus.Consumer
		for i := range 700 {
			consumers = append(consumers, bus.Consume(fmt.Sprint("ordered", i), func(context.Context, step) error { return nil },
				bus.Ordered(bus.BlockKey)))
		}
		a := testapp.New(t, db, consumers...)
		queues, err := a.Admin().Queues(t.Context(), db)
		if err != nil || len(queues) != 700 {
			t.Errorf("got %d queues, %v, want 700", len(queues), err)
		}
		a.Fill(1, "order.lost")
		if found := testapp.Must[[]admin.Unhandled](t)(a.Admin().Unhandled(t.Context(), db)); len(found) != 1 {
			t.Errorf("unregistered: got %v, want one", found)
		}
		var names []string
		for _, q := range queues {
			names = append(names, q.Consumer)
		}
		st := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{}))
		if ran := testapp.Must[[]minutes.Stats](t)(minutes.Read(t.Context(), db, st, time.Hour, names...)); len(ran) != 0 {
			t.Errorf("minutes: got %v, want none", ran)
		}
	})
}
