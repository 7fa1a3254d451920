package older_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// everyFeature are consumers of jobs, each with a feature of flow control.
func everyFeature(d database, runs *journal) []bus.Consumer {
	all := []bus.Consumer{
		runs.consume("plain"),
		runs.consume("ordered", bus.Ordered(bus.ParkKey)),
		runs.consume("limited", bus.Limit(2)),
		runs.consume("shared", bus.LimitShared("both", 2)),
		runs.consume("rated", bus.Rate(2000, time.Second, 50)),
		runs.consume("gated", outbox.Gated(new(outbox.Gate))),
		runs.consume("broken", bus.Breaker(bus.BreakerConfig{})),
		bus.ConsumeBatch("batch", func(ctx context.Context, jobs []job) error { return runs.run(ctx, "batch", jobs...) }),
		bus.ConsumeRaw("raw", func(ctx context.Context, batch []*bus.Message) error {
			jobs := make([]job, len(batch))
			for i, m := range batch {
				if err := json.Unmarshal(m.Payload, &jobs[i]); err != nil {
					return err
				}
			}
			return runs.run(ctx, "raw", jobs...)
		}, []string{"job", "note"}),
	}
	if d.driver == "mysql" {
		return all
	}
	return append(all, runs.consume("per-key", bus.PerKey(2)), runs.consume("fair", bus.Fair()),
		runs.consume("rate-per-key", bus.RatePerKey(2000, time.Second, 50)), runs.consume("prior", bus.Priorities(time.Minute)))
}

// jobs are those with the numbers from one to another.
func jobs(from, to int) (all []job) {
	for n := from; n <= to; n++ {
		all = append(all, job{N: n})
	}
	return all
}

// produceAll produces jobs with all that goes together: keys, of which there are five, deadlines,
// insert ids and priorities.
func (n *newer) produceAll(d database, jobs []job) {
	n.Helper()
	var items []outbox.Item
	for _, j := range jobs {
		id := fmt.Sprint("job ", j.N)
		options := []outbox.Option{outbox.Key(keyOf(j.N)), outbox.DeliverBy(time.Now().Add(time.Hour), bus.Discarded), outbox.InsertID(id)}
		if d.driver != "mysql" {
			options = append(options, []outbox.Option{outbox.UniqueFor(id, time.Hour), outbox.Replace(id), outbox.Debounce(id, time.Millisecond, time.Second)}[j.N%3])
			if j.N%2 == 0 {
				options = append(options, outbox.Priority(bus.Urgent))
			}
		}
		items = append(items, outbox.Item{Payload: j, Options: options})
	}
	if _, err := n.Producer.ProduceMany(n.Context(), n.DB, items...); err != nil {
		n.Fatal(err)
	}
}

func keyOf(n int) string { return fmt.Sprint("key ", n%5) }

// TestARollingDeploy: an older program works while the tables are brought up to date, goes on
// beside a newer one, and ends. Both produce. Each message runs once, those with keys in the newer
// program, and nobody has anything to complain about.
func TestARollingDeploy(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		var runs journal
		consumers := everyFeature(d, &runs)
		var names []string
		for _, c := range consumers {
			names = append(names, c.Name())
		}
		p := startOlder(t, d, names...)
		p.do(command{Do: "migrate"})
		registry := testapp.Must[*bus.Registry](t)(bus.NewRegistry(consumers...))
		early := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(d.db, registry, outbox.ProcessorConfig{}))
		if err := early.Check(t.Context()); !errors.Is(err, outbox.ErrSchema) {
			t.Errorf("on older tables: got %v, want ErrSchema", err)
		}
		p.do(command{Do: "run"})
		migrated := make(chan error, 1)
		go func() { migrated <- outbox.Migrate(t.Context(), d.db, registry.Tables()) }()
		for from := 1; from <= 100; from += 10 {
			p.do(command{Do: "produce", Jobs: jobs(from, from+9)})
		}
		if err := <-migrated; err != nil {
			t.Fatal(err)
		}
		p.do(command{Do: "migrate"}) // as an instance of it that starts now
		p.do(command{Do: "check"})
		testapp.Eventually(t, "the older program has run something of each consumer", func() bool {
			return !slices.ContainsFunc(names, func(name string) bool { return len(p.done(name)) == 0 })
		})

		n := newNewer(t, d, &runs, consumers...)
		var log testapp.Lines
		config := patient()
		config.Logger = log.Logger()
		r := n.Start(config)
		for from := 101; from <= 200; from += 20 {
			p.do(command{Do: "produce", Jobs: jobs(from, from+9)})
			n.produceAll(d, jobs(from+10, from+19))
		}
		p.do(command{Do: "stop"})
		p.do(command{Do: "produce", Jobs: jobs(201, 210)})
		n.produceAll(d, jobs(211, 220))
		testapp.Eventually(t, "all is done", n.Empty)
		r.MustStop()
		if poisoned := n.Poisoned(); len(poisoned) > 0 || strings.Contains(log.String(), "level=ERROR") {
			t.Errorf("got %+v poisoned, want none and no error in the log:\n%s", poisoned, &log)
		}
		for _, name := range names {
			wantEachOnce(t, name, p.done(name), runs.of(name))
		}
		wantKeysInOrder(t, runs.of("ordered"))
	}, everywhere()...)
}

