package ops_test

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
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// seen notes a process that was last seen some time ago.
func seen(a *testapp.App, db *bun.DB, id string, ago time.Duration, state string) {
	a.Exec("INSERT INTO message_processes (id, kind, host, pid, program, version, started_at, seen_at, manifest, state) VALUES (?, 'processor', 'host', 7, ?, '', "+
		testapp.In(db, -ago)+", "+testapp.In(db, -ago)+", '{}', ?)", id, id, state)
}

// TestCheckNamesWhatNeedsAttention: nothing needs anybody where all is well, and else what does is named, the worst first.
// Promise: breaker
func TestCheckNamesWhatNeedsAttention(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 3, testapp.Consumed("c"))
		check := func() []ops.Finding {
			t.Helper()
			return testapp.Must[[]ops.Finding](t)(operator.As(serviceOf(t, db, a.Registry), someone(ops.Viewer)).Check(t.Context()))
		}
		s := operator.As(serviceOf(t, db, a.Registry), someone(ops.Administrator))
		wantFinding(t, check(), "poisoned", ops.Critical, "c: ", "3 poisoned messages")
		a.Exec("DELETE FROM poisoned_messages")
		seen(a, db, "fine", 0, `{"every": 15000000000}`)
		if all := check(); len(all) != 0 {
			t.Errorf("all is well: got %+v", all)
		}
		a.ProduceMany(1)
		seen(a, db, "stuck", 0, `{"every": 15000000000, "stuck": ["c"]}`)
		_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(),
			planned(t, s, ops.Cancel, ops.Target{Pending: &admin.Filter{Consumer: "c"}}).ID, ops.StartOptions{Reason: "why"}))
		a.Exec("UPDATE message_operations SET state = 'paused', note = 'failed 3 times in a row; error: a secret'")
		all := check()
		wantFinding(t, all, "consumers", ops.Critical, "c: No live process handles ")
		wantFinding(t, all, "processes", ops.Critical, "stuck (pid 7", "still run: c")
		wantFinding(t, all, "operations", ops.Warning, "Paused itself: failed 3 times in a row.")
		a.Exec("UPDATE message_processes SET state = '{\"every\": 15000000000, \"open_circuits\": [\"c\"]}'")
		a.Exec("DELETE FROM message_processes WHERE id = 'fine'")
		wantFinding(t, check(), "processes", ops.Critical, "stuck (pid 7", "Circuit open or broker down: c.")
		a.Exec("INSERT INTO message_breakers (name, half_since, done, failed, opened, opened_at, open_until) VALUES ('c', " +
			testapp.In(db, 0) + ", 8, 12, 1, " + testapp.In(db, -time.Minute) + ", " + testapp.In(db, time.Minute) + ")")
		all = check()
		wantFinding(t, all, "circuit_breakers", ops.Critical, "c: ", "Circuit open for 1m", "12 of 20 runs failed", "Next try at ")
		if found := findingsOf(all, "processes"); len(found) != 0 {
			t.Errorf("got %+v, want the breaker alone", found)
		}
		a.Exec("DELETE FROM message_breakers")
		a.Exec("UPDATE message_processes SET seen_at = " + testapp.In(db, -time.Hour))
		all = check()
		wantFinding(t, all, "processes", ops.Warning, "Lost, last seen ")
		if last := len(all) - 1; all[0].Severity != ops.Critical || all[last].Severity != ops.Warning {
			t.Errorf("got %+v, want the worst first", all)
		}
	})
}

// TestCheckOfProjections: those that have halted need somebody.
func TestCheckOfProjections(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		a.Exec("INSERT INTO event_subscriptions (name, version, shard, shards, filter, position, status, next_at, moved_at) VALUES ('p', 2, 3, 4, '', 17, 'halted', " + testapp.In(db, 0) + ", " + testapp.In(db, 0) + ")")
		all := testapp.Must[[]ops.Finding](t)(operator.As(serviceOf(t, db, a.Registry), someone(ops.Viewer)).Check(t.Context()))
		wantFinding(t, all, "projections", ops.Critical, "p: Version 2, shard 3 halted at position 17.")
	})
}

