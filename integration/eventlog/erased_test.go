package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func (a *app) saveSnapshot(ctx context.Context, tx bun.Tx, stream string) error {
	return logaccess.SaveSnapshot(ctx, a.log, tx, stream, "k", store.Snapshot{Version: 1, State: []byte("name: Alice")})
}

// TestNoSnapshotBringsBackWhatWasErased saves a state that was read before.
func TestNoSnapshotBringsBackWhatWasErased(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db)
		a.append("account-1", eventlog.AnyVersion, moved{1})
		save := func(stream string) error {
			return a.inTx(func(ctx context.Context, tx bun.Tx) error { return a.saveSnapshot(ctx, tx, stream) })
		}
		for _, stream := range []string{"account-1", "account-none"} {
			if err := save(stream); err != nil {
				t.Errorf("save of %s: %v", stream, err)
			}
		}
		testapp.OK(t, a.inTx(func(ctx context.Context, tx bun.Tx) error { return a.log.Tombstone(ctx, tx, "account-1") }))
		if err := save("account-1"); !errors.Is(err, eventlog.ErrTombstoned) {
			t.Errorf("save of a stream that was erased: got %v, want ErrTombstoned", err)
		}
		if _, ok, err := logaccess.Snapshot(a.ctx, a.log, db, "account-1", "k"); ok || err != nil {
			t.Errorf("snapshot of a stream that was erased: got %t and %v, want none", ok, err)
		}
	})
}

// TestSavingAndErasingAtOnce begins one of them while the other is under way. One of a
// stricter isolation has begun to read before.
func TestSavingAndErasingAtOnce(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	a := newApp(t, db)
	for i, level := range []string{"READ COMMITTED", "REPEATABLE READ"} {
		for name, saveFirst := range map[string]bool{"erase first": false, "save first": true} {
			stream := fmt.Sprintf("account-%d %s", i, name)
			a.append(stream, eventlog.AnyVersion, moved{1})
			save := func(tx bun.Tx) error { return a.saveSnapshot(a.ctx, tx, stream) }
			erase := func(tx bun.Tx) error { return a.log.Tombstone(a.ctx, tx, stream) }
			first, second := erase, save
			if saveFirst {
				first, second = save, erase
			}
			begin := func() bun.Tx {
				tx := testapp.Must[bun.Tx](t)(db.BeginTx(a.ctx, nil))
				t.Cleanup(func() { _ = tx.Rollback() })
				return tx
			}
			one, other := begin(), begin()
			testapp.OK(t, testapp.Second(other.ExecContext(a.ctx, "SET TRANSACTION ISOLATION LEVEL "+level+"; SELECT 1 FROM events")))
			testapp.OK(t, first(one))
			done := make(chan error, 1)
			go func() {
				err := second(other)
				if err == nil {
					err = other.Commit()
				}
				done <- err
			}()
			eventually(t, "the other waits, or does not", func() bool {
				return len(done) > 0 || a.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") > 0
			})
			testapp.OK(t, one.Commit())
			err := <-done
			erased := a.count("SELECT count(*) FROM event_streams WHERE stream = ? AND closed", stream) == 1
			_, saved, _ := logaccess.Snapshot(a.ctx, a.log, db, stream, "k")
			if erased == saved {
				t.Errorf("%s, %s: got %v, erased %t, and a snapshot %t", level, name, err, erased, saved)
			}
			if level == "READ COMMITTED" && (saveFirst && err != nil || !saveFirst && !errors.Is(err, eventlog.ErrTombstoned)) {
				t.Errorf("%s, %s: got %v", level, name, err)
			}
		}
	}
}
