package outbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

type slowJob struct {
	ID string `json:"id"`
}

func (slowJob) PayloadType() string { return "slow" }

// TestPollsSkipDeadIndexEntries: while somebody's snapshot keeps vacuum from
// clearing up, only sweeps pay for that, which are rare when they take long.
// Promise: held-up
func TestPollsSkipDeadIndexEntries(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var ran atomic.Int64
	a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { ran.Add(1); return nil }))
	pin := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
	defer pin.Rollback() //nolint:errcheck // nothing is written
	testapp.OK(t, testapp.Second(pin.ExecContext(t.Context(), "DECLARE pinned CURSOR FOR SELECT 1 FROM consumer_messages")))
	a.Fill(100_000, "order.placed")
	a.Exec("DELETE FROM consumer_messages")
	var sent queries
	b := *a
	b.DB = db.WithQueryHook(sent.hook())
	b.Start(testapp.Fast())
	looks := func() (all, fromTheStart int) {
		return sent.count("available_after <="), sent.count("available_after <=", "-infinity")
	}
	testapp.Eventually(t, "two looks are over", func() bool { all, _ := looks(); return all >= 3 })
	const messages = 30
	before, walkedBefore := looks()
	for i := range messages {
		produceUnannounced(a)
		testapp.Eventually(t, "it ran", func() bool { return ran.Load() == int64(i+1) })
	}
	all, walked := looks()
	if all, walked = all-before, walked-walkedBefore; walked > all/3 {
		t.Errorf("looks that walked what is dead: got %d of %d, want a few sweeps", walked, all)
	}
}

// TestLooksFollowABacklogOfKeys: what a backlog leaves dead is not walked again by each look.
func TestLooksFollowABacklogOfKeys(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	const messages = 6000
	var ran atomic.Int64
	a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { ran.Add(1); return nil }, bus.Ordered(bus.SkipPoisoned)))
	for i := range messages / 1000 {
		items := make([]outbox.Item, 1000)
		for j := range items {
			items[j] = outbox.Item{Payload: order{ID: "1"}, Options: []outbox.Option{outbox.OrderingKey(fmt.Sprint(i*1000 + j))}}
		}
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, items...))
	}
	var last int64
	testapp.OK(t, db.NewRaw("SELECT max(rank) FROM consumer_messages").Scan(t.Context(), &last))
	var sent queries
	b := *a
	b.DB = db.WithQueryHook(sent.hook())
	config := testapp.Fast()
	config.BatchSize = 500 // many claims, however busy the machine
	b.Start(config)
	testapp.Eventually(t, "all ran", func() bool { return ran.Load() == messages })
	var furthest int64
	testapp.Eventually(t, fmt.Sprintf("a look that begins behind rank %d or later", last-messages/2), func() bool {
		for _, m := range regexp.MustCompile(`m\.rank > (\d+)[^0-9]`).FindAllStringSubmatch(strings.Join(sent.all(), "\n"), -1) {
			furthest = max(furthest, testapp.Must[int64](t)(strconv.ParseInt(m[1], 10, 64)))
		}
		return furthest >= last-messages/2
	})
}

// produceUnannounced produces in a transaction of which nobody here sees the commit.
func produceUnannounced(a *app) {
	a.Helper()
	err := a.DB.RunInTx(a.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := a.Producer.Produce(a.Context(), tx, order{ID: "1"})
		return err
	})
	if err != nil {
		a.Fatal(err)
	}
}

// TestLateCommitsAreFound: a message may be committed long after it is due.
// Promise: at-least-once, due-starts
func TestLateCommitsAreFound(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var ran atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &ran))
		a.Start(testapp.Fast())
		a.ProduceMany(10)
		testapp.Eventually(t, "the others ran", func() bool { return ran.Load() == 10 })
		past := "now() - interval '1 hour'"
		if db.Dialect().Name() != dialect.PG {
			past = testapp.NowOf(db) + " - 3600000000"
		}
		err := db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			if _, err := a.Producer.Produce(ctx, tx, order{ID: "late"}); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "UPDATE consumer_messages SET available_after = "+past)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		testapp.Eventually(t, "the late one ran", func() bool { return ran.Load() == 11 })
	})
}

