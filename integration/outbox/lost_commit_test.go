package outbox_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// proxied is a database behind a proxy, and the same one past it.
func proxied(t *testing.T) (proxy *chaos.Proxy, through, past *bun.DB) {
	t.Helper()
	dsn := testdb.PostgresDSN(t)
	proxy, way, err := chaos.NewProxyTo(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy, testdb.OpenPostgres(t, way), testdb.OpenPostgres(t, dsn)
}

// TestALostCommitCostsNoAttempt cuts the connection of a transactional consumer
// before its COMMIT reaches the server: nobody is at fault, so nothing is counted.
func TestALostCommitCostsNoAttempt(t *testing.T) {
	t.Parallel()
	proxy, db, direct := proxied(t)
	var runs, lost, charged atomic.Int64
	a := testapp.New(t, db, outbox.ConsumeTx("c", func(ctx context.Context, _ bun.Tx, _ order) error {
		if m, _ := bus.MessageFromContext(ctx); m.Attempt > 1 {
			charged.Add(1)
		}
		runs.Add(1)
		return nil
	}))
	a.ProduceMany(20)
	proxy.Decide(func(sql string) chaos.Fault {
		if strings.EqualFold(sql, "commit") && runs.Load() > 0 && lost.Add(1) <= 10 {
			return chaos.DropQuery
		}
		return chaos.Forward
	})
	watcher := *a
	watcher.DB = direct
	r := a.Start(testapp.Fast())
	testapp.Eventually(t, "everything is consumed", watcher.Empty)
	r.MustStop()
	if lost.Load() < 10 || charged.Load() > 0 {
		t.Errorf("runs after a lost commit that count as another attempt: got %d, want none of %d commits lost", charged.Load(),
			min(lost.Load(), 10))
	}
}

// TestATrickleDoesNotPutOffTheKeeper: claims whose commit was never confirmed are given back
// while messages come and go, one at a time.
func TestATrickleDoesNotPutOffTheKeeper(t *testing.T) {
	t.Parallel()
	proxy, db, direct := proxied(t)
	var recorded atomic.Bool
	var lost atomic.Int64
	var ran sync.Map // of the numbers of messages
	a := testapp.New(t, db, bus.Consume("c", func(_ context.Context, o order) error { ran.Store(o.N, true); return nil }))
	watcher := *a
	watcher.DB = direct
	config := testapp.Fast()
	config.LeaseDuration = 4 * time.Second
	r := a.Start(config)
	produced := 0
	produce := func() { watcher.Produce(order{N: produced}); produced++ }
	allRan := func(n int) bool {
		for i := range n {
			if _, ok := ran.Load(i); !ok {
				return false
			}
		}
		return true
	}
	produce()
	testapp.Eventually(t, "the first ran", func() bool { return allRan(1) })
	proxy.Decide(func(sql string) chaos.Fault {
		if strings.Contains(sql, `INSERT INTO "message_claims"`) {
			recorded.Store(true)
		} else if strings.EqualFold(sql, "commit") && recorded.Load() && lost.Add(1) == 1 {
			return chaos.DropReply
		}
		return chaos.Forward
	})
	before := 0 // messages from before the commit was lost
	testapp.Poll(t, "the claim is given back beside others", 2*time.Minute, 40*time.Millisecond, func() bool {
		if before == 0 && lost.Load() > 0 {
			before = produced
		}
		if before > 0 && allRan(before) {
			return true
		}
		produce()
		return false
	})
	r.MustStop()
	if s := r.Stats(); s.Recovered != 0 || s.Crashed != 0 {
		t.Errorf("got %d claims recovered and %d crashes, want the claim given back", s.Recovered, s.Crashed)
	}
}
