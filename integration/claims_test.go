package integration_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

type slowJob struct {
	ID string `json:"id"`
}

func (slowJob) PayloadType() string { return "slow" }

func storeOf(t testing.TB, db *bun.DB) *store.Store {
	t.Helper()
	s, err := store.For(db.Dialect().Name(), bus.Tables{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fill fills the table with due messages of consumer c.
func (a *app) fill(rows int, payloadType string) {
	a.Helper()
	const columns = "INSERT INTO consumer_messages (message_id, consumer_type, payload_type, payload, created_at, available_after) "
	for start := 0; start < rows; start += 20_000 {
		switch a.db.Dialect().Name() {
		case dialect.PG:
			a.exec(columns+"SELECT gen_random_uuid(), 'c', ?, '{}', now(), now() - interval '1 day' + i * interval '1 ms' FROM generate_series(?::int, ?::int) i", payloadType, start, start+19_999)
		case dialect.SQLite:
			a.exec(columns+`WITH RECURSIVE n(i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n WHERE i < ?)
				SELECT printf('%032d', i), 'c', ?, '{}', 0, i FROM n`, start, start+19_999, payloadType)
		default:
			a.exec(columns+"SELECT UUID(), 'c', ?, '{}', 0, seq + ? FROM seq_1_to_20000", payloadType, start)
		}
	}
}

// quickest is the least time of several runs.
func quickest(t *testing.T, run func() error) time.Duration {
	t.Helper()
	least := time.Hour
	for range 15 {
		began := time.Now()
		if err := run(); err != nil {
			t.Fatal(err)
		}
		least = min(least, time.Since(began))
	}
	return least
}

// TestForeignMessagesAreInNobodysWay: what a consumer no longer takes costs neither its
// own messages nor those of others anything.
func TestForeignMessagesAreInNobodysWay(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db, consumed("c"), consumed("d"))
		a.fill(200_000, "old")
		s, ctx := storeOf(t, db), t.Context()
		wants := []store.Want{{Consumer: "c", Payload: "order.placed", Limit: 10}, {Consumer: "d", Payload: "order.placed", Limit: 10}}
		probe := quickest(t, func() error { _, err := s.Probe(ctx, db, wants); return err })
		claim := quickest(t, func() error {
			_, err := s.Claim(ctx, db, store.ClaimRequest{Owner: "o", Lease: time.Minute, Wants: wants, MaxBytes: 1})
			return err
		})
		if limit := 25 * time.Millisecond; probe > limit || claim > limit {
			t.Errorf("behind 200,000 foreign messages: probe %s, claim %s, want less than %s each", probe, claim, limit)
		}
	})
}

// TestDeadEntriesAreNotWalkedByEveryLook: while somebody's snapshot keeps vacuum from
// clearing up, only sweeps pay for that, which are rare when they take long.
func TestDeadEntriesAreNotWalkedByEveryLook(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var ran atomic.Int64
	a := newApp(t, db, bus.Consume("c", func(context.Context, order) error { ran.Add(1); return nil }))
	pin, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pin.Rollback() //nolint:errcheck // nothing is written
	if _, err := pin.ExecContext(t.Context(), "DECLARE pinned CURSOR FOR SELECT 1 FROM consumer_messages"); err != nil {
		t.Fatal(err)
	}
	a.fill(400_000, "order.placed")
	a.exec("DELETE FROM consumer_messages")
	var sent queries
	b := *a
	b.db = db.WithQueryHook(sent.hook())
	b.start(fast())
	looks := func() (all, fromTheStart int) {
		return sent.count("available_after <="), sent.count("available_after <=", "-infinity")
	}
	eventually(t, "two looks are over", func() bool { all, _ := looks(); return all >= 3 })
	const messages = 30
	before, walkedBefore := looks()
	for i := range messages {
		a.produceUnannounced()
		eventually(t, "it ran", func() bool { return ran.Load() == int64(i+1) })
	}
	all, walked := looks()
	if all, walked = all-before, walked-walkedBefore; walked > all/3 {
		t.Errorf("looks that walked what is dead: got %d of %d, want a few sweeps", walked, all)
	}
}

