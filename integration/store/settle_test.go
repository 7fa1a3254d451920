package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func TestStaleResultInTheBatchOfANewOne(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &n))
		a.Produce(order{ID: "1"})
		s := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{}))
		request := store.ClaimRequest{Owner: "me", Lease: time.Minute, MaxBytes: 1 << 20,
			Wants: []store.Want{{Consumer: "c", Payload: "order.placed", Limit: 1}}}
		old := testapp.Must[store.Claim](t)(s.Claims.Claim(t.Context(), db, request))
		testapp.OK(t, s.Claims.Disclaim(t.Context(), db, "me", []int64{old.ID}))
		young := testapp.Must[store.Claim](t)(s.Claims.Claim(t.Context(), db, request))
		id := young.Messages[0].ID
		testapp.Must[store.Settled](t)(s.Claims.Settle(t.Context(), db, "me", time.Minute, []store.Result{
			{Claim: young.ID, Message: id, Outcome: store.Failed, Delay: time.Hour},
			{Claim: old.ID, Message: id, Outcome: store.Done},
		}))
		if rows := a.Pending(); len(rows) != 1 || rows[0].Attempts != 1 || a.Count("SELECT count(*) FROM message_claims") != 0 {
			t.Errorf("got %+v and %d claims, want the new claim's failure and not the old one's success", rows,
				a.Count("SELECT count(*) FROM message_claims"))
		}
	})
}

// TestPoisoningFindsAFreeID: when somebody has let the ids of messages begin anew, one
// may be poisoned already.
func TestPoisoningFindsAFreeID(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { return bus.Permanent(fmt.Errorf("no")) }))
		s := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{}))
		overriding := ""
		if db.Dialect().Name() == dialect.PG {
			overriding = " OVERRIDING SYSTEM VALUE"
		}
		again := func(n int) {
			a.Exec("INSERT INTO consumer_messages (id, message_id, consumer_type, payload_type, payload, created_at, available_after, attempts, crashes)" + overriding + " SELECT " +
				"id, message_id, consumer_type, payload_type, payload, created_at, available_after, 0, " + fmt.Sprint(n) + " FROM poisoned_messages")
		}
		a.ProduceMany(3)
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "poisoned", func() bool { return len(a.Poisoned()) == 3 && a.Empty() })
		again(0)
		testapp.Eventually(t, "poisoned again", func() bool { return len(a.Poisoned()) == 6 && a.Empty() })
		r.MustStop()
		again(2)
		for _, row := range a.Pending() {
			c, err := s.Claims.Claim(t.Context(), db, store.ClaimRequest{Owner: "gone", Lease: time.Millisecond, Select: store.Killers,
				Solo: true, Limit: 1,
				Wants: []store.Want{{Consumer: row.ConsumerType, Payload: row.PayloadType}}, MaxBytes: 1 << 20})
			if err != nil || len(c.Messages) != 1 {
				t.Fatalf("claim: got %d messages, error %v, want 1", len(c.Messages), err)
			}
		}
		testapp.Eventually(t, "recovered as poisoned", func() bool {
			if _, err := s.Claims.Recover(t.Context(), db, 3); err != nil {
				t.Fatalf("recover: %v", err)
			}
			return a.Empty()
		})
		if got := len(a.Poisoned()); got != 12 {
			t.Errorf("poisoned: got %d, want 12", got)
		}
	})
}

// TestMariaDBAcquitLeavesOthersClaimsAlone lets a process say that something runs beside its solo
// run while somebody else's claim is locked.
func TestMariaDBAcquitLeavesOthersClaimsAlone(t *testing.T) {
	t.Parallel()
	db := testdb.MariaDB(t)
	a := testapp.New(t, db)
	for _, owner := range []string{"other", "me"} {
		a.Exec(`INSERT INTO message_claims (owner, solo, claimed_at, leased_until, message_ids) VALUES (?, TRUE, 0, 0, '[1]')`, owner)
	}
	tx := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
	defer func() { _ = tx.Rollback() }()
	testapp.OK(t, testapp.Second(tx.ExecContext(t.Context(), `SELECT * FROM message_claims WHERE id = 1 FOR UPDATE`)))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{})).Claims.Acquit(ctx, db, "me"); err != nil {
		t.Errorf("acquit beside a lock on another's claim: %v", err)
	}
	if n := a.Count(`SELECT count(*) FROM message_claims WHERE owner = 'me' AND NOT solo`); n != 1 {
		t.Errorf("claims of mine that are not solo: got %d, want 1", n)
	}
}