// TestWhatIsOldIsFoundBehindSlowLooks: where looks from the very beginning take too long,
// what is old is found in parts, from the newest back, and no error is told of.
func TestWhatIsOldIsFoundBehindSlowLooks(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var ran, slow atomic.Int64
	var log testapp.Lines
	a := testapp.New(t, db, testapp.Counting("c", &ran))
	a.ProduceMany(2)
	a.Exec("UPDATE consumer_messages SET available_after = now() - interval '1 hour' * id * id") // 1 hour and 4 hours
	b := *a
	b.DB = db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
		if strings.Contains(query, "-infinity") && !strings.Contains(query, "FOR UPDATE") {
			slow.Add(1)
			<-time.After(2 * time.Second)
		}
	}))
	config := testapp.Fast()
	config.Logger = log.Logger()
	b.Start(config)
	testapp.Eventually(t, "both ran", func() bool { return ran.Load() == 2 })
	if text := log.String(); slow.Load() == 0 || strings.Contains(text, "level=ERROR") {
		t.Errorf("got %d slow looks and the log %q, want some and no error", slow.Load(), text)
	}
}

// TestInnocentsComeBackAtFullSpeed: whatever was in flight in a process that vanished
// is done within a second after its lease.
func TestInnocentsComeBackAtFullSpeed(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		const lease = 30 * time.Second
		for _, test := range []struct {
			messages int
			within   time.Duration
		}{{64, time.Second}, {2000, 5 * time.Second}} {
			a := newApp(bus.Consume("c", func(context.Context, order) error {
				<-time.After(50 * time.Millisecond)
				return nil
			}))
			items := slices.Repeat([]outbox.Item{{Payload: order{ID: "1"}}}, test.messages)
			testapp.OK(t, testapp.Second(a.Producer.ProduceMany(ctx, a.DB, items...)))
			for range max(test.messages/100, 1) {
				vanish(ctx, a, lease, false)
			}
			killed := time.Now()
			r := a.StartWith(ctx, outbox.ProcessorConfig{})
			testapp.Poll(t, "all are done", time.Hour, 50*time.Millisecond, a.Empty)
			if took := time.Since(killed); took > lease+test.within {
				t.Errorf("%d in flight: done after %s, want at most the lease of %s and %s", test.messages, took, lease, test.within)
			}
			r.MustStop()
		}
	})
}

// TestALongRunOfASuspectDoesNotDelayOthers: neither what has crashed once or twice nor what
// runs for long keeps others from running.
// Promise: suspects
func TestALongRunOfASuspectDoesNotDelayOthers(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var ran, suspects atomic.Int64
		a := newApp(bus.Consume("long", func(_ context.Context, j slowJob) error {
			if suspects.Add(1); j.ID == "long" {
				<-time.After(4 * time.Minute)
			}
			return nil
		}, bus.Timeout(time.Hour)), bus.Consume("quick", func(context.Context, order) error { ran.Add(1); return nil }))
		a.ProduceAt(ctx, slowJob{ID: "long"}) // clean
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		testapp.Sooner(t, "the long run has begun", func() bool { return suspects.Load() == 1 })
		a.ProduceAt(ctx, slowJob{ID: "long"}, outbox.Delay(time.Second))
		for range 20 {
			a.ProduceAt(ctx, slowJob{ID: "short"}, outbox.Delay(time.Second))
		}
		a.Exec("UPDATE consumer_messages SET crashes = CASE WHEN payload LIKE '%long%' THEN 2 ELSE 1 END WHERE available_after > ?",
			time.Now().UnixMicro())
		var worst time.Duration
		for i := range 40 {
			began := time.Now()
			a.ProduceAt(ctx, order{ID: "1"})
			testapp.Poll(t, "it ran", time.Hour, 5*time.Millisecond, func() bool { return ran.Load() == int64(i+1) })
			worst = max(worst, time.Since(began))
			<-time.After(5 * time.Second)
		}
		if worst > 100*time.Millisecond {
			t.Errorf("others waited for up to %s, want to run at once", worst)
		}
		if got := suspects.Load(); got != 22 {
			t.Errorf("suspects that ran or run: got %d, want all 22", got)
		}
		testapp.Sooner(t, "all is done", a.Empty)
		r.MustStop()
	})
}

// TestASlowConsumerDoesNotDelayOthers: however much waits for slow consumers, others find a
// free worker.
// Promise: held-up
func TestASlowConsumerDoesNotDelayOthers(t *testing.T) {
	for slow := 1; slow <= 2; slow++ {
		t.Run(fmt.Sprint(slow), func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var ran atomic.Int64
				consumers := []bus.Consumer{testapp.Counting("quick", &ran)}
				for i := range slow {
					consumers = append(consumers, bus.Consume(fmt.Sprint("slow-", i), func(context.Context, slowJob) error {
						<-time.After(8 * time.Second)
						return nil
					}))
				}
				a := newApp(consumers...)
				for range 300 {
					a.ProduceAt(ctx, slowJob{ID: "1"})
				}
				r := a.StartWith(ctx, outbox.ProcessorConfig{})
				testapp.Sooner(t, "the slow ones run", func() bool { return r.Stats().Running >= 56 })
				var worst time.Duration
				for i := range 40 {
					began := time.Now()
					a.ProduceAt(ctx, order{ID: "1"})
					testapp.Poll(t, "it ran", time.Hour, 5*time.Millisecond, func() bool { return ran.Load() == int64(i+1) })
					worst = max(worst, time.Since(began))
					<-time.After(500 * time.Millisecond)
				}
				if worst > 100*time.Millisecond {
					t.Errorf("the quick one waited for up to %s, want to run at once", worst)
				}
				testapp.Sooner(t, "all is done", a.Empty)
				r.MustStop()
			})
		})
	}
}

