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

// noted is a consumer that notes the ids of its orders in the order in which they came.
type noted struct {
	mu  sync.Mutex
	ids []string
}

func (n *noted) consume(_ context.Context, o order) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ids = append(n.ids, o.ID)
	return nil
}

func TestTheNewestPayloadReplacesThePendingOne(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var one, two noted
		a := testapp.New(t, db, bus.Consume("one", one.consume), bus.Consume("two", two.consume, bus.Aliases("former")))
		a.Produce(order{ID: "first"}, outbox.InsertID("k"), outbox.Delay(time.Minute))
		a.Exec("UPDATE consumer_messages SET consumer_type = 'former', attempts = 3 WHERE consumer_type = 'two'")
		before, due := a.Pending(),
			"SELECT count(DISTINCT available_after) FROM (SELECT available_after FROM consumer_messages UNION ALL SELECT available_after FROM kept) m"
		a.Exec("CREATE TABLE kept AS SELECT created_at, available_after FROM consumer_messages")
		if got := a.Produce(order{ID: "second"}, outbox.InsertID("k", outbox.Replace())); got.Enqueued != 2 || got.Duplicates != 0 {
			t.Errorf("receipt: got %+v, want two rows written", got)
		}
		after := a.Pending()
		if len(after) != 2 {
			t.Fatalf("got %d that wait, want 2", len(after))
		}
		for i, row := range after {
			if row.Attempts != 0 || row.ID == before[i].ID {
				t.Errorf("got %+v, want a new row with no attempts in place of %+v", row, before[i])
			}
		}
		if n := a.Count(due); n != 1 {
			t.Errorf("got %d instants at which they are due, want that of before", n)
		}
		if n := a.Count("SELECT count(*) FROM consumer_messages WHERE created_at NOT IN (SELECT created_at FROM kept)"); n != 0 {
			t.Errorf("got %d rows with another time of creation", n)
		}
		a.Exec("UPDATE consumer_messages SET available_after = created_at")
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "both ran", a.Empty)
		r.MustStop()
		if fmt.Sprint(one.ids, two.ids) != "[second] [second]" {
			t.Errorf("got %v and %v run, want the second payload once each", one.ids, two.ids)
		}
	})
}

// TestNoReplacementIsLost: whatever is replaced while it runs, the last payload runs last.
func TestNoReplacementIsLost(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		const keys, writers, each = 5, 4, 40
		var mu sync.Mutex
		seen := make(map[string]int) // the newest version of each key
		newest := make(map[string]*atomic.Int64)
		for k := range keys {
			newest[fmt.Sprint(k)] = new(atomic.Int64)
		}
		a := testapp.New(t, db, bus.Consume("c", func(_ context.Context, o order) error {
			defer func() { <-time.After(3 * time.Millisecond) }() // is replaced while it runs
			mu.Lock()
			defer mu.Unlock()
			seen[o.ID] = max(seen[o.ID], o.N)
			return nil
		}))
		r := a.Start(testapp.Fast())
		var producers sync.WaitGroup
		for range writers {
			producers.Go(func() {
				for i := range each {
					key := fmt.Sprint(i % keys)
					err := a.Producer.RunInTx(a.Context(), db, func(ctx context.Context, tx bun.Tx) error {
						n := newest[key].Add(1)
						_, err := a.Producer.Produce(ctx, tx, order{ID: key, N: int(n)},
							outbox.InsertID(key, outbox.Debounce(5*time.Millisecond, 50*time.Millisecond)))
						return err
					})
					if err != nil {
						t.Errorf("produce: %v", err)
					}
				}
			})
		}
		producers.Wait()
		for key, n := range newest { // whoever committed last may not have the largest number
			a.Produce(order{ID: key, N: int(n.Add(1))}, outbox.InsertID(key, outbox.Replace()))
		}
		testapp.Eventually(t, "nothing waits", a.Empty)
		r.MustStop()
		for key, n := range newest {
			if seen[key] != int(n.Load()) {
				t.Errorf("key %s: got version %d run, want the last, %d", key, seen[key], n.Load())
			}
		}
	})
}

