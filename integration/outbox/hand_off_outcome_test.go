package outbox_test

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestHandOffOfAnUnknownCommit: the answer to a commit is lost. Its messages run once, and none counts
// as crashed, though nothing else has the processor look for its claims.
func TestHandOffOfAnUnknownCommit(t *testing.T) {
	t.Parallel()
	proxy, db, past := proxied(t)
	p := newProducing(t, db, past)
	r := p.Start(handOffConfig())
	p.warm()
	var claimed atomic.Bool
	proxy.Decide(func(sql string) chaos.Fault {
		if isHandOff(sql) {
			claimed.Store(true)
		} else if strings.EqualFold(sql, "commit") && claimed.CompareAndSwap(true, false) {
			return chaos.DropReply
		}
		return chaos.Forward
	})
	if err := p.inTx(t.Context(), 1, nil); err == nil {
		t.Error("got no error of a commit whose answer was lost")
	}
	proxy.Decide(func(string) chaos.Fault { return chaos.Forward })
	p.once(1)
	r.MustStop()
	if s := r.Stats(); s.Crashed+s.Recovered > 0 {
		t.Errorf("got %d crashes and %d recovered claims, want the claim given back", s.Crashed, s.Recovered)
	}
}

// TestHandOffOfACommitThatTheServerIsStillAt: the connection is lost while the commit waits in the
// server. It commits later than the processor's first look for unknown claims.
func TestHandOffOfACommitThatTheServerIsStillAt(t *testing.T) {
	t.Parallel()
	proxy, db, past := proxied(t)
	p := newProducing(t, db, past)
	config := handOffConfig()
	config.LeaseDuration = 4 * time.Second
	r := p.Start(config)
	p.warm()
	h := p.hang()
	failed := make(chan error, 1)
	begun := time.Now()
	go func() { failed <- p.inTx(context.WithoutCancel(t.Context()), 10_000, nil) }()
	h.waits(1)
	proxy.Reset()
	if err := <-failed; err == nil {
		t.Error("got no error of a commit whose connection was lost")
	}
	<-time.After(config.LeaseDuration*5/8 - time.Since(begun)) // after two looks of the keeper
	h.free()
	if p.once(10_000) {
		t.Error("the message ran under a claim whose commit was not confirmed")
	}
	r.MustStop()
	if s := r.Stats(); s.Crashed+s.Recovered > 0 {
		t.Errorf("got %d crashes and %d recovered claims, want the claim given back", s.Crashed, s.Recovered)
	}
}

// TestHandOffOfACommitThatOnlySeemsToBeDone: the server ends the session of a transactional consumer at its commit, and a
// producer replaces the consumer's message before the processor looks for it.
func TestHandOffOfACommitThatOnlySeemsToBeDone(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var claims atomic.Int64
	var replaced atomic.Pointer[chan struct{}]
	hooked := db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
		if isHandOff(query) {
			claims.Add(1)
		} else if done := replaced.Load(); done != nil && strings.HasPrefix(query, "SELECT id FROM") { // it looks for the message
			<-*done
		}
	}))
	past := testdb.OpenPostgres(t, directDSN(t, db))
	p := newProducing(t, hooked, past)
	producer := p.Producer
	p.App = testapp.New(t, hooked, bus.Consume("c", p.consume),
		outbox.ConsumeTx("first", func(ctx context.Context, tx bun.Tx, r testapp.Refund) error {
			n, err := strconv.Atoi(r.ID)
			if err != nil {
				return err
			}
			return testapp.Second(producer.Produce(ctx, tx, order{N: n}))
		}))
	producer = p.Producer
	config := handOffConfig()
	config.LeaseDuration = 20 * time.Second // a commit that takes a quarter of it hands nothing over
	r := p.Start(config)
	p.warm()
	h := p.hang()
	for n, claimed := 0, false; !claimed; {
		n++
		before := claims.Load()
		p.Produce(testapp.Refund{ID: fmt.Sprint(10_000 + n)}, outbox.InsertID("it"))
		h.waits(1)
		claimed = claims.Load() > before
		done := make(chan struct{})
		replaced.Store(&done)
		go func() {
			defer close(done)
			_, err := producer.Produce(context.WithoutCancel(t.Context()), past, testapp.Refund{ID: fmt.Sprint(n)},
				outbox.InsertID("it", outbox.Replace()))
			if err != nil {
				t.Error(err)
			}
		}()
		testapp.Eventually(t, "the producer waits for the row", func() bool {
			return p.look("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple') AND pid IN "+ofThis) > 0
		})
		p.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted AND locktype = 'advisory' AND pid IN " + ofThis)
		<-done
		p.once(n)
	}
	h.free()
	r.MustStop()
}

