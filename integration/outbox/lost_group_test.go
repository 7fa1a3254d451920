package outbox_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestALostCommitRunsTheNeighboursOfAReplacedMessage: the server ends a session at the commit of two messages of different
// claims, and a producer replaces the first one before the processor looks for them.
// Promise: exactly-once
func TestALostCommitRunsTheNeighboursOfAReplacedMessage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options    []bus.ConsumerOption
		neighbours []string // the first is in the transaction, others come after it
	}{
		"plain":   {nil, []string{"second"}},
		"ordered": {[]bus.ConsumerOption{bus.Ordered(bus.BlockKey)}, []string{"second", "third"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.Postgres(t)
			past := testdb.OpenPostgres(t, directDSN(t, db))
			var replaced atomic.Pointer[chan struct{}]
			a, seen := batchedInTx(t, db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
				if done := replaced.Load(); done != nil && strings.HasPrefix(query, "SELECT id FROM") { // it looks for the messages
					<-*done
				}
			})), func(context.Context, bun.Tx, []order) error { return nil },
				append(test.options, bus.Timeout(20*time.Second), bus.BatchSize(2), bus.BatchWait(time.Second))...)
			watcher := *a
			watcher.DB = past
			lock := hangCommitsOf(t, past, "replaced")
			waiting := func(types string) func() bool {
				return func() bool {
					return watcher.Count("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ("+types+") AND pid IN "+ofThis) > 0
				}
			}
			config := once()
			config.Middleware = middleware.Default(middleware.Options{Middleware: []bus.Middleware{afterTheOthers("second")}})
			r := a.Start(config)
			watcher.Produce(order{ID: "replaced"}, outbox.InsertID("it"), outbox.OrderingKey("its own"))
			testapp.Eventually(t, "it is claimed", func() bool { return watcher.Count("SELECT count(*) FROM message_claims") == 1 })
			testapp.OK(t, watcher.Producer.RunInTx(t.Context(), past, func(ctx context.Context, tx bun.Tx) error {
				for _, id := range test.neighbours {
					if _, err := watcher.Producer.Produce(ctx, tx, order{ID: id}, outbox.OrderingKey("theirs")); err != nil {
						return err
					}
				}
				return nil
			}))
			testapp.Eventually(t, "the commit hangs", waiting("'advisory'"))

			done := make(chan struct{})
			replaced.Store(&done)
			go func() {
				defer close(done)
				_, err := watcher.Producer.Produce(context.WithoutCancel(t.Context()), past, order{ID: "new"},
					outbox.InsertID("it", outbox.Replace()), outbox.OrderingKey("its own"))
				if err != nil {
					t.Error(err)
				}
			}()
			testapp.Eventually(t, "the producer waits for the row", waiting("'transactionid', 'tuple'"))
			execute(t, past, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted AND locktype = 'advisory' AND pid IN "+ofThis)
			<-done
			testapp.OK(t, testapp.Second(lock.ExecContext(t.Context(), "SELECT pg_advisory_unlock_all()")))
			testapp.Eventually(t, "all are consumed", watcher.Empty)
			r.MustStop()
			if first := seen.all[0]; len(first) != 2 {
				t.Errorf("got the first call with %q, want two messages in one transaction", first)
			}
			var effects []string
			testapp.OK(t, past.NewRaw("SELECT id FROM effects WHERE id <> 'new' ORDER BY place").Scan(t.Context(), &effects))
			if !slices.Equal(effects, test.neighbours) {
				t.Errorf("got the effects %q, want those of the neighbours, %q", effects, test.neighbours)
			}
			if n := watcher.Count("SELECT count(*) FROM effects WHERE id = 'new'"); n != 1 {
				t.Errorf("got %d effects of the replacement, want 1", n)
			}
		})
	}
}

// afterTheOthers has a message come last in its batch, and its result be written by itself.
func afterTheOthers(id string) bus.Middleware {
	return func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			if !strings.Contains(string(m.Payload), `"id":"`+id) {
				return next(ctx, m)
			}
			<-time.After(10 * time.Millisecond)
			defer func() { <-time.After(200 * time.Millisecond) }()
			return next(ctx, m)
		}
	}
}

// hangCommitsOf has commits that add the effect of a message wait in the server, until the connection unlocks them. Effects
// get a column with their order.
func hangCommitsOf(t *testing.T, db *bun.DB, id string) bun.Conn {
	t.Helper()
	execute(t, db, "ALTER TABLE effects ADD place serial",
		`CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END'`,
		`CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
			WHEN (NEW.id = '`+id+`') EXECUTE FUNCTION wait()`)
	conn := testapp.Must[bun.Conn](t)(db.Conn(t.Context()))
	t.Cleanup(func() { _ = conn.Close() })
	testapp.OK(t, testapp.Second(conn.ExecContext(t.Context(), "SELECT pg_advisory_lock(7)")))
	return conn
}