// TestPostgresSettlesUnlockedMessagesAtOnce: a message that another transaction has locked is left for later, and the others of the
// same statement do not wait for it.
// Promise: held-up
func TestPostgresSettlesUnlockedMessagesAtOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for i := range 3 {
		row := store.NewMessage{ConsumerType: "c", PayloadType: "p", Payload: "{}", MessageID: uuid.UUID{byte(i + 1)}}
		_ = testapp.Must[map[uuid.UUID]int](t)(l.Outbox.Insert(l.ctx, l.db, []store.NewMessage{row}))
	}
	held := testapp.Must[store.Claim](t)(l.Claims.Claim(l.ctx, l.db, store.ClaimRequest{Owner: "a", Lease: time.Minute,
		Wants: []store.Want{{Consumer: "c", Payload: "p", Limit: 3}}, MaxBytes: 1 << 20}))
	var results []store.Result
	for _, m := range held.Messages {
		results = append(results, store.Result{Claim: held.ID, Message: m.ID, Outcome: store.Done})
	}
	holder := testapp.Must[bun.Tx](t)(l.db.BeginTx(l.ctx, nil))
	t.Cleanup(func() { _ = holder.Rollback() })
	testapp.OK(t, testapp.Second(holder.NewRaw("SELECT id FROM consumer_messages WHERE id = ? FOR UPDATE", results[1].Message).Exec(l.ctx)))
	ctx, cancel := context.WithTimeout(l.ctx, 10*time.Second)
	defer cancel()
	settled, err := l.Claims.SettleFree(ctx, l.db, "a", time.Minute, results)
	if err != nil || settled.Applied != 2 || !slices.Equal(settled.Busy, results[1:2]) {
		t.Fatalf("beside a locked message: got %+v, error %v, want 2 applied and 1 busy", settled, err)
	}
	testapp.OK(t, holder.Rollback())
	if settled, err := l.Claims.SettleFree(ctx, l.db, "a", time.Minute, results[1:2]); err != nil || settled.Applied != 1 {
		t.Errorf("once the lock is gone: got %+v, error %v, want 1 applied", settled, err)
	}
}

// mixed are results for a part of a claim: a fifth of them failed, a fifth is poisoned.
func mixed(c store.Claim, n int) []store.Result {
	results := make([]store.Result, n)
	for i, m := range c.Messages[:n] {
		outcome := []store.Outcome{store.Failed, store.Done, store.Done, store.Snoozed, store.Poison}[i%5]
		results[i] = store.Result{Claim: c.ID, Message: m.ID, Outcome: outcome, Delay: time.Hour, Errors: "[]", Reason: "r"}
	}
	return results
}

