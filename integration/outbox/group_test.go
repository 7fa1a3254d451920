package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// grouped is an application whose only consumer adds an effect for each of n
// messages, in groups. The consumer calls what for each, after its effect.
func grouped(t *testing.T, db *bun.DB, n int, what func(ctx context.Context, tx bun.Tx, o order) error,
	options ...bus.ConsumerOption) *app {
	t.Helper()
	options = append([]bus.ConsumerOption{bus.Timeout(3 * time.Second), outbox.GroupCommit(20)}, options...)
	a := withEffects(testapp.New(t, db, outbox.ConsumeTx("stock", func(ctx context.Context, tx bun.Tx, o order) error {
		if err := addEffect(ctx, tx, o); err != nil {
			return err
		}
		return what(ctx, tx, o)
	}, options...)))
	a.ProduceMany(n)
	return a
}

// once has a configuration run one transaction at a time, so that groups form.
func once() outbox.ProcessorConfig {
	config := testapp.Fast()
	config.TxConcurrency = 1
	return config
}

func nothing(context.Context, bun.Tx, order) error { return nil }

// effectsOf returns for each message in which attempts it had its effect.
func effectsOf(a *app) map[string][]int {
	a.Helper()
	var rows []struct {
		ID      string
		Attempt int
	}
	if err := a.DB.NewRaw("SELECT id, attempt FROM effects ORDER BY attempt").Scan(context.WithoutCancel(a.Context()), &rows); err != nil {
		a.Fatalf("effects: %v", err)
	}
	found := make(map[string][]int)
	for _, row := range rows {
		found[row.ID] = append(found[row.ID], row.Attempt)
	}
	return found
}

// requireEffects checks that each of n messages had its effect once, in its first
// attempt, and but for the given ones, whose attempts are given.
func requireEffects(a *app, n int, others map[string]string) {
	a.Helper()
	found := effectsOf(a)
	for i := range n {
		id, want := fmt.Sprint(i), "[1]"
		if other, ok := others[id]; ok {
			want = other
		}
		if got := fmt.Sprint(found[id]); got != want {
			a.Errorf("message %s: got effects in attempts %s, want %s", id, got, want)
		}
	}
}

func TestAGroupSharesTransactions(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var savepoints atomic.Int64
		var mu sync.Mutex
		members := make(map[*sql.Tx]int) // how many messages each transaction is of
		a := grouped(t, db, 60, func(_ context.Context, tx bun.Tx, _ order) error {
			mu.Lock()
			defer mu.Unlock()
			members[tx.Tx]++
			return nil
		}, bus.Timeout(9*time.Second)) // less than SQLite waits for its lock
		a.DB = a.DB.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
			if query == "SAVEPOINT asyncmonolith" {
				savepoints.Add(1)
			}
		}))
		r := a.Start(once())
		testapp.Eventually(t, "all are consumed", a.Empty)
		r.MustStop()
		requireEffects(a, 60, nil)
		// Claims and renewals have commits of their own, and how many of a group come
		// together in time is up to the machine: whoever is late shares the next.
		if got := len(members); got > 30 {
			t.Errorf("transactions for 60 messages in groups of 20: got %d, want a few", got)
		}
		sharing := 0
		for _, n := range members {
			if n > 1 {
				sharing += n
			}
		}
		// A transaction that has no time for more has one to spare, and each has one of the fence on MariaDB.
		if got := int(savepoints.Load()); got < sharing || got > 60+2*len(members) {
			t.Errorf("savepoints: got %d, want one for each of the %d messages that shared one of %d transactions, and few more", got,
				sharing, len(members))
		}
	})
}

// Promise: exactly-once
func TestAFailureInAGroupChargesOneMessage(t *testing.T) {
	t.Parallel()
	errFirst := errors.New("no luck")
	tests := []struct {
		name string
		fail func(ctx context.Context, tx bun.Tx) error
		want string // the attempts in which the failing message has its effect
	}{
		{"an error", func(context.Context, bun.Tx) error { return errFirst }, "[2]"},
		{"a panic", func(context.Context, bun.Tx) error { panic("no luck") }, "[2]"},
		{"an end of its goroutine", func(context.Context, bun.Tx) error { runtime.Goexit(); return nil }, "[2]"},
		{"a failed statement", func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewRaw("INSERT INTO nowhere VALUES (1)").Exec(ctx)
			return err
		}, "[2]"},
		{"a verdict", func(context.Context, bun.Tx) error { return bus.Discard(errors.New("not wanted")) }, "[]"},
		{"a poisoning", func(context.Context, bun.Tx) error { return bus.Permanent(errFirst) }, "[]"},
		{"a snooze", func(context.Context, bun.Tx) error { return bus.Snooze(0) }, "[1]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				var failed atomic.Bool
				a := grouped(t, db, 20, func(ctx context.Context, tx bun.Tx, o order) error {
					if o.N == 7 && failed.CompareAndSwap(false, true) {
						return test.fail(ctx, tx)
					}
					return nil
				})
				r := a.Start(once())
				testapp.Eventually(t, "all are settled", a.Empty)
				r.MustStop()
				requireEffects(a, 20, map[string]string{"7": test.want})
			})
		})
	}
}

