package eventlog_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestAClaimIsNotGivenBackWhileItsEventsAreRead: reading them can take longer than a
// lease, while somebody has the table locked.
func TestAClaimIsNotGivenBackWhileItsEventsAreRead(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var now, overlaps, runs, started atomic.Int64
	long := make(chan struct{})
	a := newApp(t, db, bus.Consume("long", func(context.Context, opened) error { started.Add(1); <-long; return nil },
		bus.Timeout(time.Minute)),
		bus.Consume("c", func(context.Context, moved) error {
			if now.Add(1) > 1 {
				overlaps.Add(1)
			}
			defer now.Add(-1)
			runs.Add(1)
			<-time.After(500 * time.Millisecond)
			return nil
		}))
	defer close(long)
	for range 2 {
		processor, err := outbox.NewProcessor(a.db, a.registry,
			outbox.ProcessorConfig{LeaseDuration: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		running(t, "processor", processor.Run)
	}
	for range 4 { // so that renewals have something to do
		a.append("account-0", eventlog.AnyVersion, opened{"x"})
	}
	eventually(t, "they run", func() bool { return started.Load() == 4 })
	lock, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Rollback()                                     //nolint:errcheck // nothing is written
	err = a.inTx(func(ctx context.Context, tx bun.Tx) error { // due once the table is locked
		if _, err := a.log.Append(ctx, tx, "account-1", eventlog.AnyVersion, moved{1}); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE consumer_messages SET available_after = now() + interval '1 second' WHERE consumer_type = 'c'")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	testapp.OK(t, testapp.Second(lock.ExecContext(t.Context(), "LOCK TABLE events IN ACCESS EXCLUSIVE MODE")))
	<-time.After(4 * time.Second)
	testapp.OK(t, lock.Rollback())
	eventually(t, "it ran", func() bool { return a.count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'c'") == 0 })
	if runs.Load() != 1 || overlaps.Load() != 0 {
		t.Errorf("runs of one message: got %d, of which %d beside another, want one", runs.Load(), overlaps.Load())
	}
}
