package txn_test

import (
	"context"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestAnIdleTransactionOfTheLibraryIsEndedByTheServer: its client does nothing for longer than five seconds, and a lock that it
// has is free again.
// Promise: stalled-client
func TestAnIdleTransactionOfTheLibraryIsEndedByTheServer(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	db, other := testdb.OpenPostgres(t, dsn), testdb.OpenPostgres(t, dsn)
	testapp.OK(t, testapp.Second(db.ExecContext(t.Context(), "CREATE TABLE rows (id int PRIMARY KEY); INSERT INTO rows VALUES (1)")))
	locked, proceed := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- txn.RunOwn(context.WithoutCancel(t.Context()), db, func(ctx context.Context, tx bun.Tx) error {
			if _, err := tx.NewRaw("SELECT id FROM rows FOR UPDATE").Exec(ctx); err != nil {
				return err
			}
			close(locked)
			<-proceed // it stands still
			return nil
		})
	}()
	<-locked
	free := func() bool {
		_, err := other.ExecContext(t.Context(), "SELECT id FROM rows FOR UPDATE NOWAIT")
		return err == nil
	}
	if free() {
		t.Error("the row is free at once, want it locked")
	}
	testapp.Poll(t, "the row is free", time.Minute, 100*time.Millisecond, free)
	close(proceed)
	if err := <-ended; err == nil {
		t.Error("the transaction that was ended: got no error")
	}
}

// TestALayerHoldsInsertIDsForABoundedTime: another process produces with the insert id of a message whose layer does not return.
// Promise: stalled-client
func TestALayerHoldsInsertIDsForABoundedTime(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	a, other := testapp.New(t, testdb.OpenPostgres(t, dsn), testapp.Consumed("c")), testdb.OpenPostgres(t, dsn)
	written, proceed := make(chan struct{}), make(chan struct{})
	layered := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry, outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{
		func(next bus.ProduceFunc) bus.ProduceFunc {
			return func(ctx context.Context, b *bus.Batch) error {
				err := next(ctx, b)
				close(written)
				<-proceed // it stands still
				return err
			}
		}}}))
	ended := make(chan error, 1)
	go func() { ended <- testapp.Second(layered.Produce(a.Context(), a.DB, order{}, outbox.InsertID("once"))) }()
	<-written
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := a.Producer.Produce(ctx, other, order{}, outbox.InsertID("once")); err != nil {
		t.Errorf("produce beside it: %v", err)
	}
	close(proceed)
	if err := <-ended; err == nil {
		t.Error("the transaction that was ended: got no error")
	}
}
