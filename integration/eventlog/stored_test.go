package eventlog_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

type note struct {
	Text string `json:"text"`
}

func (note) PayloadType() string { return "note" }

// restore runs a dump of a database that an earlier version has written.
func restore(t *testing.T, db *bun.DB, file string) {
	t.Helper()
	dump, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // it is committed, or the test has failed
	for statement := range strings.SplitSeq(string(dump), ";\n") {
		if s := strings.TrimSpace(statement); s == "" || s == "BEGIN TRANSACTION" || s == "COMMIT" {
			continue
		}
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// TestStoredFormats reads tables as an earlier version has written them, down to the
// lists of a claim whose owner vanished and the events that messages refer to, and goes on
// from there.
func TestStoredFormats(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *bun.DB{"postgres": testdb.Postgres, "sqlite": testdb.SQLite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			restore(t, db, "testdata/stored/"+name+".sql")
			ran := &runs{}
			a := newApp(t, db, // which migrates: there is nothing to do
				ran.consumer("keep"), ran.consumer("refuse"), ran.consumer("again"),
				bus.Consume("react", func(_ context.Context, m moved) error { ran.add("react", m.Amount); return nil }))
			readsWhatPeopleAsk(t, a)
			readsTheLog(t, a)
			a.process()
			eventually(t, "all that is due has run", func() bool {
				return a.count("SELECT count(*) FROM consumer_messages WHERE consumer_type <> 'again'") == 2
			})
			// The claim's message has run, too; what is delayed or paused has not.
			want := []string{`keep held`, `keep second`, `react 5`, `react 7`, `refuse held`, `refuse second`}
			if got := ran.sorted(); !slices.Equal(got, want) {
				t.Errorf("runs: got %q, want %q", got, want)
			}
			requeuesWhatWasPoisoned(t, a, ran)
		})
	}
}

func readsWhatPeopleAsk(t *testing.T, a *app) {
	t.Helper()
	receipt, err := a.producer.Produce(a.ctx, a.db, note{"second"}, outbox.InsertID("k"))
	if err != nil || receipt.Enqueued != 0 || receipt.Duplicates != 3 {
		t.Errorf("produce what is pending: got %+v and %v, want 3 duplicates", receipt, err)
	}
	admin, err := outbox.NewAdmin(a.registry)
	if err != nil {
		t.Fatal(err)
	}
	failed, err := admin.Get(a.ctx, a.db, 1)
	if err != nil || failed.Consumer != "again" || failed.Attempts != 1 || len(failed.Errors) != 1 || failed.Headers["tenant"] != "ü" {
		t.Errorf("a message that has failed: got %+v and %v, want its error and its header", failed, err)
	}
	queues, err := admin.Queues(a.ctx, a.db)
	if err != nil || !slices.ContainsFunc(queues, func(q outbox.Queue) bool { return q.Consumer == "again" && !q.PausedAt.IsZero() }) {
		t.Errorf("queues: got %+v and %v, want one that is paused", queues, err)
	}
	scheduler, err := schedule.NewScheduler(a.registry, schedule.SchedulerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	schedules, _, err := scheduler.List(a.ctx, a.db, schedule.Filter{}, schedule.Page{})
	if err != nil || len(schedules) != 2 || schedules[0].Name != "daily" || schedules[0].Zone != "Europe/Berlin" || !schedules[1].Paused {
		t.Errorf("schedules: got %+v and %v, want one a day in Berlin, and a paused one", schedules, err)
	}
}

func readsTheLog(t *testing.T, a *app) {
	t.Helper()
	events := a.stream("account-1")
	if len(events) != 3 || events[2].Data != bus.Payload(moved{7}) {
		t.Errorf("stream: got %+v, want an opening and two moves", events)
	}
	snapshot, ok, err := a.log.Snapshot(a.ctx, a.db, "account-1", "balance/1")
	if err != nil || !ok || snapshot.Version != 2 || string(snapshot.State) != `{"balance":5}` {
		t.Errorf("snapshot: got %+v, %t and %v, want that of version 2", snapshot, ok, err)
	}
	a.append("account-1", 3, opened{"cy"})
	a.number()
	head, err := a.log.Head(a.ctx, a.db)
	if err != nil || head != 5 {
		t.Errorf("head: got %d and %v, want 5", head, err)
	}
	if _, err := a.try("account-2", eventlog.NoStream, opened{"di"}); err == nil {
		t.Error("append to a stream that is there as if it were not: got no error")
	}
}

func requeuesWhatWasPoisoned(t *testing.T, a *app, ran *runs) {
	t.Helper()
	poisoned, err := poison.NewStore(a.registry)
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := poisoned.List(a.ctx, a.db, poison.Filter{}, outbox.Page{})
	if err != nil || len(list) != 1 || len(list[0].Errors) != 1 || list[0].Headers["tenant"] != "ü" {
		t.Fatalf("poisoned: got %+v and %v, want one with its error and its header", list, err)
	}
	if _, err := poisoned.Requeue(a.ctx, a.db, list[0].ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the poisoned one runs", func() bool { return slices.Contains(ran.sorted(), "refuse first") })
}

// runs notes what has run.
type runs struct {
	mu   sync.Mutex
	list []string
}

func (r *runs) consumer(name string) bus.Consumer {
	return bus.Consume(name, func(_ context.Context, n note) error {
		r.add(name, n.Text)
		return nil
	})
}

func (r *runs) add(consumer string, what any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, fmt.Sprint(consumer, " ", what))
}

func (r *runs) sorted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(slices.Values(r.list))
}
