package integration_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestALostCommitCostsNoAttempt cuts the connection of a transactional consumer
// before its COMMIT reaches the server: nobody is at fault, so nothing is counted.
func TestALostCommitCostsNoAttempt(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	config := must[*pgx.ConnConfig](t)(pgx.ParseConfig(dsn))
	network, address := "tcp", fmt.Sprintf("%s:%d", config.Host, config.Port)
	if strings.HasPrefix(config.Host, "/") {
		network, address = "unix", fmt.Sprintf("%s/.s.PGSQL.%d", config.Host, config.Port)
	}
	proxy := must[*chaos.Proxy](t)(chaos.NewProxy(network, address))
	t.Cleanup(proxy.Close)
	through := must[*url.URL](t)(url.Parse(dsn))
	query := through.Query()
	query.Set("host", "127.0.0.1")
	query.Set("port", fmt.Sprint(proxy.Port()))
	through.Host, through.RawQuery = "", query.Encode()

	var runs, lost, charged atomic.Int64
	a := newApp(t, testdb.OpenPostgres(t, through.String()), outbox.ConsumeTx("c", func(ctx context.Context, _ bun.Tx, _ order) error {
		if m, _ := bus.Current(ctx); m.Attempt > 1 {
			charged.Add(1)
		}
		runs.Add(1)
		return nil
	}))
	a.produceMany(20)
	proxy.Decide(func(sql string) chaos.Fault {
		if strings.EqualFold(sql, "commit") && runs.Load() > 0 && lost.Add(1) <= 10 {
			return chaos.DropQuery
		}
		return chaos.Forward
	})
	watcher := *a
	watcher.db = testdb.OpenPostgres(t, dsn)
	r := a.start(fast())
	eventually(t, "everything is consumed", watcher.empty)
	r.mustStop()
	if lost.Load() < 10 || charged.Load() > 0 {
		t.Errorf("runs after a lost commit that count as another attempt: got %d, want none of %d commits lost", charged.Load(), min(lost.Load(), 10))
	}
}