// keyed are consumers whose messages have keys.
func keyed() []string { return []string{"ordered", "per-key", "fair", "rate-per-key"} }

// wantEachOnce compares what both have done for a consumer with what was produced.
func wantEachOnce(t *testing.T, name string, older, newer []int) {
	t.Helper()
	got := slices.Concat(older, newer)
	slices.Sort(got)
	var want []int
	for n := 1; n <= 220; n++ {
		want = append(want, n)
	}
	wantNumbers(t, name+", by both", got, want...)
	if len(older) == 0 || len(newer) == 0 {
		t.Errorf("%s: got %d runs in the older program and %d in the newer, want some in both", name, len(older), len(newer))
	}
	if !slices.Contains(keyed(), name) {
		return
	}
	for _, n := range older {
		if hasKey(n) {
			t.Errorf("%s: the older program ran %d, which has a key", name, n)
		}
	}
}

// hasKey tells whether the newer program has produced the job.
func hasKey(n int) bool { return n > 100 && (n-1)/10%2 == 1 }

// wantKeysInOrder looks at jobs that have keys.
func wantKeysInOrder(t *testing.T, ran []int) {
	t.Helper()
	last := make(map[string]int)
	for _, n := range ran {
		if !hasKey(n) {
			continue
		}
		if n < last[keyOf(n)] {
			t.Errorf("%s: %d ran after %d", keyOf(n), n, last[keyOf(n)])
		}
		last[keyOf(n)] = n
	}
}

// TestWhatAnOlderProgramLeaves is taken back by a newer one: what was in its claims runs again,
// whatever the newer program makes of its consumers.
func TestWhatAnOlderProgramLeaves(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		var runs journal
		consumers := everyFeature(d, &runs)
		var names []string
		for _, c := range consumers {
			names = append(names, c.Name())
		}
		n, p := newNewer(t, d, &runs, consumers...), startOlder(t, d, names...)
		p.do(command{Do: "produce", Jobs: []job{{N: 1, Blocks: true}}})
		p.do(command{Do: "run"})
		testapp.Eventually(t, "all of it runs", func() bool { return p.begun() == len(names) })
		p.kill()
		n.Exec("UPDATE message_claims SET leased_until = " + testapp.In(d.db, -time.Hour))
		for _, name := range names {
			n.drain(name)
			wantNumbers(t, name+" in the newer program", runs.of(name), 1)
		}
		if !n.Empty() {
			t.Errorf("got %+v left, want nothing", n.Pending())
		}
	}, everywhere()...)
}

// TestMigratingBesideAnOlderProgram: an older processor has one of the tables locked for which
// the migration waits, and itself waits for another that the migration has. It does so since before
// the server could see a deadlock, because somebody's transaction has kept both waiting, so that
// the migration is the one to lose it. Then that begins anew.
func TestMigratingBesideAnOlderProgram(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		p := startOlder(t, d, "c")
		p.do(command{Do: "migrate"})
		p.do(command{Do: "produce", Jobs: []job{{N: 1, Blocks: true}}})
		p.do(command{Do: "run"})
		testapp.Eventually(t, "it runs", func() bool { return p.begun() == 1 })
		tx := testapp.Must[bun.Tx](t)(d.db.BeginTx(t.Context(), nil))
		if _, err := tx.Exec("SELECT id FROM consumer_messages FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		a := &testapp.App{T: t, DB: d.db}
		waits := func(query string) bool { // for longer than deadlock_timeout
			return a.Count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
				AND query LIKE ? AND clock_timestamp() - query_start > interval '1200 ms'`, "%"+query+"%") > 0
		}
		migrated := make(chan error, 1)
		go func() { migrated <- outbox.Migrate(t.Context(), d.db, bus.Tables{}) }()
		testapp.Eventually(t, "the migration waits for the transaction", func() bool { return waits("ADD order_key") })
		p.do(command{Do: "release"})
		testapp.Eventually(t, "the older program waits for the migration", func() bool { return waits("WITH live") })
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-migrated; err != nil {
			t.Errorf("migrate: got %v, want nil", err)
		}
		testapp.Eventually(t, "the older program has done its message", a.Empty)
		p.do(command{Do: "stop"})
	}, "postgres")
}
