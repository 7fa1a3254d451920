package txn_test

import (
	"context"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
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
