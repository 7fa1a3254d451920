package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
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

func storeOf(t testing.TB, db *bun.DB) *store.Store {
	t.Helper()
	s := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{}))
	return s
}

// quickest is the least time of several runs.
func quickest(t *testing.T, run func() error) time.Duration {
	t.Helper()
	least := time.Hour
	for range 15 {
		began := time.Now()
		testapp.OK(t, run())
		least = min(least, time.Since(began))
	}
	return least
}

// TestForeignMessagesDoNotDelayOthers: what a consumer no longer takes costs neither its
// own messages nor those of others anything.
// Promise: held-up
func TestForeignMessagesDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"), testapp.Consumed("d"))
		a.Fill(200_000, "old")
		s, ctx := storeOf(t, db), t.Context()
		wants := []store.Want{{Consumer: "c", Payload: "order.placed", Limit: 10}, {Consumer: "d", Payload: "order.placed", Limit: 10}}
		poll := quickest(t, func() error { _, err := s.Claims.Poll(ctx, db, wants); return err })
		claim := quickest(t, func() error {
			_, err := s.Claims.Claim(ctx, db, store.ClaimRequest{Owner: "o", Lease: time.Minute, Wants: wants, MaxBytes: 1})
			return err
		})
		if limit := 25 * time.Millisecond; poll > limit || claim > limit {
			t.Errorf("behind 200,000 foreign messages: poll %s, claim %s, want less than %s each", poll, claim, limit)
		}
	})
}

// Not parallel: it measures what a claim allocates.
func TestAClaimReadsNoMoreThanItTakes(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const each, messages = 200 << 10, 150
		a := testapp.New(t, db, testapp.Consumed("c"))
		a.ProduceMany(messages)
		text := strings.Repeat("x", each)
		for _, column := range []string{"errors", "headers"} {
			a.Exec("UPDATE consumer_messages SET errors = NULL, headers = NULL")
			a.Exec("UPDATE consumer_messages SET "+column+" = ?", text)
			request := store.ClaimRequest{Owner: column, Lease: time.Minute, MaxBytes: 4*each + 1000,
				Wants: []store.Want{{Consumer: "c", Payload: "order.placed", Limit: messages}}}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			c, err := storeOf(t, db).Claims.Claim(t.Context(), db, request)
			runtime.ReadMemStats(&after)
			if err != nil || len(c.Messages) != 4 || !c.Cut {
				t.Fatalf("claim: got %d messages, cut %t, %v, want 4 and the others left", len(c.Messages), c.Cut, err)
			}
			if len(c.Dropped) != 1 || c.Dropped[0].ID != c.Messages[3].ID+1 {
				t.Errorf("the first that was not taken: got %+v, want the one behind %d", c.Dropped, c.Messages[3].ID)
			}
			if got := len(c.Messages[3].Errors) + len(c.Messages[3].Headers); got != each {
				t.Errorf("%s of a claimed message: got %d bytes, want all %d", column, got, each)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > messages*each/2 {
				t.Errorf("%s: a claim of 4 allocated %d MiB, want little more than it brings", column, allocated>>20)
			}
			a.Exec("DELETE FROM message_claims")
		}
	})
}

// TestQueuesOfManyConsumers: one statement, however many names there are.
func TestQueuesOfManyConsumers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"), testapp.Consumed("d"))
		a.ProduceMany(3)
		names := []string{"c", "d"}
		for i := range 10_000 {
			names = append(names, fmt.Sprintf("idle-%05d", i))
		}
		began := time.Now()
		stats, err := storeOf(t, db).Reports.Stats(t.Context(), db, names)
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

// TestManyClaimsElsewhereHideNothing: what is claimed of a key is not claimed again, however
// much others have claimed.
func TestManyClaimsElsewhereHideNothing(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	a := testapp.New(t, db)
	s := storeOf(t, db)
	a.Exec(`INSERT INTO message_claims (owner, solo, claimed_at, leased_until, message_ids)
SELECT 'other', FALSE, now(), now() + interval '1 hour', array_agg(n) FROM generate_series(1000001, 1110000) n`)
	row := store.NewMessage{MessageID: uuid.New(), ConsumerType: "c", PayloadType: "p", Payload: "{}", OrderKey: "k", AnyOrder: true}
	testapp.Must[map[uuid.UUID]int](t)(s.Outbox.Insert(t.Context(), db, []store.NewMessage{row}))
	lanes := store.Lanes{Source: store.Source{Name: "c", Names: []string{"c"}, Payloads: []string{"p"}, PerKey: 5}, Run: 5}
	for i, want := range []int{1, 0} {
		l := lanes
		c := testapp.Must[store.Claim](t)(s.Claims.Claim(t.Context(), db,
			store.ClaimRequest{Owner: "o", Lease: time.Minute, Limit: 10, MaxBytes: 1 << 20, Lanes: &l}))
		if len(c.Messages) != want {
			t.Errorf("claim %d: got %d messages, want %d", i+1, len(c.Messages), want)
		}
	}
}
