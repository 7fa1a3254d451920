package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Tests of the claim ledger on PostgreSQL: what no single session can show.

// ledger is a database of a test, and a store on it.
type ledger struct {
	*testing.T
	*store.Store
	dsn string
	db  *bun.DB
	ctx context.Context
}

func newLedger(t *testing.T, settings ...string) *ledger {
	t.Helper()
	return ledgerOn(t, testdb.PostgresDSN(t, settings...))
}

func ledgerOn(t *testing.T, dsn string) *ledger {
	t.Helper()
	l := &ledger{T: t, dsn: dsn, db: testdb.OpenPostgres(t, dsn), ctx: context.WithoutCancel(t.Context())}
	var err error
	if l.Store, err = store.For(l.db.Dialect().Name(), bus.Tables{}); err != nil {
		t.Fatal(err)
	}
	if err := l.Schema.Migrate(l.ctx, l.db); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	return l
}

func (l *ledger) exec(query string, args ...any) {
	l.Helper()
	err := testapp.Insist(func() error { _, err := l.db.NewRaw(query, args...).Exec(l.ctx); return err })
	if err != nil {
		l.Fatalf("%.60s: %v", query, err)
	}
}

func (l *ledger) number(query string, args ...any) (n int) {
	l.Helper()
	if err := testapp.Insist(func() error { return l.db.NewRaw(query, args...).Scan(l.ctx, &n) }); err != nil {
		l.Fatalf("%.60s: %v", query, err)
	}
	return n
}

// ledgerConsumers lists the consumers of the messages that add inserts.
func ledgerConsumers() []string { return []string{"one", "two", "three"} }

// add inserts messages that are due, dealt out to the consumers.
func (l *ledger) add(n int) {
	l.Helper()
	rows := make([]store.NewMessage, n)
	for i := range rows {
		rows[i] = store.NewMessage{ConsumerType: ledgerConsumers()[i%3], PayloadType: "p", Payload: "{}"}
	}
	if err := testapp.Insist(func() error { _, err := l.Outbox.Insert(l.ctx, l.db, rows); return err }); err != nil {
		l.Fatalf("insert: %v", err)
	}
}

func ledgerWants(limit int) []store.Want {
	var wants []store.Want
	for _, consumer := range ledgerConsumers() {
		wants = append(wants, store.Want{Consumer: consumer, Payload: "p", Limit: limit})
	}
	return wants
}

func ledgerRequest(owner string, limit int) store.ClaimRequest {
	return store.ClaimRequest{Owner: owner, Lease: 30 * time.Second, Wants: ledgerWants(limit), MaxBytes: 1 << 20}
}

// heldTwice counts the messages that are in more than one claim (I3).
func (l *ledger) heldTwice() int {
	l.Helper()
	return l.number(`SELECT count(*) FROM (
		SELECT m FROM message_claims, unnest(message_ids) m GROUP BY m HAVING count(*) > 1) twice`)
}

// Promise: one-worker, isolation
func TestLedgerClaimsOnceUnderAnyDefaultIsolation(t *testing.T) {
	t.Parallel()
	for _, isolation := range testdb.Isolations() {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, testdb.Isolation(isolation))
			db := testdb.OpenPostgres(t, l.dsn)
			var got string
			if err := db.NewRaw("SHOW default_transaction_isolation").Scan(l.ctx, &got); err != nil || got != isolation {
				t.Fatalf("default isolation: got %q, %v, want %q", got, err, isolation)
			}
			const claimers, messages, rounds = 16, 150, 6
			l.add(messages)
			for round := range rounds {
				l.claimTogether(db, round, claimers, messages)
			}
		})
	}
}

// claimTogether has many claimers start at the same moment and claim until
// nothing is left; then it settles everything for the next round.
func (l *ledger) claimTogether(db *bun.DB, round, claimers, messages int) {
	l.Helper()
	var mu sync.Mutex
	seen := make(map[int64]int64) // the claim of each message
	gate := make(chan struct{})
	var ready, done sync.WaitGroup
	for i := range claimers {
		ready.Add(1)
		done.Go(func() {
			owner := fmt.Sprint("owner-", i)
			ready.Done()
			<-gate
			for {
				c, err := l.Claims.Claim(l.ctx, db, ledgerRequest(owner, 1+(i+round)%5))
				if err != nil {
					l.Errorf("claim: %v", err)
					return
				}
				mu.Lock()
				for _, m := range c.Messages {
					if other, ok := seen[m.ID]; ok {
						l.Errorf("message %d: got it in claims %d and %d, want one", m.ID, other, c.ID)
					}
					seen[m.ID] = c.ID
				}
				enough := len(seen) >= messages
				mu.Unlock()
				if enough || l.Failed() {
					return
				}
			}
		})
	}
	ready.Wait()
	close(gate)
	done.Wait()
	if got := l.heldTwice(); got != 0 {
		l.Errorf("messages in two claims: got %d, want none", got)
	}
	l.giveBack(db, claimers, seen)
	if got := l.number(`SELECT count(*) FROM consumer_messages WHERE attempts <> ?`, round+1); got != 0 {
		l.Errorf("messages with other than %d attempts: got %d, want none", round+1, got)
	}
}

