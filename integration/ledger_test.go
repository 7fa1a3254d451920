package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
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
	dsn := testdb.PostgresDSN(t, settings...)
	l := &ledger{T: t, dsn: dsn, db: testdb.OpenPostgres(t, dsn), ctx: context.WithoutCancel(t.Context())}
	var err error
	if l.Store, err = store.For(l.db.Dialect().Name(), bus.Tables{}); err != nil {
		t.Fatal(err)
	}
	if err := l.Migrate(l.ctx, l.db); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	return l
}

func (l *ledger) exec(query string, args ...any) {
	l.Helper()
	err := insist(func() error { _, err := l.db.NewRaw(query, args...).Exec(l.ctx); return err })
	if err != nil {
		l.Fatalf("%.60s: %v", query, err)
	}
}

func (l *ledger) number(query string, args ...any) (n int) {
	l.Helper()
	if err := insist(func() error { return l.db.NewRaw(query, args...).Scan(l.ctx, &n) }); err != nil {
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
	if err := insist(func() error { _, err := l.Insert(l.ctx, l.db, rows); return err }); err != nil {
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

// isolations lists the values of default_transaction_isolation.
func isolations() []string { return []string{"read committed", "repeatable read", "serializable"} }

func TestLedgerClaimsOnceUnderAnyDefaultIsolation(t *testing.T) {
	t.Parallel()
	for _, isolation := range isolations() {
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
				c, err := l.Claim(l.ctx, db, ledgerRequest(owner, 1+(i+round)%5))
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
			settled, err := l.Settle(l.ctx, db, fmt.Sprint("owner-", i), time.Minute, results)
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

// withoutRecheck lets record take what pick found, unseen. withoutMembership
// lets a result count as long as its claim is there, withoutClaim in any case.
func withoutRecheck() []string {
	return []string{`FROM unnest('{`, `FROM unnest('{`, ` x WHERE x NOT IN (SELECT unnest(message_ids) FROM "message_claims")`, ` x`}
}

func withoutMembership() []string {
	return []string{`JOIN held h ON h.cid = r.cid AND h.mid = r.mid)`, `JOIN live l ON l.id = r.cid)`}
}

func withoutClaim() []string {
	return []string{`JOIN held h ON h.cid = r.cid AND h.mid = r.mid)`, `)`}
}

// TestLedgerRecordDropsWhatPickFoundTooEarly stops a pick between its snapshot
// and its row locks, while another claimer claims the same rows. The pick then
// finds them unlocked and, by its snapshot, unclaimed: record has to know better.
func TestLedgerRecordDropsWhatPickFoundTooEarly(t *testing.T) {
	t.Parallel()
	type test struct {
		name, isolation string
		mutant          []string
		want            int
	}
	tests := []test{{"without the re-check both claims hold the messages", "read committed", withoutRecheck(), 6}}
	for _, isolation := range isolations() {
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
					c, err := l.Claim(l.ctx, slow, ledgerRequest("slow", 10))
					slowClaim <- answer{c, err}
				}()
				eventually(t, "the pick waits", func() bool { return l.waiting() == 1 })
				var err error
				first, err = l.Claim(l.ctx, l.db, ledgerRequest("first", 10))
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
func TestLedgerVanishedClientFreesItsRows(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.add(9)
	stuck, release := make(chan struct{}), make(chan struct{})
	sooner := testdb.Replacing(t, "'idle_in_transaction_session_timeout', '5s'", "'idle_in_transaction_session_timeout', '1s'")
	vanishing := testdb.OpenRewritten(t, l.dsn, func(sql string) string {
		if strings.Contains(sql, `INSERT INTO "message_claims"`) {
			close(stuck)
			<-release
		}
		return sooner(sql)
	})
	gone := make(chan error, 1)
	go func() {
		_, err := l.Claim(l.ctx, vanishing, ledgerRequest("vanishing", 10))
		gone <- err
	}()
	<-stuck
	start := time.Now()
	if c, err := l.Claim(l.ctx, l.db, ledgerRequest("other", 10)); err != nil || c.ID != 0 {
		t.Errorf("claim while the rows are locked: got %d messages, %v, want none", len(c.Messages), err)
	}
	claimed := 0 // by one claim, or by two when the session ends in the middle of a pick
	eventually(t, "the rows are free", func() bool {
		c, err := l.Claim(l.ctx, l.db, ledgerRequest("other", 10))
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
	c, err := l.Claim(l.ctx, l.db, ledgerRequest("a", 1))
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
		if held, err := l.Fence(ctx, tx, fence); err != nil || len(held) == 0 {
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
			held, err := l.Fence(ctx, tx, fence)
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
	for name, change := range map[string]string{
		"an attempt":     "UPDATE consumer_messages SET attempts = attempts + 1",
		"a crash":        "UPDATE consumer_messages SET crashes = crashes + 1",
		"being removed":  "DELETE FROM consumer_messages",
		"being poisoned": "WITH m AS (DELETE FROM consumer_messages RETURNING *) INSERT INTO poisoned_messages SELECT m.*, now(), 'r' FROM m",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			l.add(1)
			c, err := l.Claim(l.ctx, l.db, ledgerRequest("a", 1))
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
						held, err := l.Fence(ctx, tx, store.Fence{Owner: "a", Idle: time.Second, Messages: []store.Fenced{{Claim: c.ID, ID: c.Messages[0].ID}}})
						if err != nil {
							t.Errorf("fence: %v", err)
						}
						fenced <- len(held) > 0
						return nil
					})
				}()
				eventually(t, "the fence waits", func() bool { return l.waiting() == 1 })
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
		"extend": func(l *ledger, db *bun.DB) error { _, err := l.Extend(l.ctx, db, "a", time.Minute); return err },
		"finish": func(l *ledger, db *bun.DB) error {
			_, err := l.Finish(l.ctx, db, "a", []int64{4, 3, 2, 1})
			return err
		},
		"disclaim": func(l *ledger, db *bun.DB) error { return l.Disclaim(l.ctx, db, "a", []int64{4, 3, 2, 1}) },
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
					if err := statement(l, db); err != nil {
						t.Errorf("%s: %v", what, err)
					}
				})
			}
			err := l.db.RunInTx(l.ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				if _, err := tx.NewRaw("SELECT id FROM message_claims WHERE id IN (2, 4) FOR UPDATE").Exec(ctx); err != nil {
					return err
				}
				run(name, statement)
				eventually(t, name+" waits", func() bool { return l.waiting() == 1 })
				run("settle", func(l *ledger, db *bun.DB) error { return settleClaims(l, db, 1, 2, 3) })
				eventually(t, "settle waits", func() bool { return l.waiting() == 2 })
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
	_, err := l.Settle(l.ctx, db, "a", time.Minute, results)
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

// ledgerAudit has the database itself write down, in the transaction that does
// it, what enters and leaves claims and what happens to messages. It does not
// depend on how the library spells its statements.
const ledgerAudit = `
CREATE TABLE audit (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
  app text NOT NULL DEFAULT current_setting('application_name'), event text NOT NULL, claim bigint, message bigint NOT NULL, attempts int);
CREATE INDEX ON audit (tx, message);
CREATE INDEX ON audit (message);
CREATE FUNCTION audit_claim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP <> 'INSERT' THEN
    INSERT INTO audit (event, claim, message) SELECT 'left', OLD.id, x FROM unnest(OLD.message_ids) x
    WHERE TG_OP = 'DELETE' OR x <> ALL (NEW.message_ids);
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO audit (event, claim, message) SELECT 'claimed', NEW.id, x FROM unnest(NEW.message_ids) x
    WHERE TG_OP = 'INSERT' OR x <> ALL (OLD.message_ids);
  END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION audit_message() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP = 'DELETE' THEN INSERT INTO audit (event, message, attempts) VALUES ('gone', OLD.id, OLD.attempts);
  ELSIF NEW.attempts > OLD.attempts THEN INSERT INTO audit (event, message, attempts) VALUES ('failed', NEW.id, NEW.attempts);
  ELSE INSERT INTO audit (event, message, attempts) VALUES ('changed', NEW.id, NEW.attempts);
  END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION audit_poisoned() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO audit (event, message, attempts)
  VALUES (CASE WHEN NEW.reason LIKE 'owner vanished%' THEN 'killed' ELSE 'poisoned' END, NEW.id, NEW.attempts);
  RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON message_claims FOR EACH ROW EXECUTE FUNCTION audit_claim();
CREATE TRIGGER audit AFTER UPDATE OR DELETE ON consumer_messages FOR EACH ROW EXECUTE FUNCTION audit_message();
CREATE TRIGGER audit AFTER INSERT ON poisoned_messages FOR EACH ROW EXECUTE FUNCTION audit_poisoned();`

// ledgerLaws finds in the audit what must never happen, by the name of the law.
// Sequence numbers follow the order of commits where it matters: a record sees
// only claims whose end was committed, and so numbered, before it began.
func ledgerLaws() map[string]string {
	return map[string]string{
		"a message is claimed only when no other claim holds it (I3)": `
			SELECT message FROM (SELECT message, event, lag(event, 1, 'left') OVER (PARTITION BY message ORDER BY seq) AS before
			  FROM audit WHERE event IN ('claimed', 'left')) x WHERE event = before`,
		"a message enters and leaves a claim once": `
			SELECT message FROM audit WHERE event IN ('claimed', 'left') GROUP BY claim, message
			HAVING count(*) FILTER (WHERE event = 'claimed') <> 1 OR count(*) FILTER (WHERE event = 'left') > 1`,
		"a message changes only as it leaves a claim, or by a consumer's transaction (I2, I4)": `
			SELECT message FROM audit w WHERE event IN ('failed', 'changed', 'gone') AND NOT EXISTS (
			  SELECT 1 FROM audit l WHERE l.tx = w.tx AND l.message = w.message AND l.event IN ('left', 'effect'))`,
		"a message changes once as it leaves a claim": `
			SELECT message FROM audit WHERE event IN ('failed', 'changed', 'gone') GROUP BY tx, message HAVING count(*) > 1`,
		"a message is gone once, and nothing happens to it afterwards": `
			SELECT message FROM audit WHERE event IN ('failed', 'changed', 'gone', 'poisoned', 'killed', 'effect') GROUP BY message
			HAVING count(*) FILTER (WHERE event = 'gone') > 1
			  OR max(seq) FILTER (WHERE event IN ('failed', 'changed')) > max(seq) FILTER (WHERE event = 'gone')`,
		"a message is poisoned once, as it goes": `
			SELECT message FROM audit p WHERE event IN ('poisoned', 'killed') AND (
			  NOT EXISTS (SELECT 1 FROM audit g WHERE g.tx = p.tx AND g.message = p.message AND g.event = 'gone')
			  OR (SELECT count(*) FROM audit o WHERE o.message = p.message AND o.event IN ('poisoned', 'killed')) > 1)`,
		"attempts are the failures that were applied": `
			SELECT message FROM audit GROUP BY message
			HAVING max(attempts) FILTER (WHERE event = 'gone') <> count(*) FILTER (WHERE event = 'failed')
			  OR max(attempts) FILTER (WHERE event = 'poisoned') <> count(*) FILTER (WHERE event = 'failed') + 1
			  OR max(attempts) FILTER (WHERE event = 'killed') <> count(*) FILTER (WHERE event = 'failed')`,
		"the effect of a consumer's transaction happens once, as the message goes (I6)": `
			SELECT message FROM audit e WHERE event = 'effect' AND (
			  NOT EXISTS (SELECT 1 FROM audit g WHERE g.tx = e.tx AND g.message = e.message AND g.event = 'gone')
			  OR (SELECT count(*) FROM audit o WHERE o.message = e.message AND o.event = 'effect') > 1)`,
	}
}

// broken lists the laws that were broken, with the number of times.
func (l *ledger) broken() []string {
	l.Helper()
	var laws []string
	for law, query := range ledgerLaws() {
		if n := l.number("SELECT count(*) FROM (" + query + ") x"); n > 0 {
			laws = append(laws, fmt.Sprintf("%s: broken %d times", law, n))
		}
	}
	return laws
}

// stress runs claimers that do everything a processor may do, and much that only
// happens to one in bad times: they vanish, come late, repeat and reorder.
type stress struct {
	*ledger
	claims, settles, recoveries *bun.DB
	conflicts                   conflictCounter
	mutant                      bool        // errors are expected
	calm                        atomic.Bool // from now on everything goes well

	late       sync.WaitGroup
	backlog    atomic.Int64
	doubles    atomic.Int64 // messages seen in two claims
	claimed    atomic.Int64
	produced   atomic.Int64
	applied    atomic.Int64 // results that settle and finish say were written
	fenced     atomic.Int64
	repeated   atomic.Int64
	recovered  atomic.Int64
	poisoned   atomic.Int64
	committed  atomic.Int64
	suspicious atomic.Int64 // claims of messages that have crashed
}

const stressLease = 150 * time.Millisecond

// newStress prepares the databases; a mutant is what goes wrong on the wire, as
// pairs of texts, in the statements of claims or of settles.
func newStress(t *testing.T, claimMutant, settleMutant []string) *stress {
	t.Helper()
	// More goes on in the same time when nobody waits for the disk.
	s := &stress{ledger: newLedger(t, "synchronous_commit=off"), mutant: claimMutant != nil || settleMutant != nil}
	s.exec(ledgerAudit)
	open := func(name string, mutant []string) *bun.DB {
		dsn := s.dsn + "&application_name=" + name
		if mutant == nil {
			return testdb.OpenPostgres(t, dsn).WithQueryHook(&s.conflicts)
		}
		return testdb.OpenRewritten(t, dsn, testdb.Replacing(t, mutant...)).WithQueryHook(&s.conflicts)
	}
	s.claims, s.settles, s.recoveries = open("claim", claimMutant), open("settle", settleMutant), open("recover", nil)
	return s
}

func (s *stress) check(what string, err error) {
	s.Helper()
	if err != nil && !s.mutant {
		s.Errorf("%s: %v", what, err)
	}
}

// run works for a while, or until done says so; then it calms down and drains.
func (s *stress) run(seed uint64, d time.Duration, done func() bool) {
	s.Helper()
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	var workers sync.WaitGroup
	for i := range 8 {
		workers.Go(func() { s.claimer(ctx, fmt.Sprint("owner-", i), rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	for range 2 {
		workers.Go(func() { s.recoverer(ctx) })
	}
	workers.Go(func() { s.producer(ctx) })
	workers.Go(func() { s.watcher(ctx) })
	end := time.Now().Add(d)
	for time.Now().Before(end) && !done() {
		<-time.After(200 * time.Millisecond)
	}
	s.calm.Store(true)
	if !s.mutant {
		eventually(s.T, "everything is drained", func() bool {
			return s.number("SELECT (SELECT count(*) FROM consumer_messages) + (SELECT count(*) FROM message_claims)") == 0
		})
	}
	stop()
	workers.Wait()
	s.late.Wait()
}

// pause waits a little.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (s *stress) producer(ctx context.Context) {
	for ctx.Err() == nil && !s.calm.Load() {
		if s.backlog.Load() < 300 {
			s.add(30)
			s.produced.Add(30)
		}
		pause(ctx, 10*time.Millisecond)
	}
}

// watcher polls for what the audit could only tell afterwards.
func (s *stress) watcher(ctx context.Context) {
	for ctx.Err() == nil {
		s.doubles.Add(int64(s.heldTwice()))
		s.backlog.Store(int64(s.number("SELECT count(*) FROM consumer_messages")))
		pause(ctx, 3*time.Millisecond)
	}
}

func (s *stress) recoverer(ctx context.Context) {
	for ctx.Err() == nil {
		found, err := s.Recover(s.ctx, s.recoveries, 3)
		s.check("recover", err)
		s.recovered.Add(int64(found.Claims))
		s.poisoned.Add(int64(found.Poisoned))
		pause(ctx, 15*time.Millisecond)
	}
}

func (s *stress) claimer(ctx context.Context, owner string, dice *rand.Rand) {
	wants := ledgerWants(0)
	for renewed := time.Now(); ctx.Err() == nil; {
		if time.Since(renewed) > stressLease/3 {
			renewed = time.Now()
			_, err := s.Extend(s.ctx, s.settles, owner, stressLease)
			s.check("extend", err)
		}
		// Renewing renews all of an owner's claims, so what is to be lost needs another.
		fate := dice.IntN(100)
		r := store.ClaimRequest{Owner: owner, Lease: stressLease, Wants: wants, MaxBytes: 1 << 20, Limit: 8}
		if dice.IntN(3) == 0 {
			r.Select = store.Selection(dice.IntN(3))
		}
		if !s.calm.Load() && fate < 20 {
			r.Owner += "-doomed"
		}
		if r.Select == store.Killers {
			r.Limit, r.Solo = 1, true
		}
		for i := range wants {
			wants[i].Limit = dice.IntN(8)
			if dice.IntN(4) == 0 {
				wants[i].After = store.Position{}
			}
		}
		c, err := s.Claim(s.ctx, s.claims, r)
		s.check("claim", err)
		if c.ID == 0 {
			pause(ctx, time.Duration(dice.IntN(3000))*time.Microsecond)
			continue
		}
		s.claimed.Add(1)
		if r.Select != store.Clean {
			s.suspicious.Add(1)
		} else {
			for i := range wants {
				if c.Found[i] > 0 {
					wants[i].After = c.Last[i]
				}
			}
		}
		s.work(c, r.Owner, fate, dice)
	}
}

// work decides what becomes of a claim: fates below 20 are those of claims that
// nobody renews.
func (s *stress) work(c store.Claim, owner string, fate int, dice *rand.Rand) {
	switch calm := s.calm.Load(); {
	case calm:
		s.finish(owner, c)
	case fate < 8: // the owner vanishes
	case fate < 20: // the owner comes late
		results := s.outcomes(c, dice)
		after := stressLease + time.Duration(dice.IntN(int(stressLease)))
		s.late.Go(func() {
			<-time.After(after)
			s.settle(owner, results)
		})
	case fate < 24:
		s.check("disclaim", s.Disclaim(s.ctx, s.claims, owner, []int64{c.ID}))
	case fate < 34:
		hold := time.Duration(dice.IntN(2 * int(stressLease)))
		s.late.Go(func() { s.transact(owner, c, hold) })
	case fate < 55:
		s.finish(owner, c)
		if dice.IntN(6) == 0 {
			s.repeated.Add(1)
			s.finish(owner, c)
		}
	default:
		s.settleInParts(owner, s.outcomes(c, dice), dice)
	}
}

// outcomes draws results for all messages of a claim, in any order.
func (s *stress) outcomes(c store.Claim, dice *rand.Rand) []store.Result {
	results := make([]store.Result, len(c.Messages))
	for i, m := range c.Messages {
		results[i] = store.Result{Claim: c.ID, Message: m.ID, Outcome: store.Done, Delay: time.Duration(dice.IntN(20)) * time.Millisecond}
		switch n := dice.IntN(20); {
		case n < 5:
			results[i].Outcome = store.Failed
		case n < 7:
			results[i].Outcome = store.Snoozed
		case n < 9:
			results[i].Outcome = store.Release
		case n < 10:
			results[i].Outcome, results[i].Reason = store.Poison, "drawn"
		}
		if results[i].Delay < 5*time.Millisecond {
			results[i].Delay = 0
		}
	}
	dice.Shuffle(len(results), func(i, j int) { results[i], results[j] = results[j], results[i] })
	return results
}

// settleInParts sends parts in any order, some late and some again.
func (s *stress) settleInParts(owner string, results []store.Result, dice *rand.Rand) {
	for len(results) > 0 {
		n := 1 + dice.IntN(len(results))
		part := results[:n]
		results = results[n:]
		// Results come in one by one, so a claim may be there for a while in part.
		wait, again := time.Duration(0), time.Duration(-1)
		if dice.IntN(2) == 0 {
			wait = time.Duration(dice.IntN(40)) * time.Millisecond
		}
		if dice.IntN(4) == 0 {
			again = time.Duration(dice.IntN(30)) * time.Millisecond
		}
		s.late.Go(func() {
			<-time.After(wait)
			s.settle(owner, part)
			if again >= 0 {
				<-time.After(again)
				s.repeated.Add(1)
				s.settle(owner, part)
			}
		})
	}
}

func (s *stress) settle(owner string, results []store.Result) {
	settled, err := s.Settle(s.ctx, s.settles, owner, stressLease, results)
	s.check("settle", err)
	s.applied.Add(int64(settled.Applied))
	s.fenced.Add(int64(len(results) - settled.Applied))
}

func (s *stress) finish(owner string, c store.Claim) {
	finished, err := s.Finish(s.ctx, s.settles, owner, []int64{c.ID})
	s.check("finish", err)
	for _, f := range finished {
		s.applied.Add(int64(f.Messages))
	}
}

// transact runs the messages as a transactional consumer would, one by one.
func (s *stress) transact(owner string, c store.Claim, hold time.Duration) {
	refused := errors.New("refused")
	for _, m := range c.Messages {
		err := s.settles.RunInTx(s.ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
			f := store.Fence{Owner: owner, Idle: time.Minute, Messages: []store.Fenced{{Claim: c.ID, ID: m.ID, Attempts: m.Attempts, Crashes: m.Crashes}}}
			if held, err := s.Fence(ctx, tx, f); err != nil || len(held) == 0 {
				return errors.Join(refused, err)
			}
			if _, err := tx.NewRaw("INSERT INTO audit (event, message) VALUES ('effect', ?)", m.ID).Exec(ctx); err != nil {
				return err
			}
			<-time.After(hold / time.Duration(len(c.Messages)))
			if removed, err := s.Remove(ctx, tx, store.Session{}, m.ID); err != nil || !removed {
				return fmt.Errorf("remove: got %t, error %v, want true", removed, err)
			}
			return nil
		})
		switch {
		case err == nil:
			s.committed.Add(1)
		case !errors.Is(err, refused):
			s.check("transaction", err)
		}
		s.settle(owner, []store.Result{{Claim: c.ID, Message: m.ID, Outcome: store.Release}})
	}
}

func TestLedgerUnderStress(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	s := newStress(t, nil, nil)
	s.run(seed, 4*time.Second, func() bool { return t.Failed() })
	t.Logf("seed %d: %d messages, %d claims, %d of them of crashed messages, %d recoveries, %d fenced and %d repeated results, %d transactions, %d poisoned by crashes, %d serialization failures",
		seed, s.produced.Load(), s.claimed.Load(), s.suspicious.Load(), s.recovered.Load(), s.fenced.Load(), s.repeated.Load(),
		s.committed.Load(), s.poisoned.Load(), s.conflicts.serialization.Load())
	for _, law := range s.broken() {
		t.Error(law)
	}
	if got := s.doubles.Load(); got != 0 {
		t.Errorf("messages seen in two claims: got %d, want none", got)
	}
	if got := s.conflicts.deadlocks.Load(); got != 0 {
		t.Errorf("deadlocks: got %d, want none", got)
	}
	if got, want := s.number("SELECT count(*) FROM audit WHERE event = 'gone'"), int(s.produced.Load()); got != want {
		t.Errorf("messages gone: got %d, want the %d produced", got, want)
	}
	if got, want := int(s.applied.Load()), s.number("SELECT count(*) FROM audit WHERE event = 'left' AND app = 'settle'"); got != want {
		t.Errorf("results that settle and finish say they applied: got %d, want the %d messages that left their claims by them", got, want)
	}
	if got, want := int(s.committed.Load()), s.number("SELECT count(*) FROM audit WHERE event = 'effect'"); got != want {
		t.Errorf("transactions committed: got %d, want %d effects", got, want)
	}
	for what, n := range map[string]int64{
		"recoveries": s.recovered.Load(), "fenced results": s.fenced.Load(), "repeated statements": s.repeated.Load(),
		"transactions": s.committed.Load(), "claims of crashed messages": s.suspicious.Load(),
	} {
		if n == 0 {
			t.Errorf("%s: got none, want some, or the run proves little", what)
		}
	}
}

// The oracle of the stress test has to see what goes wrong when a guard is gone.
func TestLedgerStressCatchesMutants(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		claim, settle []string
	}{
		{"record without re-check", withoutRecheck(), nil},
		{"settle without membership", nil, withoutMembership()},
		{"settle without the claim", nil, withoutClaim()},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newStress(t, test.claim, test.settle)
			var laws []string
			start := time.Now()
			s.run(rand.Uint64(), 20*time.Second, func() bool {
				laws = s.broken()
				return len(laws) > 0
			})
			if len(laws) == 0 {
				t.Errorf("laws broken: got none in %s, want some", time.Since(start))
			}
			t.Logf("after %s: %s; seen in two claims: %d", time.Since(start), strings.Join(laws, "; "), s.doubles.Load())
		})
	}
}

// plan has PostgreSQL explain the statements of an operation, in the order in
// which it sends them, in a transaction that is rolled back.
func (l *ledger) plan(operation func(db *bun.DB) error) string {
	l.Helper()
	var sent []string
	captive := testdb.OpenRewritten(l.T, l.dsn, func(sql string) string {
		sent = append(sent, sql)
		if strings.HasPrefix(strings.TrimSpace(sql), "SELECT") {
			return sql + " " // a claim has to find something before it records it
		}
		return "SELECT WHERE false"
	})
	captive.SetMaxOpenConns(1)
	if err := operation(captive); err != nil && !errors.Is(err, sql.ErrNoRows) {
		l.Fatalf("operation to explain: %v", err)
	}
	var plan []string
	undo := errors.New("undo")
	err := l.db.RunInTx(l.ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
		for _, statement := range sent {
			var lines []string
			if err := tx.NewRaw("EXPLAIN (ANALYZE, COSTS, TIMING OFF) ?", bun.Safe(statement)).Scan(ctx, &lines); err != nil {
				return err
			}
			plan = append(append(plan, fmt.Sprintf("%.70s ...", strings.TrimSpace(statement))), lines...)
		}
		return undo
	})
	if !errors.Is(err, undo) {
		l.Fatalf("explain: %v", err)
	}
	return strings.Join(plan, "\n")
}

// explained is an operation with the indexes it has to use on a large table;
// none means that it may look at all of it.
type explained struct {
	name    string
	indexes []string
	run     func(db *bun.DB) error
}

// explained lists the operations of the store, on a claim of the owner "a".
func (l *ledger) explained(c store.Claim) []explained {
	const due, crashed, key = "consumer_messages_due", "consumer_messages_crashed", "consumer_messages_pkey"
	var results []store.Result
	for i, m := range c.Messages {
		outcome := []store.Outcome{store.Done, store.Failed, store.Snoozed, store.Poison, store.Release}[i%5]
		results = append(results, store.Result{Claim: c.ID, Message: m.ID, Outcome: outcome, Errors: "e", Reason: "r"})
	}
	first := results[0].Message
	wants := ledgerWants(170)
	later := store.WithClock(l.ctx, func() time.Time { return time.Now().Add(time.Hour) })
	suspects := store.ClaimRequest{Owner: "b", Lease: time.Minute, Wants: wants, Select: store.Suspects, Limit: 8}
	return []explained{
		{"claim", []string{due}, func(db *bun.DB) error { _, err := l.Claim(l.ctx, db, ledgerRequest("b", 170)); return err }},
		{"claim of crashed messages", []string{crashed}, func(db *bun.DB) error { _, err := l.Claim(l.ctx, db, suspects); return err }},
		{"probe", []string{due, crashed}, func(db *bun.DB) error { _, err := l.Probe(l.ctx, db, wants); return err }},
		{"settle", []string{key}, func(db *bun.DB) error { _, err := l.Settle(l.ctx, db, "a", time.Minute, results); return err }},
		{"finish", []string{key}, func(db *bun.DB) error { _, err := l.Finish(l.ctx, db, "a", []int64{c.ID}); return err }},
		{"recover", []string{key}, func(db *bun.DB) error { _, err := l.Recover(later, db, 3); return err }},
		{"fence", []string{key}, func(db *bun.DB) error {
			_, err := l.Fence(l.ctx, db, store.Fence{Owner: "a", Idle: time.Minute, Messages: []store.Fenced{{Claim: c.ID, ID: first}}})
			return err
		}},
		{"exists", []string{key}, func(db *bun.DB) error { _, err := l.Exists(l.ctx, db, first); return err }},
		{"remove", []string{key}, func(db *bun.DB) error { _, err := l.Remove(l.ctx, db, store.Session{}, first); return err }},
		{"unregistered", []string{due}, func(db *bun.DB) error { _, err := l.Unregistered(l.ctx, db, wants); return err }},
		{"stats", nil, func(db *bun.DB) error { _, err := l.Stats(l.ctx, db, ledgerConsumers()); return err }},
	}
}

// fill makes the table that large; one message in two thousand has crashed.
func (l *ledger) fill(rows int) {
	l.Helper()
	l.exec(`INSERT INTO consumer_messages (message_id, consumer_type, payload_type, payload, created_at, available_after, crashes)
		SELECT gen_random_uuid(), (ARRAY['one', 'two', 'three'])[1 + i % 3], 'p', repeat('x', 200), now(), now() - i * interval '1 ms',
		  CASE WHEN i % 2000 = 0 THEN 1 ELSE 0 END
		FROM generate_series(1, ? - (SELECT count(*) FROM consumer_messages)) i`, rows)
}

// explain checks the plan of every operation.
func (l *ledger) explain(state string, large bool, c store.Claim) {
	l.Helper()
	for _, operation := range l.explained(c) {
		plan := l.plan(operation.run)
		// Run once per row, it would look through every claim for each message.
		if strings.Contains(plan, "NOT (SubPlan") {
			l.Errorf("%s, %s: got a subquery per row, want it hashed:\n%s", operation.name, state, plan)
		}
		if !large || operation.indexes == nil {
			continue
		}
		if strings.Contains(plan, "Seq Scan on consumer_messages") {
			l.Errorf("%s, %s: got a scan of the whole table, want none:\n%s", operation.name, state, plan)
		}
		for _, index := range operation.indexes {
			if !strings.Contains(plan, index) {
				l.Errorf("%s, %s: got no use of %s, want it used:\n%s", operation.name, state, index, plan)
			}
		}
	}
}

// claimForExplain has the owner "a" claim; where there is nothing to claim it
// makes up a claim.
func (l *ledger) claimForExplain(claims int) store.Claim {
	l.Helper()
	var first store.Claim
	for range claims {
		c, err := l.Claim(l.ctx, l.db, ledgerRequest("a", 170))
		if err != nil {
			l.Fatalf("claim: %v", err)
		}
		if first.ID == 0 {
			first = c
		}
	}
	if first.ID == 0 {
		first.ID = 1
		for i := range 500 {
			first.Messages = append(first.Messages, store.Message{ID: int64(i + 1)})
		}
	}
	return first
}

func TestExplainLedger(t *testing.T) {
	t.Parallel()
	const small, large = 1_000, 200_000
	t.Run("never analysed", func(t *testing.T) {
		t.Parallel()
		l := newExplainedLedger(t)
		l.explain("empty", false, l.claimForExplain(1))
		l.fill(small)
		l.explain("1k messages", false, l.claimForExplain(1))
		l.fill(large)
		l.explain("200k messages", true, l.claimForExplain(10))
	})
	t.Run("analysed", func(t *testing.T) {
		t.Parallel()
		l := newExplainedLedger(t)
		l.fill(small)
		c := l.claimForExplain(1)
		l.exec("VACUUM ANALYZE")
		l.explain("1k messages", false, c)
		l.fill(large)
		l.claimForExplain(10)
		l.explain("200k messages, analysed when there were 1k", true, c)
		l.exec("VACUUM ANALYZE")
		l.explain("200k messages", true, c)
	})
	t.Run("claims not vacuumed", func(t *testing.T) {
		t.Parallel()
		l := newExplainedLedger(t)
		l.fill(small)
		// The planner takes dead claims for live ones, each with ten messages.
		l.exec(`INSERT INTO message_claims (owner, solo, claimed_at, leased_until, message_ids)
			SELECT 'dead', false, now(), now(), ARRAY[-i] FROM generate_series(1, 50000) i`)
		l.exec("DELETE FROM message_claims")
		l.explain("1k messages and 50k dead claims", false, l.claimForExplain(1))
	})
}

func newExplainedLedger(t *testing.T) *ledger {
	t.Helper()
	l := newLedger(t)
	for _, table := range []string{"consumer_messages", "message_claims", "poisoned_messages"} {
		l.exec("ALTER TABLE ? SET (autovacuum_enabled = off)", bun.Ident(table))
	}
	return l
}