// TestCheckReportsPartsItCouldNotRead: what is known from before is not all well.
// Promise: overview
func TestCheckReportsPartsItCouldNotRead(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	a := testapp.New(t, db, testapp.Consumed("c"))
	d := serviceOf(t, db, a.Registry)
	s := operator.As(d, someone(ops.Viewer))
	if all := testapp.Must[[]ops.Finding](t)(s.Check(t.Context())); len(all) != 0 {
		t.Fatalf("all is well: got %+v", all)
	}
	testapp.OK(t, db.Close())
	testapp.Eventually(t, "it is old", func() bool {
		o := testapp.Must[operator.Overview](t)(s.Overview(t.Context()))
		return len(o.Unseen) == 1 && len(o.Unseen[0].Parts) == 5
	})
	all := testapp.Must[[]ops.Finding](t)(s.Check(t.Context()))
	wantFinding(t, all, "overview", ops.Warning)
	if shown := fmt.Sprint(all, testapp.Must[operator.Overview](t)(s.Overview(t.Context())).Unseen); strings.Contains(shown, "sql:") {
		t.Errorf("a viewer sees %s, which may tell where the database is", shown)
	}
	all = testapp.Must[[]ops.Finding](t)(operator.As(d, someone(ops.Operator)).Check(t.Context()))
	wantFinding(t, all, "overview", ops.Warning, "Could not be read")
	if shown := fmt.Sprint(all); strings.Contains(shown, "sql:") {
		t.Errorf("an operator sees %s, which may tell where the database is", shown)
	}
}

// TestOverviewShowsThePartsThatCouldBeRead: an overview shows what could be read, and says what could not.
// Promise: overview
func TestOverviewShowsThePartsThatCouldBeRead(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	a := testapp.New(t, testdb.OpenPostgres(t, dsn), testapp.Consumed("fast"), testapp.Consumed("slow"))
	a.ProduceMany(3)
	seen(a, a.DB, "p", 0, `{"every": 15000000000}`)
	slow := testdb.OpenRewritten(t, dsn, func(sql string) string {
		if strings.Contains(sql, `"slow"`) && strings.Contains(sql, "consumer_messages") {
			return "SELECT pg_sleep(5)"
		}
		return sql
	})
	s := operator.As(serviceOf(t, slow, testapp.Must[*bus.Registry](t)(bus.NewRegistry())), someone(ops.Operator))
	o := testapp.Must[operator.Overview](t)(s.Overview(t.Context()))
	if len(o.Queues) != 1 || o.Queues[0].Consumer != "fast" || o.Queues[0].Ready != 3 || len(o.Processes) != 1 {
		t.Errorf("got %+v and %+v, want the queue of fast and a process", o.Queues, o.Processes)
	}
	if len(o.Unseen) != 1 || !slices.Equal(o.Unseen[0].Parts, []string{"the queue of slow"}) ||
		!strings.Contains(o.Unseen[0].Why, "did not answer within 3s") || !o.Unseen[0].From.IsZero() {
		t.Errorf("got %+v, want that the queue of slow is unseen", o.Unseen)
	}
	wantFinding(t, testapp.Must[[]ops.Finding](t)(s.Check(t.Context())), "overview", ops.Warning, "Could not be read: the queue of slow")
}

// TestPartsOfTheOverviewFailAlone: what cannot be read takes nothing else away, and is named.
// Promise: overview
func TestPartsOfTheOverviewFailAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text   string // of the statements that fail
		unseen []string
	}{
		{"message_processes", []string{"states", "processes"}},
		{"message_minutes", []string{"minutes"}},
		{"message_failures", []string{"failures"}},
		{"message_operations", []string{"operations"}},
		{"paused_consumers", []string{"queues"}},
		{"m.keyed = TRUE AND m.consumer_type > n.name", []string{"unhandled messages"}},
	} {
		t.Run(strings.Join(c.unseen, " and "), func(t *testing.T) {
			t.Parallel()
			dsn := testdb.PostgresDSN(t)
			a, _ := testapp.NewPoisoned(t, testdb.OpenPostgres(t, dsn), 3, testapp.Consumed("c"))
			a.ProduceMany(2)
			seen(a, a.DB, "p", 0, `{"every": 15000000000, "open_circuits": ["c"]}`)
			var broken atomic.Bool
			db := testdb.OpenRewritten(t, dsn, func(sql string) string {
				if broken.Load() && strings.Contains(sql, c.text) {
					return "SELECT 1/0"
				}
				return sql
			})
			s := operator.As(serviceOf(t, db, testapp.Must[*bus.Registry](t)(bus.NewRegistry())), someone(ops.Operator))
			before := testapp.Must[operator.Overview](t)(s.Overview(t.Context()))
			if len(before.Unseen) > 0 || len(before.Queues) != 1 || len(before.Queues[0].Stops) == 0 || len(before.Processes) != 1 {
				t.Fatalf("before: got %+v, want a queue with what stops it, and a process", before)
			}
			a.Exec("UPDATE consumer_messages SET available_after = " + testapp.In(a.DB, time.Hour))
			broken.Store(true)
			var o operator.Overview
			testapp.Eventually(t, "it is read anew", func() bool {
				o = testapp.Must[operator.Overview](t)(s.Overview(t.Context()))
				return len(o.Unseen) > 0
			})
			if len(o.Unseen) != 1 || !slices.Equal(o.Unseen[0].Parts, c.unseen) || !o.Unseen[0].From.Equal(before.At) || !o.At.After(before.At) {
				t.Errorf("got %+v of %s, want %v as of %s", o.Unseen, o.At, c.unseen, before.At)
			}
			want := int64(2)
			if slices.Contains(c.unseen, "queues") {
				want = 0 // as before
			}
			if len(o.Queues) != 1 || o.Queues[0].Delayed != want || fmt.Sprint(o.Queues[0].Stops) != fmt.Sprint(before.Queues[0].Stops) {
				t.Errorf("got %+v, want %d delayed, and the stops of %+v", o.Queues, want, before.Queues)
			}
			if len(o.Processes) != 1 || len(o.Failures) != len(before.Failures) {
				t.Errorf("got %d processes and %d failures, want those from before", len(o.Processes), len(o.Failures))
			}
		})
	}
}