// giveBack has every owner settle all results as failed, so that the owner of a
// claim applies them and nobody else does.
func (l *ledger) giveBack(db *bun.DB, owners int, claims map[int64]int64) {
	l.Helper()
	var results []store.Result
	for message, claim := range claims {
		results = append(results, store.Result{Claim: claim, Message: message, Outcome: store.Failed})
	}
	var applied atomic.Int64
	var done sync.WaitGroup
	for i := range owners {
		done.Go(func() {
			settled, err := l.Claims.Settle(l.ctx, db, fmt.Sprint("owner-", i), time.Minute, results)
			if err != nil {
				l.Errorf("settle: %v", err)
			}
			applied.Add(int64(settled.Applied))
		})
	}
	done.Wait()
	if got := int(applied.Load()); got != len(claims) {
		l.Errorf("results applied: got %d, want %d", got, len(claims))
	}
}

// withoutRecheck lets record take what pick found, unseen.
func withoutRecheck() []string {
	return []string{` x WHERE x NOT IN (SELECT unnest(message_ids) FROM "message_claims")`, ` x`}
}

// TestLedgerRecordDropsRowsClaimedSinceThePick stops a pick between its snapshot
// and its row locks, while another claimer claims the same rows. The pick then
// finds them unlocked and, by its snapshot, unclaimed: record has to know better.
// Promise: one-worker
func TestLedgerRecordDropsRowsClaimedSinceThePick(t *testing.T) {
	t.Parallel()
	type test struct {
		name, isolation string
		mutant          []string
		want            int
	}
	tests := []test{{"without the re-check both claims hold the messages", "read committed", withoutRecheck(), 6}}
	for _, isolation := range testdb.Isolations() {
		tests = append(tests, test{"one claim holds the messages under " + isolation, isolation, nil, 0})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, testdb.Isolation(test.isolation))
			l.add(6)
			pause := []string{`AND m.id NOT IN (SELECT`, `AND (SELECT pg_advisory_xact_lock(42)::text) = '' AND m.id NOT IN (SELECT`}
			slow := testdb.OpenRewritten(t, l.dsn, testdb.Replacing(t, append(pause, test.mutant...)...))
			type answer struct {
				store.Claim
				err error
			}
			slowClaim := make(chan answer, 1)
			var first store.Claim
			err := l.db.RunInTx(l.ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				if _, err := tx.NewRaw("SELECT pg_advisory_xact_lock(42)").Exec(ctx); err != nil {
					return err
				}
				go func() {
					c, err := l.Claims.Claim(l.ctx, slow, ledgerRequest("slow", 10))
					slowClaim <- answer{c, err}
				}()
				testapp.Eventually(t, "the pick waits", func() bool { return l.waiting() == 1 })
				var err error
				first, err = l.Claims.Claim(l.ctx, l.db, ledgerRequest("first", 10))
				return err
			})
			if err != nil || len(first.Messages) != 6 {
				t.Fatalf("first claim: got %d messages, %v, want 6", len(first.Messages), err)
			}
			second := <-slowClaim
			if second.err != nil {
				t.Fatalf("slow claim: %v", second.err)
			}
			if found := second.Found[0] + second.Found[1] + second.Found[2]; found != 6 {
				t.Errorf("found by the slow claim: got %d, want 6, or the script proves nothing", found)
			}
			if got := l.heldTwice(); got != test.want || len(second.Messages) != test.want {
				t.Errorf("messages in two claims: got %d, and %d in the slow claim, want %d", got, len(second.Messages), test.want)
			}
		})
	}
}

