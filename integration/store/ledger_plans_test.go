package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// plan has PostgreSQL explain the statements of an operation, in the order in which it
// sends them, in transactions that are rolled back: once with plans for the values that
// it has, and once with those that it keeps for any.
func (l *ledger) plan(operation func(db *bun.DB) error) string {
	l.Helper()
	var sent []string
	bodies := make(map[string]string) // of what is prepared
	captive := testdb.OpenRewritten(l.T, l.dsn, func(sql string) string {
		sent = append(sent, sql)
		words := strings.Fields(sql)
		body := sql
		switch words[0] {
		case "PREPARE":
			_, bodies[words[1]], _ = strings.Cut(sql, " AS ")
			return sql
		case "SET":
			return sql
		case "EXECUTE":
			body = bodies[nameOf(sql)]
		}
		if strings.HasPrefix(body, "BEGIN") || strings.HasPrefix(strings.TrimSpace(body), "SELECT") {
			return sql + " " // a claim has to find something before it records it
		}
		return "SELECT WHERE false"
	})
	captive.SetMaxOpenConns(1)
	if err := operation(captive); err != nil && !errors.Is(err, sql.ErrNoRows) {
		l.Fatalf("operation to explain: %v", err)
	}
	return l.explainAs("force_custom_plan", sent, bodies) + "\n" + l.explainAs("force_generic_plan", sent, bodies)
}

// nameOf is the name of the prepared statement that is executed.
func nameOf(execute string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(execute, "EXECUTE "), "(")
	return name
}

