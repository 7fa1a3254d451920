package eventlog_test

import (
	"context"
	"errors"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
)

// TestARebuildReplaysWhatEachShardHasHad rebuilds a projection of which one shard
// is behind the other: what that one had not applied is no replay.
func TestARebuildReplaysWhatEachShardHasHad(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l := newLedger(t, db)
		modes := map[string][]string{}
		broken := true
		p := balances()
		p.Shards, p.MaxAttempts = 2, 1
		p.On = []projection.Handler{projection.On(func(ctx context.Context, _ bun.Tx, e moved) error {
			m, _ := bus.MessageFromContext(ctx)
			if e.Amount < 0 && broken {
				return errors.New("broken")
			}
			modes[m.Event.Stream] = append(modes[m.Event.Stream], access.Mode(m))
			return nil
		})}
		r := l.runner(p)
		// Streams of different shards.
		l.append("account-1", eventlog.AnyVersion, moved{-1})
		l.append("account-3", eventlog.AnyVersion, moved{1}, moved{1})
		for range 4 {
			_, _ = r.CatchUp(l.ctx) // it fails in one shard
		}
		if n := l.count("SELECT count(*) FROM event_subscriptions WHERE status = 'halted'"); n != 1 {
			t.Fatalf("halted shards: got %d, want 1", n)
		}
		if len(modes["account-3"]) == 0 {
			ctx, cancel := context.WithCancel(l.ctx)
			go func() {
				eventually(t, "the other shard is done", func() bool {
					return l.count("SELECT count(*) FROM event_subscriptions WHERE position = 3") == 1
				})
				cancel()
			}()
			testapp.OK(t, r.Run(ctx))
		}
		broken = false
		testapp.OK(t, r.Rebuild(l.ctx, "balances"))
		l.catchUp(r)
		if got := modes["account-1"]; len(got) != 1 || got[0] == "replay" {
			t.Errorf("modes of an event that was never applied before: got %v, want no replay", got)
		}
		if got := modes["account-3"]; len(got) != 4 || got[2] != "replay" || got[3] != "replay" {
			t.Errorf("modes of what was applied before: got %v, want two replays in the end", got)
		}
	})
}