// produceUnannounced produces in a transaction of which nobody here sees the commit.
func (a *app) produceUnannounced() {
	a.Helper()
	err := a.db.RunInTx(a.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := a.producer.Produce(a.Context(), tx, order{ID: "1"})
		return err
	})
	if err != nil {
		a.Fatal(err)
	}
}

// TestLateCommitsAreFound: a message may be committed long after it is due.
func TestLateCommitsAreFound(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var ran atomic.Int64
		a := newApp(t, db, counting("c", &ran))
		a.start(fast())
		a.produceMany(10)
		eventually(t, "the others ran", func() bool { return ran.Load() == 10 })
		past := "now() - interval '1 hour'"
		if db.Dialect().Name() != dialect.PG {
			past = nowOf(db) + " - 3600000000"
		}
		err := a.producer.RunInTx(t.Context(), db, func(ctx context.Context, tx bun.Tx) error {
			if _, err := a.producer.Produce(ctx, tx, order{ID: "late"}); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "UPDATE consumer_messages SET available_after = "+past)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the late one ran", func() bool { return ran.Load() == 11 })
	})
}

// Not parallel: it measures what a claim allocates.
func TestAClaimReadsNoMoreThanItTakes(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const each, messages = 200 << 10, 150
		a := newApp(t, db, consumed("c"))
		a.produceMany(messages)
		text := strings.Repeat("x", each)
		for _, column := range []string{"errors", "headers"} {
			a.exec("UPDATE consumer_messages SET errors = NULL, headers = NULL")
			a.exec("UPDATE consumer_messages SET "+column+" = ?", text)
			request := store.ClaimRequest{Owner: column, Lease: time.Minute, MaxBytes: 4*each + 1000, Wants: []store.Want{{Consumer: "c", Payload: "order.placed", Limit: messages}}}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			c, err := storeOf(t, db).Claim(t.Context(), db, request)
			runtime.ReadMemStats(&after)
			if err != nil || len(c.Messages) != 4 || !c.Cut {
				t.Fatalf("claim: got %d messages, cut %t, %v, want 4 and the others left", len(c.Messages), c.Cut, err)
			}
			if got := len(c.Messages[3].Errors) + len(c.Messages[3].Headers); got != each {
				t.Errorf("%s of a claimed message: got %d bytes, want all %d", column, got, each)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > messages*each/2 {
				t.Errorf("%s: a claim of 4 allocated %d MiB, want little more than it brings", column, allocated>>20)
			}
			a.exec("DELETE FROM message_claims")
		}
	})
}

// TestQueuesOfManyConsumers: one statement, however many names there are.
func TestQueuesOfManyConsumers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db, consumed("c"), consumed("d"))
		a.produceMany(3)
		names := []string{"c", "d"}
		for i := range 10_000 {
			names = append(names, fmt.Sprintf("idle-%05d", i))
		}
		began := time.Now()
		stats, err := storeOf(t, db).Stats(t.Context(), db, names)
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(map[string]int64)
		for _, s := range stats {
			waiting[s.Consumer] = s.Ready
		}
		if len(stats) != len(names) || waiting["c"] != 3 || waiting["d"] != 3 || waiting["idle-00007"] != 0 {
			t.Errorf("stats: got %d rows, %d and %d ready, want %d rows and 3 each", len(stats), waiting["c"], waiting["d"], len(names))
		}
		t.Logf("10,002 consumers: %s", time.Since(began))
	})
}

// TestInnocentsComeBackAtFullSpeed: whatever was in flight in a process that vanished
// is done within a second after its lease.
func TestInnocentsComeBackAtFullSpeed(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
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
			if _, err := a.producer.ProduceMany(ctx, a.db, items...); err != nil {
				t.Fatal(err)
			}
			for range max(test.messages/100, 1) {
				a.vanish(ctx, lease, false)
			}
			killed := time.Now()
			r := a.startWith(ctx, outbox.ProcessorConfig{})
			poll(t, "all are done", time.Hour, 50*time.Millisecond, a.empty)
			if took := time.Since(killed); took > lease+test.within {
				t.Errorf("%d in flight: done after %s, want at most the lease of %s and %s", test.messages, took, lease, test.within)
			}
			r.mustStop()
		}
	})
}