func TestDebounceWaitsForQuiet(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var ran testapp.Moments
		a := newApp(bus.Consume("c", func(context.Context, order) error { ran.Add(); return nil }))
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		began := time.Now()
		produce := func() {
			a.ProduceAt(ctx, order{ID: "1"}, outbox.InsertID("k", outbox.Debounce(10*time.Second, time.Minute)))
		}
		produce()
		<-time.After(5 * time.Second)
		produce()
		testapp.Sooner(t, "it ran", func() bool { return ran.Len() == 1 })
		if got := ran.At(0).Sub(began).Round(time.Second); got != 15*time.Second {
			t.Errorf("got it after %s, want 10s after the second", got)
		}
		began = time.Now()
		for ran.Len() == 1 { // never quiet
			produce()
			<-time.After(5 * time.Second)
		}
		r.MustStop()
		if got := ran.At(1).Sub(began).Round(time.Second); got != time.Minute {
			t.Errorf("got it after %s, want a minute after the first at the latest", got)
		}
	})
}

func TestAKeyStaysTakenForAPeriod(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"),
			outbox.ConsumeTx("tx", func(context.Context, bun.Tx, order) error { return nil }))
		produce := func(want int, options ...outbox.Option) {
			t.Helper()
			if got := a.Produce(order{ID: "1"}, options...); got.Enqueued != want || got.Duplicates != 2-want {
				t.Errorf("got %+v, want %d rows written", got, want)
			}
		}
		consume := func() {
			t.Helper()
			r := a.Start(testapp.Fast())
			testapp.Eventually(t, "both ran", a.Empty)
			r.MustStop()
		}
		produce(2, outbox.InsertID("k", outbox.UniqueFor(time.Hour)))
		produce(0, outbox.InsertID("k", outbox.UniqueFor(time.Hour)))
		consume()
		produce(0, outbox.InsertID("k", outbox.UniqueFor(time.Minute)))
		produce(2, outbox.InsertID("other", outbox.UniqueFor(time.Minute)))
		produce(2, outbox.InsertID("k")) // which asks for less
		consume()
		if n := a.Count("SELECT count(*) FROM recent_insert_ids"); n != 4 {
			t.Errorf("got %d keys remembered, want two for each consumer", n)
		}
		a.Exec("UPDATE recent_insert_ids SET until = " + testapp.NowOf(db))
		produce(2, outbox.InsertID("k", outbox.UniqueFor(time.Hour)))
		consume()
		if n := a.Count("SELECT count(*) FROM recent_insert_ids"); n != 2 {
			t.Errorf("got %d keys remembered, want what is over forgotten", n)
		}
	})
}