// ofThis are the sessions of this database.
const ofThis = "(SELECT pid FROM pg_stat_activity WHERE datname = current_database())"

// TestHandOffOfACommitPastTheStop: a commit hangs while the processor stops. Run returns in time, and
// another process consumes what commits later.
func TestHandOffOfACommitPastTheStop(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	past := testdb.OpenPostgres(t, directDSN(t, db))
	p := newProducing(t, db, past)
	config := handOffConfig()
	config.DrainTimeout, config.LeaseDuration = time.Second, 20*time.Second
	r := p.Start(config)
	p.warm()
	h := p.hang()
	ended := make(chan error, 1)
	go func() { ended <- p.inTx(context.WithoutCancel(t.Context()), 10_000, nil) }()
	h.waits(1)
	begun := time.Now()
	r.MustStop()
	if took := time.Since(begun); took < config.DrainTimeout || took > config.DrainTimeout+3*time.Second {
		t.Errorf("stop took %s, want DrainTimeout, %s", took, config.DrainTimeout)
	}
	other := *p.App
	other.DB = past
	second := other.Start(config)
	h.free()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if p.once(10_000) {
		t.Error("the message ran under the claim of its transaction, want it given back")
	}
	second.MustStop()
	if s := second.Stats(); s.Crashed+s.Recovered > 0 {
		t.Errorf("got %d crashes and %d recovered claims, want the claim given back", s.Crashed, s.Recovered)
	}
}

// TestHandOffDuringRestarts: what commits while the processor drains is given back, and is consumed by
// its successor on the same pool, which producers go on with.
func TestHandOffDuringRestarts(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	p := newProducing(t, db, testdb.OpenPostgres(t, directDSN(t, db)))
	config := handOffConfig()
	config.LeaseDuration = 20 * time.Second // nothing can wait for its end
	r := p.Start(config)
	p.warm()
	stop, produced := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { produced <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			n++
			if err := p.inTx(context.WithoutCancel(t.Context()), n, nil); err != nil {
				t.Error(err)
			}
		}
	}()
	for range 5 {
		before := p.total()
		testapp.Eventually(t, "some run", func() bool { return p.total() > before+50 })
		r.MustStop()
		if s := r.Stats(); s.Crashed+s.Recovered+s.Fenced > 0 {
			t.Errorf("got %d crashes, %d recovered claims and %d fenced results, want none", s.Crashed, s.Recovered, s.Fenced)
		}
		r = p.Start(config)
	}
	close(stop)
	for n := <-produced; n > 0; n-- {
		p.once(n)
	}
	r.MustStop()
}

func (p *producing) total() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.runs)
}

// TestHandOffBesideAnotherProcess: the messages of a process that has no room are not starved by
// another one that hands its own off.
func TestHandOffBesideAnotherProcess(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	past := testdb.OpenPostgres(t, directDSN(t, db))
	p := newProducing(t, db, past)
	r := p.Start(handOffConfig())
	p.warm()
	stop, stopped := make(chan struct{}), make(chan struct{})
	for k := range 2 {
		go func() {
			defer func() { stopped <- struct{}{} }()
			for n := 1_000_000 * (k + 1); ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := p.inTx(context.WithoutCancel(t.Context()), n, nil); err != nil {
					t.Error(err)
				}
				// So there is never a backlog.
				testapp.Eventually(t, "it ran", func() bool { runs, _ := p.ran(n); return runs > 0 })
			}
		}()
	}
	other := *p.App
	other.DB = past // its producer has no processor on its pool
	for n := 1; n <= 20; n++ {
		other.Produce(order{N: n})
		begun := time.Now()
		testapp.Eventually(t, "a message of the other process runs", func() bool { runs, _ := p.ran(n); return runs > 0 })
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("a message of the other process waited %s", took)
		}
	}
	close(stop)
	<-stopped
	<-stopped
	testapp.Eventually(t, "all is consumed", p.Empty)
	r.MustStop()
}