// A vanished client leaves its session between pick and record, where its row
// locks hide what it picked. The server has to end that session.
func TestLedgerLostClientFreesItsRows(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.add(9)
	stuck, release := make(chan struct{}), make(chan struct{})
	sooner := testdb.Replacing(t, "idle_in_transaction_session_timeout = '5s'", "idle_in_transaction_session_timeout = '1s'")
	record := "" // how it is run
	vanishing := testdb.OpenRewritten(t, l.dsn, func(sql string) string {
		if words := strings.Fields(sql); words[0] == "PREPARE" && strings.Contains(sql, `INSERT INTO "message_claims"`) {
			record = "EXECUTE " + words[1]
		}
		if record != "" && strings.HasPrefix(sql, record) {
			close(stuck)
			<-release
		}
		return sooner(sql)
	})
	gone := make(chan error, 1)
	go func() {
		_, err := l.Claims.Claim(l.ctx, vanishing, ledgerRequest("vanishing", 10))
		gone <- err
	}()
	<-stuck
	start := time.Now()
	if c, err := l.Claims.Claim(l.ctx, l.db, ledgerRequest("other", 10)); err != nil || c.ID != 0 {
		t.Errorf("claim while the rows are locked: got %d messages, %v, want none", len(c.Messages), err)
	}
	claimed := 0 // by one claim, or by two when the session ends in the middle of a pick
	testapp.Eventually(t, "the rows are free", func() bool {
		c, err := l.Claims.Claim(l.ctx, l.db, ledgerRequest("other", 10))
		claimed += len(c.Messages)
		return err == nil && claimed == 9
	})
	if took := time.Since(start); took < 500*time.Millisecond || took > 30*time.Second {
		t.Errorf("rows free after %s, want about a second", took)
	}
	close(release)
	if err := <-gone; !dberr.IsUnavailable(err) {
		t.Errorf("claim of the vanished client: got error %v, want a lost connection", err)
	}
	if got := l.number("SELECT sum(cardinality(message_ids)) FROM message_claims"); got != 9 {
		t.Errorf("claimed messages: got %d, want 9", got)
	}
}