func (l *ledger) explainAs(mode string, sent []string, bodies map[string]string) string {
	l.Helper()
	db := testdb.OpenPostgres(l.T, l.dsn) // its connection has prepared nothing
	defer db.Close()
	var plan []string
	undo := errors.New("undo")
	err := db.RunInTx(l.ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
		for _, statement := range sent {
			said := statement
			switch strings.Fields(statement)[0] {
			case "PREPARE", "SET":
				if _, err := tx.ExecContext(ctx, statement); err != nil {
					return err
				}
				continue
			case "BEGIN":
				_, settings, _ := strings.Cut(statement, ";")
				if _, err := tx.ExecContext(ctx, settings); err != nil {
					return err
				}
				continue
			case "COMMIT":
				continue
			case "EXECUTE":
				said = bodies[nameOf(statement)]
			}
			if _, err := tx.ExecContext(ctx, "SET LOCAL plan_cache_mode = "+mode); err != nil {
				return err
			}
			var lines []string
			if err := tx.NewRaw("EXPLAIN (ANALYZE, BUFFERS, COSTS, TIMING OFF) ?", bun.Safe(statement)).Scan(ctx, &lines); err != nil {
				return err
			}
			plan = append(append(plan, fmt.Sprintf("%s: %.70s ...", mode, strings.TrimSpace(said))), lines...)
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
	wants := manyWants()
	later := store.WithClock(l.ctx, func() time.Time { return time.Now().Add(time.Hour) })
	suspects := store.ClaimRequest{Owner: "b", Lease: time.Minute, Wants: wants, Select: store.Suspects, Limit: 8}
	return []explained{
		{"claim", []string{due}, func(db *bun.DB) error { _, err := l.Claims.Claim(l.ctx, db, manyRequest("b")); return err }},
		{"claim of crashed messages", []string{crashed}, func(db *bun.DB) error { _, err := l.Claims.Claim(l.ctx, db, suspects); return err }},
		{"poll", []string{due, crashed}, func(db *bun.DB) error { _, err := l.Claims.Poll(l.ctx, db, wants); return err }},
		{"settle", []string{key}, func(db *bun.DB) error { _, err := l.Claims.Settle(l.ctx, db, "a", time.Minute, results); return err }},
		{"finish", []string{key}, func(db *bun.DB) error { _, err := l.Claims.Finish(l.ctx, db, "a", []int64{c.ID}); return err }},
		{"recover", []string{key}, func(db *bun.DB) error { _, err := l.Claims.Recover(later, db, 3); return err }},
		{"fence", []string{key}, func(db *bun.DB) error {
			_, err := l.Claims.Fence(l.ctx, db, store.Fence{Owner: "a", Idle: time.Minute, Messages: []store.Fenced{{Claim: c.ID, ID: first}}})
			return err
		}},
		{"exists", []string{key}, func(db *bun.DB) error { _, err := l.Claims.Exists(l.ctx, db, first); return err }},
		{"remove", []string{key}, func(db *bun.DB) error { _, err := l.Claims.Remove(l.ctx, db, store.Session{}, first); return err }},
		{"unregistered", []string{due}, func(db *bun.DB) error { _, err := l.Claims.Unhandled(l.ctx, db, wants); return err }},
		{"stored consumers", nil, func(db *bun.DB) error { _, err := l.Pending.StoredConsumers(l.ctx, db); return err }},
		{"stats", nil, func(db *bun.DB) error { _, err := l.Reports.Stats(l.ctx, db, manyConsumers()); return err }},
	}
}

// manyConsumers are those of a large application.
func manyConsumers() []string {
	names := ledgerConsumers()
	for i := len(names); i < 100; i++ {
		names = append(names, fmt.Sprintf("consumer-%d", i))
	}
	return names
}

func manyWants() []store.Want {
	var wants []store.Want
	for _, consumer := range manyConsumers() {
		wants = append(wants, store.Want{Consumer: consumer, Payload: "p", Limit: 5})
	}
	return wants
}

func manyRequest(owner string) store.ClaimRequest {
	return store.ClaimRequest{Owner: owner, Lease: 30 * time.Second, Wants: manyWants(), MaxBytes: 1 << 20}
}

// fill makes the table that large; one message in two thousand has crashed.
func (l *ledger) fill(rows int, names []string) {
	l.Helper()
	l.exec(`INSERT INTO consumer_messages (message_id, consumer_type, payload_type, payload, created_at, available_after, crashes)
		SELECT gen_random_uuid(), (?::text[])[1 + i % ?], 'p', repeat('x', 200), now(), now() - i * interval '1 ms',
		  CASE WHEN i % 2001 = 0 THEN 1 ELSE 0 END
		FROM generate_series(1, ? - (SELECT count(*) FROM consumer_messages)) i`, pgdialect.Array(names), len(names), rows)
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
		// To compile one takes seconds of a busy machine.
		if strings.Contains(plan, "JIT:") {
			l.Errorf("%s, %s: got it compiled, want it run as it is:\n%s", operation.name, state, plan)
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
		c, err := l.Claims.Claim(l.ctx, l.db, manyRequest("a"))
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
	const small, large, huge = 1_000, 200_000, 300_000
	t.Run("never analysed", func(t *testing.T) {
		t.Parallel()
		l := newExplainedLedger(t)
		l.explain("empty", false, l.claimForExplain(1))
		l.fill(small, manyConsumers())
		l.explain("1k messages", false, l.claimForExplain(1))
		l.fill(large, manyConsumers())
		l.explain("200k messages", true, l.claimForExplain(10))
	})
	t.Run("analysed", func(t *testing.T) {
		t.Parallel()
		l := newExplainedLedger(t)
		l.fill(small, manyConsumers())
		c := l.claimForExplain(1)
		l.exec("VACUUM ANALYZE")
		l.explain("1k messages", false, c)
		l.fill(huge, manyConsumers())
		l.claimForExplain(10)
		l.explain("300k messages, analysed when there were 1k", true, c)
		l.exec("VACUUM ANALYZE")
		l.explain("300k messages", true, c)
	})
	t.Run("claims not vacuumed", func(t *testing.T) {
		t.Parallel()
		l := newExplainedLedger(t)
		l.fill(small, manyConsumers())
		// The planner takes dead claims for live ones, each with ten messages.
		l.exec(`INSERT INTO message_claims (owner, solo, claimed_at, leased_until, message_ids)
			SELECT 'dead', false, now(), now(), ARRAY[-i] FROM generate_series(1, 50000) i`)
		l.exec("DELETE FROM message_claims")
		l.explain("1k messages and 50k dead claims", false, l.claimForExplain(1))
	})
}

// TestUnregisteredReadsNoDeadEntries: what somebody takes is not looked for, since its
// removed messages may be many and stay in the index while a transaction is open.
func TestUnregisteredReadsNoDeadEntries(t *testing.T) {
	t.Parallel()
	l := newExplainedLedger(t)
	l.fill(50_000, ledgerConsumers())
	l.exec("DELETE FROM consumer_messages")
	for name, wants := range map[string][]store.Want{"all taken": ledgerWants(1), "the last is not": ledgerWants(1)[:2]} {
		plan := l.plan(func(db *bun.DB) error { _, err := l.Claims.Unhandled(l.ctx, db, wants); return err })
		var hit, read int
		if _, after, ok := strings.Cut(plan, "Buffers: shared "); ok {
			if _, err := fmt.Sscanf(after, "hit=%d read=%d", &hit, &read); hit == 0 {
				t.Fatalf("%s: buffers: %v:\n%s", name, err, plan)
			}
		}
		if few := hit+read < 50; few != (len(wants) == 3) {
			t.Errorf("%s: got %d pages read, want fewer than 50 only if all kinds are taken:\n%s", name, hit+read, plan)
		}
	}
}

func newExplainedLedger(t *testing.T) *ledger {
	t.Helper()
	l := ledgerOn(t, testdb.DirectDSN(t)) // it explains what a connection has prepared
	for _, table := range []string{"consumer_messages", "message_claims", "poisoned_messages"} {
		l.exec("ALTER TABLE ? SET (autovacuum_enabled = off)", bun.Ident(table))
	}
	return l
}