// TestOptionsThatContradictEachOtherAreRefused, whichever comes first.
func TestOptionsThatContradictEachOtherAreRefused(t *testing.T) {
	t.Parallel()
	a := testapp.New(t, testdb.SQLite(t), testapp.Consumed("c"),
		bus.Consume("ordered", func(context.Context, step) error { return nil }, bus.Ordered(bus.BlockKey)))
	debounce, unique := outbox.InsertID("k", outbox.Debounce(time.Second, time.Minute)), outbox.InsertID("k", outbox.UniqueFor(time.Hour))
	soon := outbox.DeliverBy(time.Now().Add(time.Second), bus.Discarded)
	for name, test := range map[string]struct {
		one, other outbox.Option
		text       string
	}{
		"debounce, delay":    {debounce, outbox.Delay(time.Hour), "with Debounce, which sets"},
		"debounce, instant":  {debounce, outbox.AvailableAt(time.Now().Add(time.Hour)), "with Debounce, which sets"},
		"unique, insert id":  {unique, outbox.InsertID("z"), "InsertID is given twice"},
		"replace, insert id": {outbox.InsertID("k", outbox.Replace()), outbox.InsertID("z"), "InsertID is given twice"},
		"debounce, replace":  {debounce, outbox.InsertID("z", outbox.Replace()), "InsertID is given twice"},
		"unique, replace":    {unique, outbox.InsertID("k", outbox.Replace()), "InsertID is given twice"},
		"deadline, delay":    {soon, outbox.Delay(time.Hour), "after its DeliverBy"},
		"deadline, late delay": {outbox.DeliverBy(time.Now().Add(-time.Hour), bus.Poisoned), outbox.Delay(time.Second),
			"after its DeliverBy"},
	} {
		for _, options := range [][]outbox.Option{{test.one, test.other}, {test.other, test.one}} {
			for _, payload := range []bus.Payload{order{}, step{"a", 1}} {
				_, err := a.Producer.Produce(a.Context(), a.DB, payload, options...)
				ordered := errors.Is(err, bus.ErrInvalidOption) && payload != order{} &&
					strings.Contains(err.Error(), "is ordered") // which refuses any delay
				if !errors.Is(err, bus.ErrInvalidOption) || !strings.Contains(err.Error(), test.text) && !ordered {
					t.Errorf("%s, %T: got %v, want %v, %q", name, payload, err, bus.ErrInvalidOption, test.text)
				}
			}
		}
	}
	for name, options := range map[string][]outbox.Option{
		"a delay that ends in time":  {outbox.DeliverBy(time.Now().Add(time.Hour), bus.Discarded), outbox.Delay(time.Minute)},
		"late already, and no delay": {outbox.DeliverBy(time.Now().Add(-time.Hour), bus.Discarded)},
		"due sooner than its quiet":  {soon, outbox.InsertID("d", outbox.Debounce(time.Minute, time.Hour))},
	} {
		if _, err := a.Producer.Produce(a.Context(), a.DB, order{}, options...); err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
		}
	}
}

func TestKeysThatAskForMoreAreChecked(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		a := testapp.New(t, testdb.SQLite(t), testapp.Consumed("c"))
		for name, option := range map[string]outbox.Option{
			"no key":          outbox.InsertID("", outbox.Replace()),
			"no quiet":        outbox.InsertID("k", outbox.Debounce(0, time.Second)),
			"most below":      outbox.InsertID("k", outbox.Debounce(time.Minute, time.Second)),
			"no period":       outbox.InsertID("k", outbox.UniqueFor(0)),
			"two policies":    outbox.InsertID("k", outbox.Replace(), outbox.UniqueFor(time.Hour)),
			"no policy":       outbox.InsertID("k", outbox.DuplicatePolicy{}),
			"period, no key":  func(m *bus.Message) error { m.UniqueFor = time.Hour; return nil },
			"replace, no key": func(m *bus.Message) error { m.Replace = true; return nil },
		} {
			if _, err := a.Producer.Produce(a.Context(), a.DB, order{}, option); !errors.Is(err, bus.ErrInvalidOption) {
				t.Errorf("%s: got %v, want %v", name, err, bus.ErrInvalidOption)
			}
		}
		if n := len(a.Pending()); n != 0 {
			t.Errorf("got %d messages, want 0", n)
		}
	})
	t.Run("mariadb", func(t *testing.T) {
		other := testapp.New(t, testdb.MariaDB(t), testapp.Consumed("c"))
		for _, option := range []outbox.Option{outbox.InsertID("k", outbox.Replace()), outbox.InsertID("k", outbox.UniqueFor(time.Hour))} {
			if _, err := other.Producer.Produce(other.Context(), other.DB, order{}, option); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("on MariaDB: got %v, want %v", err, errors.ErrUnsupported)
			}
		}
	})
}

// TestReplacingNeverFails, however many write the same keys, in whatever batches, beside
// processors and others that produce them.
func TestReplacingNeverFails(t *testing.T) {
	t.Parallel()
	for _, timeout := range []string{"1s", "20ms"} { // whatever the server looks for deadlocks after
		t.Run("deadlock_timeout "+timeout, func(t *testing.T) {
			t.Parallel()
			replaceFromAllSides(t, testdb.OpenPostgres(t, testdb.PostgresDSN(t, "deadlock_timeout="+timeout)))
		})
	}
}

