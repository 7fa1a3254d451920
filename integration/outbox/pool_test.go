package outbox_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
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
