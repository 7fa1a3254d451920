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
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// producing is an application whose producers hand messages off to its own processor.
type producing struct {
	*testapp.App
	past *bun.DB // for looks, past any fault

	mu      sync.Mutex
	runs    map[int]int
	born    map[int]bool // claimed by the transaction that wrote it
	crashed map[int]int
}

func newProducing(t *testing.T, db, past *bun.DB, options ...bus.ConsumerOption) *producing {
	t.Helper()
	p := &producing{past: past, runs: make(map[int]int), born: make(map[int]bool), crashed: make(map[int]int)}
	p.App = testapp.New(t, db, bus.Consume("c", p.consume, options...))
	return p
}

func (p *producing) consume(ctx context.Context, o order) error {
	m, _ := bus.MessageFromContext(ctx)
	var claims []int64
	err := p.past.NewRaw(`SELECT c.id FROM message_claims c JOIN consumer_messages m ON m.id = ANY(c.message_ids)
		WHERE m.message_id = ? AND m.consumer_type = ?`, m.ID, m.Consumer).Scan(ctx, &claims)
	if err != nil {
		return err
	}
	if len(claims) != 1 {
		p.Errorf("message %d runs while it is in the claims %v, want one", o.N, claims)
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs[o.N]++
	p.born[o.N] = claims[0] < 0
	p.crashed[o.N] = m.CrashCount
	return nil
}

func (p *producing) ran(n int) (runs int, handedOff bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs[n], p.born[n]
}

// once waits until a message has run, and fails unless it ran once and was not counted as crashed.
func (p *producing) once(n int) (handedOff bool) {
	p.Helper()
	return p.onceIn(n, 0)
}

// onceIn is once for a message that may have been counted as crashed so often.
func (p *producing) onceIn(n, crashes int) (handedOff bool) {
	p.Helper()
	testapp.Eventually(p.T, fmt.Sprintf("message %d has run", n), func() bool { runs, _ := p.ran(n); return runs > 0 })
	testapp.Eventually(p.T, "nothing is left", func() bool {
		return p.look("SELECT (SELECT count(*) FROM consumer_messages) + (SELECT count(*) FROM message_claims)") == 0
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs[n] != 1 || p.crashed[n] > crashes {
		p.Errorf("message %d: got %d runs and %d crashes, want 1 and %d at most", n, p.runs[n], p.crashed[n], crashes)
	}
	return p.born[n]
}

func (p *producing) look(query string) (n int) {
	p.Helper()
	if err := p.past.NewRaw(query).Scan(context.WithoutCancel(p.Context()), &n); err != nil {
		p.Fatal(err)
	}
	return n
}

// inTx produces an order in a transaction, and calls then in it.
func (p *producing) inTx(ctx context.Context, n int, then func(ctx context.Context, tx bun.Tx) error) error {
	return p.Producer.RunInTx(ctx, p.DB, func(ctx context.Context, tx bun.Tx) error {
		_, err := p.Producer.Produce(ctx, tx, order{N: n})
		if err == nil && then != nil {
			err = then(ctx, tx)
		}
		return err
	})
}

// warm waits until messages are handed off: a processor that has just started looks for older ones.
// Their numbers are negative.
func (p *producing) warm() {
	p.Helper()
	testapp.Eventually(p.T, "messages are handed off", func() bool {
		p.mu.Lock()
		n := -len(p.runs) - 1
		p.mu.Unlock()
		if err := p.inTx(p.Context(), n, nil); err != nil {
			p.Fatal(err)
		}
		return p.once(n)
	})
}

// still fails unless messages are handed off, and not only after a while. One of them may wait for a
// claim that is under way.
func (p *producing) still(n int, after string) {
	p.Helper()
	for k := range 3 {
		if err := p.inTx(p.Context(), 100*n+k, nil); err != nil {
			p.Errorf("produce after %s: %v", after, err)
			return
		}
		if p.once(100*n + k) {
			return
		}
	}
	p.Errorf("%s: the next messages were not handed off", after)
}

// hung is a lock for which commits of certain orders wait in the server.
type hung struct {
	p    *producing
	conn bun.Conn
}

// hang has commits wait whose message has a number of 10,000 or more, until free is called.
func (p *producing) hang() (h hung) {
	p.Helper()
	p.execute(`CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			LOOP -- a driver that loses its connection cancels, and more than once
				BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL;
				EXCEPTION WHEN query_canceled THEN NULL; END;
			END LOOP; END $$`,
		`CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON consumer_messages DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
			WHEN ((NEW.payload::json->>'n')::int >= 10000) EXECUTE FUNCTION wait()`)
	conn, err := p.past.Conn(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.ExecContext(p.Context(), "SELECT pg_advisory_lock(7)"); err != nil {
		p.Fatal(err)
	}
	return hung{p, conn}
}

func (h hung) free() {
	h.p.Helper()
	if _, err := h.conn.ExecContext(context.WithoutCancel(h.p.Context()), "SELECT pg_advisory_unlock_all()"); err != nil {
		h.p.Fatal(err)
	}
}

// waits waits until n commits hang.
func (h hung) waits(n int) {
	h.p.Helper()
	testapp.Eventually(h.p.T, "the commits hang", func() bool {
		return h.p.look("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())") == n
	})
}

func (p *producing) execute(statements ...string) { p.Helper(); execute(p.T, p.past, statements...) }

func handOffConfig() outbox.ProcessorConfig {
	config := testapp.Fast()
	config.LeaseDuration, config.Concurrency = 2*time.Second, 4
	return config
}

// isHandOff reports whether a statement writes the claim of a hand-off.
func isHandOff(query string) bool { return strings.Contains(query, "asyncmonolith_hand_off; ") }

// TestHandOffReturnsRoomAfterAPanic: a query hook of the application's panics, or ends the goroutine,
// where the claim is written.
func TestHandOffReturnsRoomAfterAPanic(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var armed atomic.Int64
	db = db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
		if isHandOff(query) && armed.Add(-1) >= 0 {
			if armed.Load()%2 == 0 {
				runtime.Goexit()
			}
			panic("hook")
		}
	}))
	p := newProducing(t, db, testdb.OpenPostgres(t, directDSN(t, db)))
	r := p.Start(handOffConfig())
	p.warm()
	for i := range 8 { // twice the room there is
		armed.Store(1 + int64(i%2))
		var wg sync.WaitGroup
		wg.Go(func() {
			defer func() { _ = recover() }()
			_ = p.inTx(p.Context(), 1, nil)
		})
		wg.Wait()
		armed.Store(0)
	}
	p.still(2, "panics of hooks")
	if runs, _ := p.ran(1); runs > 0 {
		t.Errorf("runs of messages that were rolled back: got %d, want none", runs)
	}
	begun := time.Now()
	r.MustStop()
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("stop took %s, want it to wait for no reservation", took)
	}
}