// TestLargeClaimsAreSettledInTime: what settles and recovers takes time for each
// message, not for each of them times the size of its claim. The limit is that of the
// processor's statements, behind which it would begin anew for ever.
func TestLargeClaimsAreSettledInTime(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const size, part, limit = 5_000, 1_000, 5 * time.Second
		s, c := claimOf(t, db, size)
		inTime := func(what string, run func(ctx context.Context) (int, error), want int) {
			t.Helper()
			ctx, cancel := context.WithTimeoutCause(t.Context(), limit, fmt.Errorf("not done after %s", limit))
			defer cancel()
			got, err := run(ctx)
			if err != nil {
				t.Fatalf("%s: %v", what, errors.Join(err, context.Cause(ctx)))
			}
			if got != want {
				t.Errorf("%s: got %d messages, want %d", what, got, want)
			}
		}
		settle := func(settle func(context.Context, *bun.DB, string, time.Duration, []store.Result) (store.Settled,
			error)) func(context.Context) (int, error) {
			return func(ctx context.Context) (int, error) {
				settled, err := settle(ctx, db, "bench", time.Minute, mixed(c, part))
				c.Messages = c.Messages[part:]
				return settled.Applied, err
			}
		}
		inTime("settle", settle(s.Claims.Settle), part)
		inTime("settle what is free", settle(s.Claims.SettleFree), part)
		inTime("recover", func(ctx context.Context) (int, error) {
			if _, err := s.Claims.Extend(ctx, db, "bench", -time.Minute); err != nil {
				return 0, err
			}
			found, err := s.Claims.Recover(ctx, db, 3)
			return found.Crashed, err
		}, size-2*part)
	})
}

// TestSQLiteSettlesByLookups: no statement reads the whole table, or one list for each
// row of another.
func TestSQLiteSettlesByLookups(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	s, c := claimOf(t, db, 5_000)
	testapp.OK(t, testapp.Second(db.ExecContext(t.Context(), "ANALYZE")))
	var sent []string
	hooked := db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) { sent = append(sent, query) }))
	ctx := t.Context()
	_, settled := s.Claims.Settle(ctx, hooked, "bench", time.Minute, mixed(c, 100))
	_, finished := s.Claims.Finish(ctx, hooked, "bench", nil)
	_, extended := s.Claims.Extend(ctx, hooked, "bench", -time.Minute)
	_, recovered := s.Claims.Recover(ctx, hooked, 3)
	testapp.OK(t, errors.Join(settled, finished, extended, recovered))
	explained := 0
	for _, query := range sent {
		if verb, _, _ := strings.Cut(strings.TrimSpace(query), " "); verb == "BEGIN" || verb == "COMMIT" {
			continue
		}
		explained++
		for _, step := range nested(t, db, query) {
			t.Errorf("plan: got %q for\n%.500s", step, query)
		}
	}
	if explained < 12 {
		t.Errorf("statements explained: got %d, want those of every call", explained)
	}
}

// TestAGroupIsFencedAtOnce: a fence reads the list of a claim once, not for each message.
func TestAGroupIsFencedAtOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const size, group = 500, 50
		s, c := claimOf(t, db, size)
		f := store.Fence{Owner: "bench", Idle: time.Minute}
		for _, m := range c.Messages[size-group:] {
			f.Messages = append(f.Messages, store.Fenced{Claim: c.ID, ID: m.ID})
		}
		sent := 0
		hooked := db.WithQueryHook(testapp.QueryHook(func(context.Context, string) { sent++ }))
		err := hooked.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			held, err := s.Claims.Fence(ctx, tx, f)
			if len(held) != group {
				t.Errorf("fence: got %d messages, want %d", len(held), group)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if sent > 10 {
			t.Errorf("fence of %d messages: got %d statements, want a few", group, sent)
		}
	})
}

// nested returns the steps of a plan on SQLite that read the whole table of messages, or
// a list once for each row of something else.
func nested(t *testing.T, db *bun.DB, query string) (steps []string) {
	t.Helper()
	var plan []struct {
		ID, Parent, Notused int
		Detail              string
	}
	testapp.OK(t, db.NewRaw("EXPLAIN QUERY PLAN "+query).Scan(t.Context(), &plan))
	lists, correlated := make(map[int]int), make(map[int]bool)
	for _, step := range plan {
		correlated[step.ID] = correlated[step.Parent] || strings.HasPrefix(step.Detail, "CORRELATED")
		list := strings.Contains(step.Detail, "VIRTUAL TABLE")
		if list {
			lists[step.Parent]++
		}
		if list && (correlated[step.ID] || lists[step.Parent] > 1) || step.Detail == "SCAN m" ||
			strings.HasPrefix(step.Detail, "SCAN consumer_messages") {
			steps = append(steps, step.Detail)
		}
	}
	return steps
}
