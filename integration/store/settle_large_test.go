package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

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