// TestAFreshProcessLetsOwnersRenew: a process that starts as an outage ends charges
// nobody whose lease has run out meanwhile.
func TestAFreshProcessLetsOwnersRenew(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		a := newApp(testapp.Consumed("c"))
		a.ProduceAt(ctx, order{ID: "1"})
		vanish(ctx, a, 3*time.Second, false)
		<-time.After(10 * time.Second) // an outage
		r := a.StartWith(ctx, outbox.ProcessorConfig{LeaseDuration: 3 * time.Second})
		<-time.After(1500 * time.Millisecond)
		if held, err := testapp.Must[*store.Store](t)(store.For(a.DB.Dialect().Name(), bus.Tables{})).Claims.Extend(ctx, a.DB, "vanished",
			3*time.Second); err != nil || len(held) != 1 {
			t.Fatalf("renewal right after the outage: got %v, %v, want the claim", held, err)
		}
		<-time.After(2500 * time.Millisecond)
		if rows := a.Pending(); len(rows) != 1 || rows[0].Crashes != 0 {
			t.Errorf("pending: got %+v, want the message without a crash", rows)
		}
		r.MustStop()
	})
}

// queries records what is sent.
type queries struct {
	mu   sync.Mutex
	sent []string
}

func (q *queries) hook() bun.QueryHook {
	return testapp.QueryHook(func(_ context.Context, query string) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.sent = append(q.sent, query)
	})
}

func (q *queries) all() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.sent)
}

func (q *queries) count(parts ...string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, query := range q.sent {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(query, part) }) {
			n++
		}
	}
	return n
}

// TestExpectedMessagesArePolledForByType: who produces in transactions of their own has
// only the consumers of that payload type looked for, however many there are.
func TestExpectedMessagesArePolledForByType(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var ran atomic.Int64
		a := newApp(testapp.Counting("taker", &ran), bus.Consume("idle", func(context.Context, refund) error { return nil }))
		var sent queries
		b := *a
		b.DB = a.DB.WithQueryHook(sent.hook())
		r := b.StartWith(ctx, outbox.ProcessorConfig{})
		<-time.After(time.Second)
		const messages = 300
		before := sent.count("idle", "AS kind")
		began := time.Now()
		for range messages {
			err := a.DB.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error {
				_, err := a.Producer.Produce(ctx, tx, order{ID: "1"})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(10 * time.Millisecond)
		}
		seconds := int(time.Since(began) / time.Second)
		testapp.Sooner(t, "all are done", func() bool { return ran.Load() == messages })
		if got := sent.count("idle", "AS kind") - before; got > 2*seconds {
			t.Errorf("polls for everybody: got %d in %d s, want about one a second", got, seconds)
		}
		r.MustStop()
	})
}

// reluctant refuses the first connections, as a server does that is starting.
type reluctant struct {
	driver.Connector
	refuses atomic.Int64
}

func (r *reluctant) Connect(ctx context.Context) (driver.Conn, error) {
	if r.refuses.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	return r.Connector.Connect(ctx)
}

func TestRunWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	var ran atomic.Int64
	a := testapp.New(t, testdb.OpenPostgres(t, dsn), testapp.Counting("c", &ran))
	a.Produce(order{ID: "1"})
	connector := testapp.Must[driver.Connector](t)(a.DB.DB.Driver().(driver.DriverContext).OpenConnector(dsn))
	late := &reluctant{Connector: connector}
	late.refuses.Store(4)
	conns := sql.OpenDB(late)
	t.Cleanup(func() { _ = conns.Close() })
	a.DB = bun.NewDB(conns, pgdialect.New())
	hasty := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(a.DB, a.Registry, outbox.ProcessorConfig{}))
	if err := hasty.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("run without a start timeout: got %v, want the error at once", err)
	}
	config := testapp.Fast()
	config.StartTimeout = time.Minute
	r := a.Start(config)
	testapp.Eventually(t, "it ran", func() bool { return ran.Load() == 1 })
	r.MustStop()
}