// TestASuspectThatRunsLongHoldsUpNobody: neither what has crashed once or twice nor what
// runs for long keeps others from running.
func TestASuspectThatRunsLongHoldsUpNobody(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var ran, suspects atomic.Int64
		a := newApp(bus.Consume("long", func(_ context.Context, j slowJob) error {
			if suspects.Add(1); j.ID == "long" {
				<-time.After(4 * time.Minute)
			}
			return nil
		}, bus.Timeout(time.Hour)), bus.Consume("quick", func(context.Context, order) error { ran.Add(1); return nil }))
		a.produceAt(ctx, slowJob{ID: "long"}) // clean
		r := a.startWith(ctx, outbox.ProcessorConfig{})
		sooner(t, "the long run has begun", func() bool { return suspects.Load() == 1 })
		a.produceAt(ctx, slowJob{ID: "long"}, outbox.Delay(time.Second))
		for range 20 {
			a.produceAt(ctx, slowJob{ID: "short"}, outbox.Delay(time.Second))
		}
		a.exec("UPDATE consumer_messages SET crashes = CASE WHEN payload LIKE '%long%' THEN 2 ELSE 1 END WHERE available_after > ?", time.Now().UnixMicro())
		var worst time.Duration
		for i := range 40 {
			began := time.Now()
			a.produceAt(ctx, order{ID: "1"})
			poll(t, "it ran", time.Hour, 5*time.Millisecond, func() bool { return ran.Load() == int64(i+1) })
			worst = max(worst, time.Since(began))
			<-time.After(5 * time.Second)
		}
		if worst > 100*time.Millisecond {
			t.Errorf("others waited for up to %s, want to run at once", worst)
		}
		if got := suspects.Load(); got != 22 {
			t.Errorf("suspects that ran or run: got %d, want all 22", got)
		}
		sooner(t, "all is done", a.empty)
		r.mustStop()
	})
}

// TestASlowConsumerDelaysNobody: however much waits for slow consumers, others find a
// free worker.
func TestASlowConsumerDelaysNobody(t *testing.T) {
	for slow := 1; slow <= 2; slow++ {
		t.Run(fmt.Sprint(slow), func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var ran atomic.Int64
				consumers := []bus.Consumer{counting("quick", &ran)}
				for i := range slow {
					consumers = append(consumers, bus.Consume(fmt.Sprint("slow-", i), func(context.Context, slowJob) error {
						<-time.After(8 * time.Second)
						return nil
					}))
				}
				a := newApp(consumers...)
				for range 300 {
					a.produceAt(ctx, slowJob{ID: "1"})
				}
				r := a.startWith(ctx, outbox.ProcessorConfig{})
				sooner(t, "the slow ones run", func() bool { return r.Stats().Running >= 56 })
				var worst time.Duration
				for i := range 40 {
					began := time.Now()
					a.produceAt(ctx, order{ID: "1"})
					poll(t, "it ran", time.Hour, 5*time.Millisecond, func() bool { return ran.Load() == int64(i+1) })
					worst = max(worst, time.Since(began))
					<-time.After(500 * time.Millisecond)
				}
				if worst > 100*time.Millisecond {
					t.Errorf("the quick one waited for up to %s, want to run at once", worst)
				}
				sooner(t, "all is done", a.empty)
				r.mustStop()
			})
		})
	}
}