// TestHandOffGoesOnAfterATransactionThatFailed: its failure says nothing about the next one.
func TestHandOffGoesOnAfterATransactionThatFailed(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var cancel atomic.Pointer[context.CancelFunc]
	db = db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
		if c := cancel.Load(); c != nil && isHandOff(query) {
			(*c)()
		}
	}))
	past := testdb.OpenPostgres(t, directDSN(t, db))
	p := newProducing(t, db, past)
	r := p.Start(handOffConfig())
	p.warm()
	next := 10
	for name, then := range map[string]func(ctx context.Context, tx bun.Tx) error{
		"an error":              func(context.Context, bun.Tx) error { return errors.New("no") },
		"a rollback of its own": func(_ context.Context, tx bun.Tx) error { return tx.Rollback() },
		"a rollback in SQL":     func(ctx context.Context, tx bun.Tx) error { _, err := tx.ExecContext(ctx, "ROLLBACK"); return err },
		"another one in SQL": func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.ExecContext(ctx, "ROLLBACK; BEGIN")
			return err
		},
		"a chain": func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.ExecContext(ctx, "ROLLBACK AND CHAIN")
			return err
		},
		"an error that is ignored":  func(ctx context.Context, tx bun.Tx) error { _, _ = tx.ExecContext(ctx, "SELECT 1/0"); return nil },
		"a savepoint rolled back":   nil,
		"a context that has ended":  nil,
		"a context that ends later": nil,
	} {
		next++
		n, ctx := next, p.Context()
		switch name {
		case "a savepoint rolled back":
			_ = p.Producer.RunInTx(ctx, db, func(ctx context.Context, tx bun.Tx) error {
				return errors.Join(testapp.Second(tx.ExecContext(ctx, "SAVEPOINT s")), testapp.Second(p.Producer.Produce(ctx, tx, order{N: n})),
					testapp.Second(tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT s")))
			})
		case "a context that has ended":
			ctx, end := context.WithCancel(ctx)
			_ = p.inTx(ctx, n, func(context.Context, bun.Tx) error { end(); return nil })
		case "a context that ends later":
			ctx, end := context.WithCancel(ctx)
			cancel.Store(&end)
			_ = p.inTx(ctx, n, nil)
			cancel.Store(nil)
		default:
			_ = p.inTx(ctx, n, then)
		}
		next++
		p.still(next, name)
		if runs, _ := p.ran(n); runs > 0 {
			t.Errorf("%s: got %d runs of its message, want none", name, runs)
		}
	}
	for name, then := range map[string]func(ctx context.Context, tx bun.Tx) error{
		"its own commit":    func(_ context.Context, tx bun.Tx) error { return tx.Commit() },
		"a commit in SQL":   func(ctx context.Context, tx bun.Tx) error { _, err := tx.ExecContext(ctx, "COMMIT"); return err },
		"a commit, another": func(ctx context.Context, tx bun.Tx) error { _, err := tx.ExecContext(ctx, "COMMIT; BEGIN"); return err },
		"open rows": func(ctx context.Context, tx bun.Tx) error {
			rows, err := tx.QueryContext(ctx, "SELECT generate_series(1, 100000)")
			if err == nil {
				t.Cleanup(func() { _ = rows.Close() })
				rows.Next()
			}
			return err
		},
	} {
		next++
		if err := p.inTx(p.Context(), next, then); err != nil && (name != "its own commit" || !errors.Is(err, sql.ErrTxDone)) {
			if name != "open rows" {
				t.Errorf("%s: %v", name, err)
			}
		} else if p.once(next) {
			t.Errorf("%s: the message was claimed by another transaction than its own", name)
		}
		next++
		p.still(next, name)
	}
	r.MustStop()
}

// directDSN is the address of a database that a test already has.
func directDSN(t *testing.T, db *bun.DB) string {
	t.Helper()
	var name string
	if err := db.NewRaw("SELECT current_database()").Scan(t.Context(), &name); err != nil {
		t.Fatal(err)
	}
	return testdb.PostgresDSNOf(t, name)
}

// TestHandOffOfALateCommit: what commits after a quarter of the lease, or after the lease, is given
// back, also where the producers have all connections. After the lease a poll may come first, and
// count it as crashed: such a claim looks like that of a lost process.
func TestHandOffOfALateCommit(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	past := testdb.OpenPostgres(t, directDSN(t, db))
	p := newProducing(t, db, past)
	config := handOffConfig()
	r := p.Start(config)
	p.warm()
	for i, late := range []time.Duration{config.LeaseDuration / 3, config.LeaseDuration * 5 / 4} {
		const producers = 3
		db.SetMaxOpenConns(producers + 2) // the processor holds one
		h := p.hangOnce(i)
		var wg sync.WaitGroup
		for k := range producers {
			wg.Go(func() {
				if err := p.inTx(p.Context(), 10_000+10*i+k, nil); err != nil {
					t.Error(err)
				}
			})
		}
		h.waits(producers)
		<-time.After(late) // the claims are written
		h.free()
		freed := time.Now()
		wg.Wait()
		if took := time.Since(freed); took > 3*time.Second {
			t.Errorf("the producers returned %s after their commits, want it to wait for no connection of theirs", took)
		}
		for k := range producers {
			if p.onceIn(10_000+10*i+k, i) {
				t.Errorf("late by %s: the message ran under the claim of its transaction", late)
			}
		}
		if s := r.Stats(); i == 0 && s.Crashed+s.Recovered > 0 {
			t.Errorf("late by %s: got %d crashes and %d recovered claims, want none", late, s.Crashed, s.Recovered)
		}
		p.still(i+1, "late commits")
	}
	r.MustStop()
}

func (p *producing) hangOnce(i int) hung {
	p.Helper()
	if i == 0 {
		return p.hang()
	}
	conn, err := p.past.Conn(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.ExecContext(p.Context(), "SELECT pg_advisory_lock(7)"); err != nil {
		p.Fatal(err)
	}
	return hung{p, conn}
}