// TestHandOffUnderOtherSettings: what a function does to its session leaves its messages where any
// transaction would have left them.
func TestHandOffUnderOtherSettings(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	past := testdb.OpenPostgres(t, directDSN(t, db))
	p := newProducing(t, db, past)
	r := p.Start(handOffConfig())
	p.warm()
	sql := func(statements ...string) func(ctx context.Context, tx bun.Tx) error {
		return func(ctx context.Context, tx bun.Tx) error {
			for _, statement := range statements {
				if _, err := tx.ExecContext(ctx, statement); err != nil {
					return err
				}
			}
			return nil
		}
	}
	next := 1
	for name, then := range map[string]func(ctx context.Context, tx bun.Tx) error{
		"read only":      sql("SET TRANSACTION READ ONLY"),
		"path":           sql("SET LOCAL search_path = pg_catalog"),
		"default":        sql("SET default_transaction_isolation = 'serializable'", "SET LOCAL default_transaction_read_only = on"),
		"timeout":        sql("SET LOCAL statement_timeout = '20s'", "SET LOCAL plan_cache_mode = force_custom_plan"),
		"discard":        sql("DISCARD PLANS", "DISCARD TEMP"),
		"temporary":      sql("CREATE TEMP TABLE message_claims (id bigint) ON COMMIT DROP"),
		"simple savings": sql("SAVEPOINT asyncmonolith_hand_off", "RELEASE SAVEPOINT asyncmonolith_hand_off"),
	} {
		next++
		if err := p.inTx(t.Context(), next, then); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p.once(next)
		if left := p.look("SELECT count(*) FROM poisoned_messages"); left > 0 {
			t.Errorf("%s: got %d poisoned messages", name, left)
		}
	}
	r.MustStop()
}

// TestHandOffWithAPoolThatResetsConnections: no transaction of the application's fails because the
// library's prepared statements are gone.
func TestHandOffWithAPoolThatResetsConnections(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(testdb.PostgresDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	reset := stdlib.OptionResetSession(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "DISCARD ALL")
		return err
	})
	db := bun.NewDB(stdlib.OpenDB(*config, reset), pgdialect.New())
	t.Cleanup(func() { _ = db.Close() })
	p := newProducing(t, db, db)
	r := p.Start(handOffConfig())
	for n := range 20 {
		if err := p.inTx(t.Context(), n, nil); err != nil {
			t.Errorf("transaction %d: %v", n, err)
		}
	}
	testapp.Eventually(t, "all is consumed", p.Empty)
	p.warm()
	r.MustStop()
}