// What a handler does to the transaction shows only when the transaction is to go
// on. Each message then runs alone, and only that one is charged.
// Promise: exactly-once
func TestOnlyTheMemberThatBreaksItsGroupIsCharged(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		harm    func(ctx context.Context, tx bun.Tx) error
		effects string // of the one
	}{
		{"a failed statement that it hides", func(ctx context.Context, tx bun.Tx) error {
			_, _ = tx.NewRaw("INSERT INTO nowhere VALUES (1)").Exec(ctx)
			return nil
		}, "[2]"},
		{"a constraint that is checked at the commit", func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewRaw("INSERT INTO late VALUES (1), (1)").Exec(ctx)
			return err
		}, "[2]"},
		{"a rollback of its own", func(_ context.Context, tx bun.Tx) error { return tx.Rollback() }, "[]"}, // poisoned at once
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := grouped(t, testdb.Postgres(t), 20, func(ctx context.Context, tx bun.Tx, o order) error {
				if m, _ := bus.MessageFromContext(ctx); o.N == 7 && m.Attempt == 1 {
					return test.harm(ctx, tx)
				}
				return nil
			})
			a.Exec("CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
			r := a.Start(once())
			testapp.Eventually(t, "all are settled", a.Empty)
			r.MustStop()
			requireEffects(a, 20, map[string]string{"7": test.effects})
		})
	}
}

// Promise: exactly-once
func TestAnAbandonedMemberOfAGroupHasNoEffect(t *testing.T) {
	t.Parallel()
	gate, late := make(chan struct{}), make(chan error, 1)
	a := grouped(t, testdb.Postgres(t), 20, func(ctx context.Context, tx bun.Tx, o order) error {
		if m, _ := bus.MessageFromContext(ctx); o.N == 7 && m.Attempt == 1 {
			<-gate
			late <- addEffect(context.WithoutCancel(ctx), tx, o)
		}
		return nil
	}, bus.Timeout(4*time.Second))
	r := a.Start(once())
	testapp.Eventually(t, "all are settled", a.Empty)
	close(gate)
	if err := <-late; err == nil || !strings.Contains(err.Error(), "transaction has already been committed or rolled back") {
		t.Errorf("statement of the abandoned handler: got %v, want its transaction gone", err)
	}
	r.MustStop()
	requireEffects(a, 20, map[string]string{"7": "[2]"})
}

func TestAGroupIsFencedOneByOne(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	thief := testdb.OpenPostgres(t, dsn)
	a := grouped(t, testdb.OpenPostgres(t, dsn), 20, nothing)
	// Right before the fence one message is taken away, as a recovery would.
	a.DB = a.DB.WithQueryHook(&beforeOnce{match: "FOR UPDATE OF m", do: func() {
		for _, statement := range []string{
			"UPDATE consumer_messages SET attempts = 1 WHERE payload LIKE '%\"n\":7}'",
			"UPDATE message_claims SET message_ids = array_remove(message_ids, (SELECT id FROM consumer_messages WHERE attempts = 1))",
		} {
			if _, err := thief.NewRaw(statement).Exec(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}})
	r := a.Start(once())
	testapp.Eventually(t, "all are settled", a.Empty)
	r.MustStop()
	requireEffects(a, 20, map[string]string{"7": "[2]"})
}

// Somebody else's lock on one message holds up nobody but that message.
func TestAGroupMeetsALockedMessage(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	a := grouped(t, testdb.OpenPostgres(t, dsn), 20, nothing, bus.Timeout(time.Second))
	watcher := *a
	other := testdb.OpenPostgres(t, dsn)
	var lock bun.Tx
	// Not before it is claimed: what is locked is not claimed.
	a.DB = a.DB.WithQueryHook(&beforeOnce{match: "FOR UPDATE OF m", do: func() {
		var err error
		if lock, err = other.BeginTx(context.Background(), nil); err != nil {
			t.Error(err)
			return
		}
		if _, err := lock.NewRaw("SELECT id FROM consumer_messages WHERE payload LIKE '%\"n\":7}' FOR UPDATE").Exec(context.Background()); err != nil {
			t.Error(err)
		}
	}})
	r := a.Start(once())
	testapp.Eventually(t, "the others are consumed", func() bool { return len(watcher.Pending()) == 1 })
	testapp.OK(t, lock.Rollback())
	testapp.Eventually(t, "all are settled", watcher.Empty)
	r.MustStop()
	requireEffects(&watcher, 20, nil)
}

func TestAGroupLosesItsCommits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		fault chaos.Fault
	}{{"before they arrive", chaos.DropQuery}, {"and only their answers", chaos.DropReply}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			proxy, db, direct := proxied(t)
			var runs, lost atomic.Int64
			a := grouped(t, db, 60, func(context.Context, bun.Tx, order) error { runs.Add(1); return nil })
			proxy.Decide(func(sql string) chaos.Fault {
				if strings.EqualFold(sql, "commit") && runs.Load() > 0 && lost.Add(1) <= 3 {
					return test.fault
				}
				return chaos.Forward
			})
			watcher := *a
			watcher.DB = direct
			r := a.Start(once())
			testapp.Eventually(t, "everything is consumed", watcher.Empty)
			r.MustStop()
			if lost.Load() < 3 {
				t.Fatalf("commits lost: got %d, want 3", lost.Load())
			}
			requireEffects(&watcher, 60, nil)
		})
	}
}