// TestAFreshProcessLetsOwnersRenew: a process that starts as an outage ends charges
// nobody whose lease has run out meanwhile.
func TestAFreshProcessLetsOwnersRenew(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		a := newApp(consumed("c"))
		a.produceAt(ctx, order{ID: "1"})
		a.vanish(ctx, 3*time.Second, false)
		<-time.After(10 * time.Second) // an outage
		r := a.startWith(ctx, outbox.ProcessorConfig{LeaseDuration: 3 * time.Second})
		<-time.After(1500 * time.Millisecond)
		if held, err := storeOf(t, a.db).Extend(ctx, a.db, "vanished", time.Minute); err != nil || len(held) != 1 {
			t.Fatalf("renewal right after the outage: got %v, %v, want the claim", held, err)
		}
		<-time.After(10 * time.Second)
		if rows := a.pending(); len(rows) != 1 || rows[0].Crashes != 0 {
			t.Errorf("pending: got %+v, want the message without a crash", rows)
		}
		r.mustStop()
	})
}

// TestMinDelayIsForFullClaims: the wait after a claim is for those that came back full,
// and a wake-up ends it.
func TestMinDelayIsForFullClaims(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var ran atomic.Int64
		a := newApp(counting("c", &ran))
		const delay = 2 * time.Second
		r := a.startWith(ctx, outbox.ProcessorConfig{ClaimPause: delay, PollInterval: delay, Concurrency: 4})
		for i := range 10 {
			for range []int{1, 4}[i%2] {
				a.produceAt(ctx, order{ID: "1"})
			}
			<-time.After(100 * time.Millisecond)
			if !a.empty() {
				t.Fatalf("round %d: 100ms after a commit was announced: got it pending, want it done", i)
			}
		}
		r.mustStop()
	})
}

// queries records what is sent.
type queries struct {
	mu   sync.Mutex
	sent []string
}

func (q *queries) hook() bun.QueryHook {
	return queryHook{func(_ context.Context, query string) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.sent = append(q.sent, query)
	}}
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
	virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var ran atomic.Int64
		a := newApp(counting("taker", &ran), bus.Consume("idle", func(context.Context, refund) error { return nil }))
		var sent queries
		b := *a
		b.db = a.db.WithQueryHook(sent.hook())
		r := b.startWith(ctx, outbox.ProcessorConfig{})
		<-time.After(time.Second)
		const messages = 300
		before := sent.count("idle", "AS kind")
		began := time.Now()
		for range messages {
			err := a.db.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error {
				_, err := a.producer.Produce(ctx, tx, order{ID: "1"})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(10 * time.Millisecond)
		}
		seconds := int(time.Since(began) / time.Second)
		sooner(t, "all are done", func() bool { return ran.Load() == messages })
		if got := sent.count("idle", "AS kind") - before; got > 2*seconds {
			t.Errorf("polls for everybody: got %d in %d s, want about one a second", got, seconds)
		}
		r.mustStop()
	})
}

// TestUnregisteredMessagesAreReportedOnce: once for each kind, not every minute.
func TestUnregisteredMessagesAreReportedOnce(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		a := newApp(consumed("c"))
		a.produceAt(ctx, order{ID: "1"})
		a.exec("UPDATE consumer_messages SET consumer_type = 'gone'")
		var log syncBuffer
		r := a.startWith(ctx, outbox.ProcessorConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		<-time.After(10 * time.Minute)
		if got := strings.Count(log.String(), "no consumer registered here takes"); got != 1 {
			t.Errorf("warnings in ten minutes: got %d, want one", got)
		}
		r.mustStop()
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
	a := newApp(t, testdb.OpenPostgres(t, dsn), counting("c", &ran))
	a.produce(order{ID: "1"})
	connector, err := a.db.DB.Driver().(driver.DriverContext).OpenConnector(dsn)
	if err != nil {
		t.Fatal(err)
	}
	late := &reluctant{Connector: connector}
	late.refuses.Store(4)
	conns := sql.OpenDB(late)
	t.Cleanup(func() { _ = conns.Close() })
	a.db = bun.NewDB(conns, pgdialect.New())
	hasty := must[*outbox.Processor](t)(outbox.NewProcessor(a.db, a.registry, outbox.ProcessorConfig{}))
	if err := hasty.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("run without a start timeout: got %v, want the error at once", err)
	}
	config := fast()
	config.StartTimeout = time.Minute
	r := a.start(config)
	eventually(t, "it ran", func() bool { return ran.Load() == 1 })
	r.mustStop()
}
