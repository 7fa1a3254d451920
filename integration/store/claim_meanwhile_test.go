package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// TestClaimSeesConcurrentChanges: where candidates are looked for before anything is
// locked, what happens to those of c1 in between counts.
// Promise: one-worker
func TestClaimSeesConcurrentChanges(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		open  func(testing.TB) *bun.DB
		locks string // part of the statement that locks: a transaction of SQLite begins with that
	}{
		"mariadb": {testdb.MariaDB, "FOR UPDATE SKIP LOCKED"},
		"sqlite":  {testdb.SQLite, "BEGIN"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claimMeanwhile(t, test.open, test.locks)
		})
	}
}

func claimMeanwhile(t *testing.T, open func(testing.TB) *bun.DB, locks string) {
	type world struct {
		*store.Store
		db *bun.DB
	}
	exec := func(statement string) func(context.Context, world) error {
		return func(ctx context.Context, w world) error { _, err := w.db.NewRaw(statement).Exec(ctx); return err }
	}
	request := func(owner string, selection store.Selection, consumers ...string) (r store.ClaimRequest) {
		r = store.ClaimRequest{Owner: owner, Lease: time.Minute, MaxBytes: 1 << 20, Limit: 100, Select: selection}
		for _, name := range consumers {
			r.Wants = append(r.Wants, store.Want{Consumer: name, Payload: "p", Limit: 10})
		}
		return r
	}
	for name, happens := range map[string]func(context.Context, world) error{
		"paused": func(ctx context.Context, w world) error { return w.Flow.Pause(ctx, w.db, []string{"c1"}, "", "") },
		"claimed": func(ctx context.Context, w world) error {
			_, clean := w.Claims.Claim(ctx, w.db, request("b", store.Clean, "c1"))
			_, suspects := w.Claims.Claim(ctx, w.db, request("b", store.Suspects, "c1"))
			return errors.Join(clean, suspects)
		},
		"put off":     exec("UPDATE consumer_messages SET available_after = 1 << 60 WHERE consumer_type = 'c1'"),
		"crashed":     exec("UPDATE consumer_messages SET crashes = crashes + 1 WHERE consumer_type = 'c1'"),
		"cancelled":   exec("DELETE FROM consumer_messages WHERE consumer_type = 'c1'"),
		"all of c1's": exec("UPDATE consumer_messages SET available_after = 0 WHERE consumer_type = 'c1'"), // which changes nothing
	} {
		for _, selection := range []store.Selection{store.Clean, store.Suspects} {
			t.Run(fmt.Sprint(name, " ", selection), func(t *testing.T) {
				t.Parallel()
				w := world{db: open(t)}
				newStore := func() *store.Store {
					return testapp.Must[*store.Store](t)(store.For(w.db.Dialect().Name(), bus.Tables{}))
				}
				w.Store = newStore() // another process
				testapp.OK(t, w.Schema.Migrate(t.Context(), w.db))
				var rows []store.NewMessage // 20 of each consumer, of which 10 have crashed
				for i := range 40 {
					rows = append(rows, store.NewMessage{MessageID: uuid.New(), ConsumerType: fmt.Sprint("c", i%2), PayloadType: "p", Payload: "{}"})
				}
				_, err := w.Outbox.Insert(t.Context(), w.db, rows)
				if err := errors.Join(err, exec("UPDATE consumer_messages SET available_after = 0, crashes = CASE WHEN id % 4 >= 2 THEN 1 ELSE 0 END")(t.Context(), w)); err != nil {
					t.Fatal(err)
				}
				happened := false
				hooked := w.db.WithQueryHook(testapp.QueryHook(func(ctx context.Context, query string) {
					if strings.Contains(query, locks) && !happened {
						happened = true
						if err := happens(ctx, w); err != nil {
							t.Error(err)
						}
					}
				}))
				c, err := newStore().Claims.Claim(t.Context(), hooked, request("a", selection, "c0", "c1"))
				if err != nil || !happened {
					t.Fatalf("claim: got error %v, happened %v, want none and true", err, happened)
				}
				got := make(map[string]int)
				for _, m := range c.Messages {
					got[m.ConsumerType]++
				}
				want := map[string]int{"c0": 10}
				if name == "all of c1's" {
					want["c1"] = 10
				}
				if !maps.Equal(got, want) {
					t.Errorf("claim: got %v, want %v", got, want)
				}
			})
		}
	}
}