// TestHandOffUnderAnotherPath: the tables of another application, such as a tenant, that a search_path
// leads to get the messages, under ids of their own, and no claim of this processor's.
func TestHandOffUnderAnotherPath(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	p := newProducing(t, db, testdb.OpenPostgres(t, directDSN(t, db)))
	r := p.Start(handOffConfig())
	p.warm()
	p.execute("CREATE SCHEMA tenant",
		`DO $$ DECLARE t text; BEGIN FOREACH t IN ARRAY ARRAY['consumer_messages', 'message_claims', 'paused_consumers'] LOOP
			EXECUTE format('CREATE TABLE tenant.%I (LIKE public.%I INCLUDING ALL)', t, t); END LOOP; END $$`)
	for n := range 20 {
		err := p.Producer.RunInTx(t.Context(), db, func(ctx context.Context, tx bun.Tx) error {
			if _, err := tx.ExecContext(ctx, "SET LOCAL search_path = tenant, public"); err != nil {
				return err
			}
			_, err := p.Producer.Produce(ctx, tx, order{N: n})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	p.still(100, "messages of a tenant")
	if written, claims := p.look("SELECT count(*) FROM tenant.consumer_messages"), p.look("SELECT count(*) FROM tenant.message_claims"); written != 20 ||
		claims != 0 {
		t.Errorf("got %d messages and %d claims of the tenant, want 20 and none", written, claims)
	}
	if highest, last := p.look("SELECT max(id) FROM tenant.consumer_messages"),
		p.look("SELECT last_value FROM pg_sequences WHERE schemaname = 'tenant' AND sequencename LIKE 'consumer_messages%'"); highest > last {
		t.Errorf("got the id %d beyond the %d of their sequence", highest, last)
	}
	if runs, _ := p.ran(0); runs > 0 {
		t.Errorf("got %d runs of a message of the tenant's, want none", runs)
	}
	r.MustStop()
}

// TestHandOffGoesOnAfterTheOriginOfIDsChanges, as with a restart of the server: the ids in reserve are of no use then.
func TestHandOffGoesOnAfterTheOriginOfIDsChanges(t *testing.T) {
	t.Parallel()
	for name, produce := range map[string]func(p *producing, n int) error{
		"a transaction": func(p *producing, n int) error { return p.inTx(p.Context(), n, nil) },
		"a call": func(p *producing, n int) error {
			return testapp.Second(p.Producer.Produce(p.Context(), p.DB, order{N: n}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.Postgres(t)
			var reserved atomic.Int64
			hooked := db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
				if strings.Contains(query, "pg_get_serial_sequence") {
					reserved.Add(1)
				}
			}))
			p := newProducing(t, hooked, testdb.OpenPostgres(t, directDSN(t, db)))
			r := p.Start(handOffConfig())
			for reserved.Load() < 2 { // then there are many in reserve
				p.warm()
			}
			p.execute("ALTER TABLE consumer_messages RENAME TO former", "CREATE TABLE consumer_messages (LIKE former INCLUDING ALL)",
				"SELECT setval(pg_get_serial_sequence('consumer_messages', 'id'), 1000000)")
			before := reserved.Load()
			for n := range 2 {
				testapp.OK(t, produce(p, n+1))
				p.once(n + 1)
			}
			testapp.Eventually(t, "other ids are reserved", func() bool { return reserved.Load() > before })
			if name == "a transaction" { // after the error of a call, nothing is handed off for a while
				p.warm()
			}
			r.MustStop()
		})
	}
}

// TestHandOffByARoleWithFewRights: a role that may not use the sequence of messages, or not write
// claims, produces as before.
func TestHandOffByARoleWithFewRights(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	past := testdb.OpenPostgres(t, directDSN(t, db))
	p := newProducing(t, db, past)
	role := fmt.Sprintf("few_%d", time.Now().UnixNano())
	p.execute("CREATE ROLE "+role, "GRANT INSERT ON consumer_messages TO "+role)
	t.Cleanup(func() {
		if _, err := past.ExecContext(context.WithoutCancel(t.Context()), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	r := p.Start(handOffConfig())
	p.warm()
	err := p.inTx(t.Context(), 1, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.ExecContext(ctx, "SET LOCAL ROLE "+role)
		return err
	})
	if err != nil {
		t.Errorf("a role without rights to claims: %v", err)
	}
	if p.once(1) {
		t.Error("a role without rights to claims has written one")
	}
	r.MustStop()
	p.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO " + role)
	var lines testapp.Lines
	few := *p.App
	few.DB = testdb.OpenPostgres(t, as(t, directDSN(t, db), role))
	config := handOffConfig()
	config.Logger = lines.Logger()
	other := few.Start(config)
	for n := 2; n < 10; n++ {
		err := few.Producer.RunInTx(t.Context(), few.DB, func(ctx context.Context, tx bun.Tx) error {
			_, err := few.Producer.Produce(ctx, tx, order{N: n})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		p.once(n)
	}
	other.MustStop()
	if log := lines.String(); strings.Contains(log, "reserve message ids") || strings.Contains(log, "level=ERROR") {
		t.Errorf("a role without rights to the sequence: got the log %s", log)
	}
}

// as is the address of a database whose sessions have a role.
func as(t *testing.T, dsn, role string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("role", role)
	u.RawQuery = query.Encode()
	return u.String()
}

// TestHandOffUnderTriggersAndLocks: a trigger of the application's may drop a message or put it off,
// and a lock on the claims keeps no transaction longer than its own lock_timeout.
func TestHandOffUnderTriggersAndLocks(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	p := newProducing(t, db, testdb.OpenPostgres(t, directDSN(t, db)))
	r := p.Start(handOffConfig())
	p.warm()
	p.execute(`CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF (NEW.payload::json->>'n')::int = 1 THEN RETURN NULL; END IF;
			NEW.available_after = NEW.available_after + interval '300 milliseconds'; RETURN NEW; END $$`,
		`CREATE TRIGGER change BEFORE INSERT ON consumer_messages FOR EACH ROW
			WHEN ((NEW.payload::json->>'n')::int IN (1, 2)) EXECUTE FUNCTION change()`)
	begun := time.Now()
	for n := 1; n <= 2; n++ {
		if err := p.inTx(t.Context(), n, nil); err != nil {
			t.Fatal(err)
		}
	}
	if p.once(2) || time.Since(begun) < 300*time.Millisecond {
		t.Errorf("a message that was put off ran after %s", time.Since(begun))
	}
	if runs, _ := p.ran(1); runs > 0 {
		t.Errorf("got %d runs of a message that a trigger has dropped, want none", runs)
	}
	holder, err := p.past.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback() //nolint:errcheck // it ends the lock
	if _, err := holder.ExecContext(t.Context(), "LOCK TABLE message_claims IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	err = p.inTx(t.Context(), 3, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.ExecContext(ctx, "SET LOCAL lock_timeout = '100ms'")
		return err
	})
	if err != nil {
		t.Errorf("beside a lock on the claims: %v", err)
	}
	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
	p.once(3)
	r.MustStop()
}