// TestLedgerFenceGivesUp: a fence waits a second for a row that somebody has
// locked, and then counts as closed.
func TestLedgerFenceGivesUpOnALockedRow(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.add(1)
	c, err := l.Claims.Claim(l.ctx, l.db, ledgerRequest("a", 1))
	if err != nil || len(c.Messages) != 1 {
		t.Fatalf("claim: got %d messages, %v, want 1", len(c.Messages), err)
	}
	fence := store.Fence{Owner: "a", Idle: 7 * time.Second, Messages: []store.Fenced{{Claim: c.ID, ID: c.Messages[0].ID}}}
	inTx := func(fn func(ctx context.Context, tx bun.Tx) error) error {
		return l.db.RunInTx(l.ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, fn)
	}
	err = inTx(func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewRaw("SET LOCAL lock_timeout = '33s'").Exec(ctx); err != nil {
			return err
		}
		if held, err := l.Claims.Fence(ctx, tx, fence); err != nil || len(held) == 0 {
			return fmt.Errorf("fence: got %v, error %w, want one message", held, err)
		}
		for setting, want := range map[string]string{"idle_in_transaction_session_timeout": "7s", "lock_timeout": "33s"} {
			var got string
			if err := tx.NewRaw("SHOW ?", bun.Ident(setting)).Scan(ctx, &got); err != nil || got != want {
				t.Errorf("%s behind the fence: got %q, %v, want %s", setting, got, err, want)
			}
		}
		start := time.Now()
		err := inTx(func(ctx context.Context, tx bun.Tx) error {
			held, err := l.Claims.Fence(ctx, tx, fence)
			if err != nil || len(held) > 0 {
				t.Errorf("fence of a locked row: got %v, %v, want none", held, err)
			}
			return errors.New("roll back")
		})
		if took := time.Since(start); took < 900*time.Millisecond || took > 20*time.Second {
			t.Errorf("fence of a locked row: got an answer (%v) after %s, want it after a second", err, took)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLedgerFenceSeesWhatHappenedWhileItWaited: the row changes under another
// session's lock, so the fence, which began before, has to look again.
func TestLedgerFenceSeesWhatHappenedWhileItWaited(t *testing.T) {
	t.Parallel()
	const columns = "id, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, attempts, crashes, errors"
	for name, change := range map[string]string{
		"an attempt":    "UPDATE consumer_messages SET attempts = attempts + 1",
		"a crash":       "UPDATE consumer_messages SET crashes = crashes + 1",
		"being removed": "DELETE FROM consumer_messages",
		"being poisoned": "WITH m AS (DELETE FROM consumer_messages RETURNING *) INSERT INTO poisoned_messages (" + columns +
			", poisoned_at, reason) SELECT " + columns + ", now(), 'r' FROM m",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			l.add(1)
			c, err := l.Claims.Claim(l.ctx, l.db, ledgerRequest("a", 1))
			if err != nil || len(c.Messages) != 1 {
				t.Fatalf("claim: got %d messages, %v, want 1", len(c.Messages), err)
			}
			fenced := make(chan bool, 1)
			err = l.db.RunInTx(l.ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				if _, err := tx.NewRaw(change).Exec(ctx); err != nil {
					return err
				}
				go func() {
					_ = l.db.RunInTx(l.ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
						held, err := l.Claims.Fence(ctx, tx,
							store.Fence{Owner: "a", Idle: time.Second, Messages: []store.Fenced{{Claim: c.ID, ID: c.Messages[0].ID}}})
						if err != nil {
							t.Errorf("fence: %v", err)
						}
						fenced <- len(held) > 0
						return nil
					})
				}()
				testapp.Eventually(t, "the fence waits", func() bool { return l.waiting() == 1 })
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if <-fenced {
				t.Errorf("fence after %s: got true, want false", name)
			}
		})
	}
}

// waiting is the number of sessions that wait for a lock in this database.
func (l *ledger) waiting() int {
	l.Helper()
	return l.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
}

// A processor renews, finishes and disclaims claims while it settles others:
// statements that lock the same rows, wherever those lie in the table by now.
// The script has each of them hold one row and wait for another; when it lets go,
// they must not wait for each other in a circle.
func TestLedgerStatementsLockClaimsInOneOrder(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]func(l *ledger, db *bun.DB) error{
		"settle": func(l *ledger, db *bun.DB) error { return settleClaims(l, db, 4, 3, 2, 1) },
		"extend": func(l *ledger, db *bun.DB) error { _, err := l.Claims.Extend(l.ctx, db, "a", time.Minute); return err },
		"finish": func(l *ledger, db *bun.DB) error {
			_, err := l.Claims.Finish(l.ctx, db, "a", []int64{4, 3, 2, 1})
			return err
		},
		"disclaim": func(l *ledger, db *bun.DB) error { return l.Claims.Disclaim(l.ctx, db, "a", []int64{4, 3, 2, 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			counter := &conflictCounter{}
			db := l.db.WithQueryHook(counter)
			l.exec(`INSERT INTO message_claims (owner, solo, claimed_at, leased_until, message_ids)
				SELECT 'a', false, now(), now() + interval '1 h', ARRAY[-i] FROM generate_series(1, 4) i`)
			// What is written anew lies behind the others: 3, 4, 1, 2.
			l.exec("UPDATE message_claims SET leased_until = now() WHERE id = 1")
			l.exec("UPDATE message_claims SET leased_until = now() WHERE id = 2")
			l.exec("ANALYZE message_claims") // small: scanned as a whole
			var done sync.WaitGroup
			run := func(what string, statement func(l *ledger, db *bun.DB) error) {
				done.Go(func() {
					err := statement(l, db)
					for err != nil && strings.Contains(err.Error(), "55P03") { // a slow machine: its lock_timeout has ended
						err = statement(l, db)
					}
					if err != nil {
						t.Errorf("%s: %v", what, err)
					}
				})
			}
			err := l.db.RunInTx(l.ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				if _, err := tx.NewRaw("SELECT id FROM message_claims WHERE id IN (2, 4) FOR UPDATE").Exec(ctx); err != nil {
					return err
				}
				run(name, statement)
				testapp.Eventually(t, name+" waits", func() bool { return l.waiting() == 1 })
				run("settle", func(l *ledger, db *bun.DB) error { return settleClaims(l, db, 1, 2, 3) })
				testapp.Eventually(t, "settle waits", func() bool { return l.waiting() == 2 })
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			done.Wait()
			if got := counter.deadlocks.Load(); got != 0 {
				t.Errorf("deadlocks of %s and settle: got %d, want none", name, got)
			}
		})
	}
}

// settleClaims settles nothing, which locks and renews the claims.
func settleClaims(l *ledger, db *bun.DB, claims ...int64) error {
	var results []store.Result
	for _, id := range claims {
		results = append(results, store.Result{Claim: id, Outcome: store.Done})
	}
	_, err := l.Claims.Settle(l.ctx, db, "a", time.Minute, results)
	return err
}

// conflictCounter counts statements that lost against another transaction, also
// those that the store then repeats.
type conflictCounter struct{ deadlocks, serialization atomic.Int64 }

func (*conflictCounter) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context {
	return ctx
}

func (c *conflictCounter) AfterQuery(_ context.Context, event *bun.QueryEvent) {
	var failure *pgconn.PgError
	if errors.As(event.Err, &failure) {
		switch failure.Code {
		case "40P01":
			c.deadlocks.Add(1)
		case "40001":
			c.serialization.Add(1)
		}
	}
}