func replaceFromAllSides(t *testing.T, db *bun.DB) {
	a := testapp.New(t, db, testapp.Consumed("c"))
	r := a.Start(testapp.Fast())
	var producers sync.WaitGroup
	for p := range 8 {
		producers.Go(func() {
			for i := range 60 {
				items := make([]outbox.Item, 10)
				for j := range items {
					key := fmt.Sprint("k", (i*7+j*13+p*5)%25)
					option := outbox.InsertID(key, outbox.Debounce(time.Millisecond, 5*time.Millisecond))
					if p%4 == 0 {
						option = outbox.InsertID(key)
					}
					items[j] = outbox.Item{Payload: order{ID: key}, Options: []outbox.Option{option}}
				}
				err := a.Producer.RunInTx(a.Context(), a.DB, func(ctx context.Context, tx bun.Tx) error {
					_, err := a.Producer.ProduceMany(ctx, tx, items...)
					return err
				})
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			}
		})
	}
	producers.Wait()
	testapp.Eventually(t, "nothing waits", a.Empty)
	r.MustStop()
}

// TestAReplacingProducerRepeatsAfterADeadlock in the transaction of the application: what locks the same messages
// the other way round gets on, and then the producer does.
func TestAReplacingProducerRepeatsAfterADeadlock(t *testing.T) {
	t.Parallel()
	a := testapp.New(t, testdb.OpenPostgres(t, testdb.PostgresDSN(t, "deadlock_timeout=20ms")), testapp.Consumed("c"))
	produce := func(ctx context.Context, db bun.IDB) error {
		_, err := a.Producer.ProduceMany(ctx, db,
			outbox.Item{Payload: order{ID: "1"}, Options: []outbox.Option{outbox.InsertID("k1", outbox.Replace())}},
			outbox.Item{Payload: order{ID: "2"}, Options: []outbox.Option{outbox.InsertID("k2", outbox.Replace())}})
		return err
	}
	testapp.OK(t, produce(t.Context(), a.DB))
	// Between the two messages the producer waits until the other session waits for the first one.
	a.Exec(`CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.insert_id = 'k2' THEN PERFORM pg_advisory_xact_lock(7); END IF; RETURN NEW; END $$`)
	a.Exec("CREATE TRIGGER pause BEFORE INSERT ON consumer_messages FOR EACH ROW EXECUTE FUNCTION pause()")
	circuit := testapp.Must[bun.Tx](t)(a.DB.BeginTx(t.Context(), nil))
	other := testapp.Must[bun.Tx](t)(a.DB.BeginTx(t.Context(), nil))
	execute := func(tx bun.Tx, statement string) {
		if _, err := tx.NewRaw(statement).Exec(t.Context()); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	waiting := func(n int) {
		t.Helper()
		testapp.Eventually(t, "sessions wait", func() bool {
			return a.Count("SELECT count(*) FROM pg_locks WHERE NOT granted "+
				"AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())") == n
		})
	}
	execute(circuit, "SELECT pg_advisory_xact_lock(7)")
	execute(other, "SET LOCAL deadlock_timeout = '10min'") // so that it is the producer who finds the deadlock
	execute(other, "SELECT id FROM consumer_messages WHERE insert_id = 'k2' FOR UPDATE")
	produced := make(chan error, 1)
	go func() {
		produced <- a.Producer.RunInTx(t.Context(), a.DB, func(ctx context.Context, tx bun.Tx) error { return produce(ctx, tx) })
	}()
	waiting(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		execute(other, "SELECT id FROM consumer_messages WHERE insert_id = 'k1' FOR UPDATE")
		if err := other.Commit(); err != nil {
			t.Error(err)
		}
	}()
	waiting(2)
	if err := circuit.Commit(); err != nil {
		t.Error(err)
	}
	<-done
	if err := <-produced; err != nil {
		t.Errorf("produce: got %v, want it repeated", err)
	}
	if n := a.Count("SELECT count(*) FROM consumer_messages"); n != 2 {
		t.Errorf("got %d messages, want 2", n)
	}
}

// TestWhatRunsIsNotPostponed: what replaces a message that runs begins anew, so that one that
// is produced all the time runs as often as its bound says.
func TestWhatRunsIsNotPostponed(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var g gauge
		a := newApp(bus.Consume("c", g.work(3*time.Second)))
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		for range 240 {
			a.ProduceAt(ctx, order{ID: "1"}, outbox.InsertID("k", outbox.Debounce(time.Second, 10*time.Second)))
			<-time.After(500 * time.Millisecond)
		}
		testapp.Sooner(t, "nothing waits", a.Empty)
		r.MustStop()
		if g.runs.Load() < 10 || g.runs.Load() > 13 || g.most.Load() != 1 {
			t.Errorf("got %d runs, up to %d at once, want 12 in two minutes, one after the other", g.runs.Load(), g.most.Load())
		}
	})
}

