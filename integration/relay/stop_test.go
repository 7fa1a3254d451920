package relay_test

import (
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// TestAStopWhileTheDatabaseHangs takes no longer the more shards there are.
func TestAStopWhileTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	proxy, through, err := chaos.NewProxyTo(testdb.PostgresDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	l, s := newLedger(t, testdb.OpenPostgres(t, through)), newShelf()
	l.deposit(40, 2)
	_, stop := l.runs(bankWith(s, relay.LogConfig{Shards: 8}))
	testapp.Eventually(t, "all is published", func() bool { return l.done() })
	proxy.Stall(true)
	t.Cleanup(func() { proxy.Stall(false) }) // also for what else is cleaned up
	began := time.Now()
	stop()
	if took := time.Since(began); took > 30*time.Second { // a statement of a shard, and that which returns the leases, have 5 s each
		t.Errorf("the stop took %s, want it within 30 s", took.Round(time.Second))
	}
}
