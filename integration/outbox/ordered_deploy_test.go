package outbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// TestAProcessThatSkipsPoisonedUnblocksNoKeyOfOneThatDoesNot: a rolling deploy has both, and a blocked key is blocked again once
// it is over. Only a consumer that skips everywhere goes on.
// Promise: key-order
func TestAProcessThatSkipsPoisonedUnblocksNoKeyOfOneThatDoesNot(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var mu sync.Mutex
		var ran []string
		release := func(policy bus.PoisonPolicy) *app {
			return testapp.New(t, db, bus.Consume("c", func(_ context.Context, o order) error {
				mu.Lock()
				defer mu.Unlock()
				ran = append(ran, o.ID)
				if o.ID == "bad" {
					return bus.Permanent(errors.New("no luck"))
				}
				return nil
			}, bus.Ordered(policy)))
		}
		blocks, skips := release(bus.BlockKey), release(bus.SkipPoisoned)
		run := func(a *app, want ...string) {
			t.Helper()
			steps(t.Context(), a, newProcessor(a, testapp.Fast()))
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(ran, want) {
				t.Fatalf("ran: got %q, want %q", ran, want)
			}
		}
		blocked := func() int {
			t.Helper()
			queues, err := blocks.Admin().Queues(t.Context(), db, "c")
			if err != nil {
				t.Fatal(err)
			}
			return int(queues[0].BlockedKeys)
		}
		blocks.Produce(order{ID: "bad"}, outbox.OrderingKey("k"))
		run(blocks, "bad")
		skips.Produce(order{ID: "other"}, outbox.OrderingKey("l"))
		run(skips, "bad", "other")
		blocks.Produce(order{ID: "behind"}, outbox.OrderingKey("k"))
		run(blocks, "bad", "other")
		if n := blocked(); n != 1 {
			t.Errorf("blocked keys: got %d, want 1", n)
		}
		run(skips, "bad", "other", "behind")
		if n := blocked(); n != 0 {
			t.Errorf("blocked keys of a consumer that skips: got %d, want none", n)
		}
		store := testapp.Must[*poison.Store](t)(poison.NewStore(skips.Registry))
		if poisoned := blocks.Poisoned(); len(poisoned) != 1 || !strings.Contains(poisoned[0].Payload, "bad") {
			t.Fatalf("poisoned: got %+v, want the first", poisoned)
		}
		if n, err := store.Discard(t.Context(), db, blocks.Poisoned()[0].ID); n != 1 || err != nil {
			t.Errorf("discard: got %d, %v, want 1", n, err)
		}
	})
}
