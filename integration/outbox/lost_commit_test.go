package outbox_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestALostCommitCostsNoAttempt cuts the connection of a transactional consumer
// before its COMMIT reaches the server: nobody is at fault, so nothing is counted.
func TestALostCommitCostsNoAttempt(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	proxy, through, err := chaos.NewProxyTo(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)

	var runs, lost, charged atomic.Int64
	a := testapp.New(t, testdb.OpenPostgres(t, through), outbox.ConsumeTx("c", func(ctx context.Context, _ bun.Tx, _ order) error {
		if m, _ := bus.Current(ctx); m.Attempt > 1 {
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
	watcher.DB = testdb.OpenPostgres(t, dsn)
	r := a.Start(testapp.Fast())
	testapp.Eventually(t, "everything is consumed", watcher.Empty)
	r.MustStop()
	if lost.Load() < 10 || charged.Load() > 0 {
		t.Errorf("runs after a lost commit that count as another attempt: got %d, want none of %d commits lost", charged.Load(), min(lost.Load(), 10))
	}
}