func TestAGroupKeepsWaitingShort(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	a := grouped(t, testdb.Postgres(t), 20, func(context.Context, bun.Tx, order) error {
		if runs.Add(1) == 1 {
			<-time.After(2400 * time.Millisecond) // more than half of the timeout
		}
		return nil
	}, bus.Timeout(4*time.Second))
	r := a.Start(once())
	testapp.Eventually(t, "all are settled", a.Empty)
	r.MustStop()
	requireEffects(a, 20, nil)
	if runs.Load() != 20 {
		t.Errorf("runs: got %d, want 20, one each", runs.Load())
	}
}

func TestAGroupStops(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	var runs atomic.Int64
	a := grouped(t, testdb.Postgres(t), 20, func(ctx context.Context, _ bun.Tx, _ order) error {
		switch n := runs.Add(1); {
		case n < 5:
			return nil
		case n == 5:
			close(started)
		}
		<-ctx.Done() // a stop reaches one after another, so the next may begin
		return ctx.Err()
	})
	config := once()
	config.DrainTimeout = 10 * time.Millisecond
	r := a.Start(config)
	<-started
	r.MustStop()
	// The stop waits a second for the transaction, which may take longer on a busy machine.
	if n, done := len(a.Pending()), len(effectsOf(a)); n+done != 20 || done != 4 && done != 0 {
		t.Errorf("after the stop: got %d messages and %d effects, want the 16 that did not finish and 4, or all 20 and none", n, done)
	}
	counted := a.Count("SELECT count(*) FROM consumer_messages WHERE attempts + crashes > 0")
	if n := counted + a.Count("SELECT count(*) FROM message_claims"); n != 0 {
		t.Errorf("messages that were charged, and claims: got %d, want none", n)
	}
}

// Layers above may do as they please: answer themselves, call the consumer twice,
// come late.
func TestAGroupBelowOtherLayers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs sync.Map
		var ended atomic.Bool
		a := grouped(t, db, 20, func(_ context.Context, _ bun.Tx, o order) error {
			if _, again := runs.LoadOrStore(o.N, true); o.N == 3 && !again {
				return errors.New("try again")
			}
			return nil
		})
		config := once()
		config.Middleware = middleware.Default(middleware.Options{Middleware: []bus.Middleware{func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, m *bus.Message) error {
				switch {
				case strings.Contains(string(m.Payload), `"n":2}`):
					return bus.Discard(errors.New("not wanted"))
				case strings.Contains(string(m.Payload), `"n":3}`):
					if err := next(ctx, m); err == nil {
						return errors.New("the first call should fail")
					}
				case strings.Contains(string(m.Payload), `"n":4}`):
					<-time.After(100 * time.Millisecond)
				case strings.Contains(string(m.Payload), `"n":5}`) && ended.CompareAndSwap(false, true):
					runtime.Goexit()
				}
				return next(ctx, m)
			}
		}}})
		r := a.Start(config)
		testapp.Eventually(t, "all are settled", a.Empty)
		r.MustStop()
		requireEffects(a, 20, map[string]string{"2": "[]"})
	})
}

func TestGroupCommitMistakes(t *testing.T) {
	t.Parallel()
	tx := func(context.Context, bun.Tx, order) error { return nil }
	for _, test := range []struct {
		consumer bus.Consumer
		want     string
	}{
		{outbox.ConsumeTx("c", tx, outbox.GroupCommit(0)), `outbox: consumer "c": GroupCommit 0: 1 to 50 are allowed`},
		{outbox.ConsumeTx("c", tx, outbox.GroupCommit(51)), `outbox: consumer "c": GroupCommit 51: 1 to 50 are allowed`},
		{bus.Consume("c", func(context.Context, order) error { return nil }, outbox.GroupCommit(5)),
			`outbox: consumer "c": GroupCommit is for consumers made by ConsumeTx`},
		{bus.ConsumeBatch("c", func(context.Context, []order) error { return nil }, outbox.GroupCommit(2)),
			`outbox: consumer "c": GroupCommit is for consumers of single messages: a batch has one transaction anyway`},
	} {
		registry, err := bus.NewRegistry(test.consumer)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = outbox.NewProcessor(testdb.SQLite(t), registry, outbox.ProcessorConfig{}); err == nil || err.Error() != test.want {
			t.Errorf("NewProcessor: got %v, want %s", err, test.want)
		}
	}
}