// TestAConsumerReplacesItsOwnMessage in its transaction, which removes the old one.
func TestAConsumerReplacesItsOwnMessage(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		var a *app
		a = testapp.New(t, db, outbox.ConsumeTx("c", func(ctx context.Context, tx bun.Tx, o order) error {
			if runs.Add(1); o.N > 0 {
				return nil
			}
			_, err := a.Producer.Produce(ctx, tx, order{ID: "next", N: 1}, outbox.InsertID("k", outbox.Replace()))
			return err
		}, bus.MaxAttempts(1)))
		a.Produce(order{ID: "first"}, outbox.InsertID("k"))
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "nothing waits", a.Empty)
		r.MustStop()
		if runs.Load() != 2 || len(a.Poisoned()) > 0 {
			t.Errorf("got %d runs and %+v poisoned, want the message and the one that replaced it", runs.Load(), a.Poisoned())
		}
	})
}

// TestARenamedConsumerReplacesItsOwnMessage, which is stored under the consumer's former name.
func TestARenamedConsumerReplacesItsOwnMessage(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		testapp.New(t, db, testapp.Consumed("former")).Produce(order{ID: "first"}, outbox.InsertID("k"))
		var runs atomic.Int64
		var a *app
		a = testapp.New(t, db, outbox.ConsumeTx("c", func(ctx context.Context, tx bun.Tx, o order) error {
			if runs.Add(1); o.N > 0 {
				return nil
			}
			_, err := a.Producer.Produce(ctx, tx, order{ID: "next", N: 1}, outbox.InsertID("k", outbox.Replace()))
			return err
		}, bus.MaxAttempts(1), bus.Aliases("former")))
		a.Start(testapp.Fast())
		testapp.Eventually(t, "nothing waits", a.Empty)
		if runs.Load() != 2 || len(a.Poisoned()) > 0 {
			t.Errorf("got %d runs and %+v poisoned, want the message and the one that replaced it", runs.Load(), a.Poisoned())
		}
	})
}

// TestReplacingKeepsCrashes: a payload that kills processes does not look new each time.
func TestReplacingKeepsCrashes(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		a.Produce(order{ID: "1"}, outbox.InsertID("k"))
		a.Exec("UPDATE consumer_messages SET crashes = 2, attempts = 3")
		a.Produce(order{ID: "2"}, outbox.InsertID("k", outbox.Replace()))
		if row := a.Pending()[0]; row.Crashes != 2 || row.Attempts != 0 {
			t.Errorf("got %+v, want the crashes, and no attempts", row)
		}
	})
}

// TestReplaceTakesTheNewPriority, also where the new message has none.
func TestReplaceTakesTheNewPriority(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c", bus.Prioritized(time.Minute)))
		for _, test := range []struct {
			options []outbox.Option
			urgent  bool
		}{{[]outbox.Option{outbox.Priority(bus.Urgent)}, true}, {nil, false}, {[]outbox.Option{outbox.Priority(bus.Urgent)}, true}} {
			a.Produce(order{ID: "1"}, append(test.options, outbox.InsertID("k", outbox.Replace()))...)
			if got := a.Count("SELECT COALESCE(MAX(priority), 0) FROM consumer_messages"); (got > 0) != test.urgent {
				t.Errorf("stored priority: got %d, want that it is urgent: %t", got, test.urgent)
			}
		}
	})
}