// TestABusyDatabase: a look that the server or this process gives up is ErrBusy.
func TestABusyDatabase(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		if db.Dialect().Name() == dialect.SQLite {
			t.Skip("where readers wait for nobody")
		}
		a, _ := testapp.NewPoisoned(t, db, 3, testapp.Consumed("c"))
		s := operator.As(serviceOf(t, db, a.Registry), someone(ops.Viewer))
		lock, unlock := "LOCK TABLE poisoned_messages IN ACCESS EXCLUSIVE MODE", "ROLLBACK"
		if isMariaDB(db) {
			lock, unlock = "LOCK TABLES poisoned_messages WRITE", "UNLOCK TABLES"
		}
		conn := testapp.Must[bun.Conn](t)(db.Conn(t.Context()))
		defer conn.Close()
		exec := func(statement string) {
			t.Helper()
			testapp.OK(t, testapp.Second(conn.ExecContext(context.WithoutCancel(t.Context()), statement)))
		}
		exec("BEGIN")
		exec(lock)
		defer exec(unlock)
		if _, _, err := s.Poisoned().Groups(t.Context(), "c"); !errors.Is(err, ops.ErrBusy) {
			t.Errorf("got error %v, want ErrBusy", err)
		}
	})
}

// TestDoctorFindsWhatTheCheckFinds: whatever needs attention, the doctor names, with what to do.
func TestDoctorFindsWhatTheCheckFinds(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 3, testapp.Consumed("c"), testapp.Consumed("it's"))
		a.Exec("UPDATE poisoned_messages SET consumer_type = 'it''s' WHERE id = 2")
		a.Exec("UPDATE poisoned_messages SET consumer_type = 'keyed', order_key = 'k', lane = ?, rank = 4, parks = TRUE WHERE id = 3",
			store.Lane("k"))
		keyed := testapp.New(t, db, testapp.Consumed("keyed", bus.Ordered(bus.BlockKey)))
		keyed.Produce(order{}, outbox.OrderingKey("k"))
		a.ProduceMany(1)
		a.Exec("INSERT INTO message_breakers (name, half_since, opened, opened_at, open_until) VALUES ('broken', " + testapp.In(db,
			0) + ", 1, " + testapp.In(db, 0) + ", " + testapp.In(db, time.Hour) + ")")
		seen(a, db, "gone", time.Hour, `{"every": 15000000000}`)
		seen(a, db, "stuck", 0, `{"every": 15000000000, "stuck": ["c"]}`)
		seen(a, db, "closed", 0, `{"every": 15000000000, "open_circuits": ["c"]}`)
		s := operator.As(serviceOf(t, db, keyed.Registry), someone(ops.Administrator))
		_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), planned(t, s, ops.Requeue, ofConsumer("c")).ID,
			ops.StartOptions{Reason: "why"}))
		a.Exec("UPDATE message_operations SET state = 'paused'")
		if !isMariaDB(db) {
			a.Exec("INSERT INTO event_subscriptions (name, version, shard, shards, filter, position, status, next_at, moved_at) VALUES ('p', 2, 3, 4, '', 17, 'halted', " + testapp.In(db, 0) + ", " + testapp.In(db, 0) + ")")
		}
		cures := make(map[string]string)
		for _, f := range testapp.Must[[]ops.Finding](t)(s.Doctor(t.Context())) {
			cures[f.Check+": "+f.Subject] = f.Remedy
		}
		checks := make(map[string]bool)
		for _, f := range testapp.Must[[]ops.Finding](t)(s.Check(t.Context())) {
			checks[f.Check] = true
			if cure, found := cures[f.Check+": "+f.Subject]; !found || cure == "" {
				t.Errorf("got no cure of %+v from the doctor, who has %v", f, cures)
			}
		}
		want := 6 // poisoned, blocked keys, breakers, consumers, processes, operations; and projections
		if !isMariaDB(db) {
			want++
		}
		if len(checks) != want {
			t.Errorf("got %v, want one of each of %d", checks, want)
		}
		for subject, command := range map[string]string{"c": "poisoned groups --consumer c --show-payloads",
			"it's": `requeue --consumer 'it'\''s'`} {
			found := false
			for said, cure := range cures {
				found = found || said == "poisoned: "+subject && strings.Contains(cure, "asyncmonolith "+command)
			}
			if !found {
				t.Errorf("got %v, want %q of %s", cures, command, subject)
			}
		}
	})
}

