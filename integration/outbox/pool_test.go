package outbox_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// competeForThePool has forty consumers compete for a pool that is just as large as
// the processor asks for, for as many leases of two seconds. Whoever waits for a
// connection is served in random order, so renewals must not wait with them.
func competeForThePool(t *testing.T, leases int, refuse string) *app {
	const consumers = 40
	config := testapp.Fast()
	config.LeaseDuration = 2 * time.Second
	db := testdb.Postgres(t)
	var cancelled, ended atomic.Int64
	a := testapp.New(t, db, bus.Consume("c", func(ctx context.Context, _ order) error {
		defer ended.Add(1)
		for end := time.Now().Add(time.Duration(leases) * config.LeaseDuration); time.Now().Before(end); {
			if _, err := db.NewRaw("SELECT pg_sleep(0.1)").Exec(ctx); err != nil {
				cancelled.Add(1)
				return err
			}
		}
		return nil
	}, bus.Timeout(time.Minute)))
	if refuse != "" {
		a.Exec(refuse)
	}
	a.ProduceMany(consumers)
	db.SetMaxOpenConns(3)
	r := a.Start(config)
	testapp.Eventually(t, "every consumer has ended", func() bool { return ended.Load() >= consumers })
	if n := cancelled.Load(); n > 0 {
		t.Errorf("consumers that lost their lease: got %d of %d, want none", n, consumers)
	}
	r.MustStop()
	return a
}

// Promise: pool
func TestConsumersThatUseThePoolUpKeepTheirLeases(t *testing.T) {
	t.Parallel()
	competeForThePool(t, 3, "")
}

// TestRenewalsKeepTheirConnection has every third renewal refused, as it is while a
// disk is full. The connection is none the worse for it: a renewal that gave it
// back would wait for the next one with all the consumers, for longer than a lease.
// Promise: pool
func TestRenewalsKeepTheirConnection(t *testing.T) {
	t.Parallel()
	const leases = 3
	a := competeForThePool(t, leases, `CREATE SEQUENCE renewals;
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('renewals') % 3 = 0 THEN RAISE 'no room' USING ERRCODE = 'disk_full'; END IF;
			RETURN NEW; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE ON message_claims FOR EACH ROW
			WHEN (OLD.message_ids = NEW.message_ids) EXECUTE FUNCTION refuse()`)
	if n := a.Count("SELECT last_value FROM renewals"); n < 2*leases {
		t.Errorf("renewals: got %d in %d leases, want two a lease and more", n, leases)
	}
}

// TestProcessorsOfAPoolShareTheConnectionForRenewals: there are more processors than connections. All start, and keep the leases of
// consumers that use up the pool, also after the processor that opened the connection has stopped.
// Promise: pool
func TestProcessorsOfAPoolShareTheConnectionForRenewals(t *testing.T) {
	t.Parallel()
	const processors, connections, consumers = 5, 3, 40
	config := testapp.Fast()
	config.LeaseDuration = 4 * time.Second
	config.Concurrency = consumers / (processors - 1)
	db := testdb.Postgres(t)
	var cancelled, ended atomic.Int64
	a := testapp.New(t, db, bus.Consume("c", func(ctx context.Context, _ order) error {
		defer ended.Add(1)
		for end := time.Now().Add(2 * config.LeaseDuration); time.Now().Before(end); {
			if _, err := db.NewRaw("SELECT pg_sleep(0.1)").Exec(ctx); err != nil {
				cancelled.Add(1)
				return err
			}
		}
		return nil
	}, bus.Timeout(time.Minute)))
	db.SetMaxOpenConns(connections)
	var running []*testapp.Running
	for range processors {
		r := a.Start(config)
		testapp.Eventually(t, "the processor is ready", func() bool { return r.Health().Ready })
		running = append(running, r)
	}
	running[0].MustStop()
	a.ProduceMany(consumers)
	testapp.Eventually(t, "every consumer has ended", func() bool { return ended.Load() >= consumers })
	if n := cancelled.Load(); n > 0 {
		t.Errorf("consumers that lost their lease: got %d of %d, want none", n, consumers)
	}
	for _, r := range running[1:] {
		r.MustStop()
	}
	if used := db.Stats().InUse; used != 0 {
		t.Errorf("connections in use after all have stopped: got %d, want 0", used)
	}
}

// collisions counts statements that were prepared although the connection had them.
type collisions struct{ n atomic.Int64 }

func (*collisions) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

func (c *collisions) AfterQuery(_ context.Context, e *bun.QueryEvent) {
	if e.Err != nil && strings.Contains(e.Err.Error(), "already exists") {
		c.n.Add(1)
	}
}

// TestPartsOfAProgramPrepareNoStatementTwice: processors of one pool know nothing of each other, and look what a connection has.
func TestPartsOfAProgramPrepareNoStatementTwice(t *testing.T) {
	t.Parallel()
	var seen collisions
	var runs atomic.Int64
	db := testdb.OpenPostgres(t, testdb.DirectDSN(t)).WithQueryHook(&seen)
	a := testapp.New(t, db, testapp.Counting("c", &runs))
	var processors []*testapp.Running
	for range 3 {
		processors = append(processors, a.Start(testapp.Fast()))
	}
	for range 50 {
		if _, err := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry, outbox.ProducerConfig{})).Produce(t.Context(), db,
			order{ID: "1"}); err != nil {
			t.Fatal(err)
		}
	}
	testapp.Eventually(t, "all ran", func() bool { return runs.Load() == 50 })
	for _, r := range processors {
		r.MustStop()
	}
	if n := seen.n.Load(); n > 0 {
		t.Errorf("got %d statements prepared twice on a connection, want none", n)
	}
}

// TestAConsumerMayDropPreparedStatements: its connection then lacks those of the library, too. The run that dropped them fails,
// and none after it.
func TestAConsumerMayDropPreparedStatements(t *testing.T) {
	t.Parallel()
	var ran, dropped atomic.Int64
	a := testapp.New(t, testdb.Postgres(t), outbox.ConsumeTx("c", func(ctx context.Context, tx bun.Tx, o order) error {
		if ran.Add(1); o.ID == "drops" && dropped.Add(1) == 1 {
			if _, err := tx.ExecContext(ctx, "DEALLOCATE ALL"); err != nil {
				return err
			}
		}
		return nil
	}, bus.AttemptDelay(time.Millisecond)))
	r := a.Start(testapp.Fast())
	for _, id := range []string{"before", "drops", "after", "after"} {
		a.Produce(order{ID: id})
		testapp.Eventually(t, "all are consumed", a.Empty)
	}
	r.MustStop()
	if got := ran.Load(); got != 5 {
		t.Errorf("got %d runs of 4 messages, want 5: one failed", got)
	}
}
