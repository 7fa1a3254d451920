package store_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

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
		probe := quickest(t, func() error { _, err := s.Claims.Probe(ctx, db, wants); return err })
		claim := quickest(t, func() error {
			_, err := s.Claims.Claim(ctx, db, store.ClaimRequest{Owner: "o", Lease: time.Minute, Wants: wants, MaxBytes: 1})
			return err
		})
		if limit := 25 * time.Millisecond; probe > limit || claim > limit {
			t.Errorf("behind 200,000 foreign messages: probe %s, claim %s, want less than %s each", probe, claim, limit)
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