// TestCheckOfOperations: one that nobody carries out needs attention after 10 s, and where a process lives that
// carries operations out after a minute.
func TestCheckOfOperations(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 3, testapp.Consumed("c"))
		s := operator.As(serviceOf(t, db, a.Registry), someone(ops.Administrator))
		o := testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), planned(t, s, ops.Requeue, ofConsumer("c")).ID,
			ops.StartOptions{Reason: "why"}))
		for _, test := range []struct {
			state string
			ago   time.Duration
			lives bool
			says  string
		}{
			{"waiting", 5 * time.Second, false, ""},
			{"waiting", 15 * time.Second, false, fmt.Sprintf("asyncmonolith operations run %d", o.ID)},
			{"running", 15 * time.Second, false, "no live process runs operations"},
			{"waiting", 15 * time.Second, true, ""},
			{"waiting", 90 * time.Second, true, "no process runs it"},
		} {
			a.Exec("DELETE FROM message_processes")
			if test.lives {
				seen(a, db, "runner", 0, `{"every": 15000000000}`)
				a.Exec("UPDATE message_processes SET kind = 'operations'")
			}
			a.Exec("UPDATE message_operations SET state = ?, starts_at = "+testapp.In(db, -test.ago), test.state)
			viewer := operator.As(serviceOf(t, db, a.Registry), someone(ops.Viewer))
			if got := testapp.Must[bool](t)(viewer.HasRunner(t.Context(), 0, "")); got != test.lives {
				t.Errorf("%+v: carried: got %t", test, got)
			}
			all := testapp.Must[[]ops.Finding](t)(viewer.Check(t.Context()))
			if test.says == "" {
				if found := findingsOf(all, "operations"); len(found) != 0 {
					t.Errorf("%+v: got %+v, want nothing", test, found)
				}
				continue
			}
			wantFinding(t, all, "operations", ops.Warning, test.says)
		}
		a.Exec(`UPDATE message_operations SET kind = 'rebuild', target = '{"projection": "totals"}', starts_at = ` + testapp.In(db, -15*time.Second))
		for manifest, runs := range map[string]bool{`{}`: false, `{"projections": ["others/1"]}`: false, `{"projections": ["totals/2"]}`: true} {
			a.Exec("UPDATE message_processes SET manifest = ?", manifest)
			viewer := operator.As(serviceOf(t, db, a.Registry), someone(ops.Viewer))
			if got := testapp.Must[bool](t)(viewer.HasRunner(t.Context(), 0, "totals")); got != runs {
				t.Errorf("a rebuild beside %s: got a runner %t, want %t", manifest, got, runs)
			}
			found := findingsOf(testapp.Must[[]ops.Finding](t)(viewer.Check(t.Context())), "operations")
			if runs != (len(found) == 0) {
				t.Errorf("a rebuild beside %s: got %+v", manifest, found)
			}
			if !runs {
				wantFinding(t, found, "operations", ops.Warning, `runs operations and projection "totals"`)
			}
		}
	})
}
