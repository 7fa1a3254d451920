package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/storetest"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Promise: fenced, graceful-stop, poison, key-order, limits, mariadb
func TestStore(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *bun.DB{
		"postgres": func(t *testing.T) *bun.DB { return testdb.Postgres(t) },
		"mariadb":  func(t *testing.T) *bun.DB { return testdb.MariaDB(t) },
		"sqlite":   func(t *testing.T) *bun.DB { return testdb.SQLite(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, open)
		})
	}
}

// TestStoreUnderOtherSettings: an application has its own for its sessions.
func TestStoreUnderOtherSettings(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *bun.DB{
		"postgres, serializable by default": func(t *testing.T) *bun.DB {
			return testdb.OpenPostgres(t, testdb.PostgresDSN(t, testdb.Isolation("serializable")))
		},
		"mariadb": func(t *testing.T) *bun.DB {
			return testdb.OpenMariaDB(t, testdb.MariaDBDSN(t, "tx_isolation='SERIALIZABLE'", "clientFoundRows=true", "time_zone='+05:00'",
				"parseTime=true", "loc=Asia/Tokyo", "sql_mode='ANSI,TRADITIONAL,PIPES_AS_CONCAT'"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, open)
		})
	}
}

// TestStoreWritesFirst opens SQLite without _txlock=immediate, as a user may. A
// transaction then takes the write lock with its first write: when that is not
// its first statement, it fails as soon as somebody else has written in between.
func TestStoreWritesFirst(t *testing.T) {
	t.Parallel()
	conns, err := sql.Open("sqlite", fmt.Sprintf("file:%s/test.db?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)", t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	db := bun.NewDB(conns, sqlitedialect.New())
	t.Cleanup(func() { _ = db.Close() })
	s := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{}))
	ctx := context.WithoutCancel(t.Context())
	var migrations sync.WaitGroup
	for range 4 {
		migrations.Go(func() {
			if err := s.Schema.Migrate(ctx, db); err != nil {
				t.Errorf("migrate: %v", err)
			}
		})
	}
	migrations.Wait()
	wants := []store.Want{{Consumer: "c", Payload: "p", Limit: 5}}
	var workers sync.WaitGroup
	for i := range 4 {
		workers.Go(func() {
			for round := range 15 {
				if err := writeFirst(ctx, s, db, fmt.Sprint("owner-", i), wants); err != nil {
					t.Errorf("round %d: %v", round, err)
					return
				}
			}
		})
	}
	workers.Wait()
}

// writeFirst goes once through everything that writes.
func writeFirst(ctx context.Context, s *store.Store, db *bun.DB, owner string, wants []store.Want) error {
	rows := make([]store.NewMessage, 4)
	for i := range rows {
		rows[i] = store.NewMessage{ConsumerType: "c", PayloadType: "p", Payload: "{}", InsertID: fmt.Sprint(owner, i)}
	}
	_, inserted := s.Outbox.Insert(ctx, db, rows)
	done, claimed := s.Claims.Claim(ctx, db, store.ClaimRequest{Owner: owner, Lease: time.Minute, Wants: wants, MaxBytes: 1 << 20})
	_, finished := s.Claims.Finish(ctx, db, owner, []int64{done.ID})
	c, claimedAgain := s.Claims.Claim(ctx, db, store.ClaimRequest{Owner: owner, Lease: time.Minute, Wants: wants, MaxBytes: 1 << 20})
	var fenced, settled error
	if len(c.Messages) > 0 {
		m := c.Messages[0]
		fenced = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			_, err := s.Claims.Fence(ctx, tx, store.Fence{Owner: owner,
				Messages: []store.Fenced{{Claim: c.ID, ID: m.ID, Attempts: m.Attempts, Crashes: m.Crashes}}})
			return err
		})
		_, settled = s.Claims.Settle(ctx, db, owner, time.Minute, []store.Result{{Claim: c.ID, Message: m.ID, Outcome: store.Failed}})
	}
	_, extended := s.Claims.Extend(ctx, db, owner, time.Minute)
	disclaimed := s.Claims.Disclaim(ctx, db, owner, []int64{c.ID})
	_, recovered := s.Claims.Recover(ctx, db, 3)
	_, existing := s.Claims.Exists(ctx, db, 1)
	return errors.Join(inserted, claimed, finished, claimedAgain, fenced, settled, extended, disclaimed, recovered, existing)
}

func TestStoreNamesTheDialectsItKnows(t *testing.T) {
	t.Parallel()
	for _, name := range []dialect.Name{dialect.Invalid, dialect.MSSQL, dialect.Oracle} {
		_, err := store.For(name, bus.Tables{})
		if err == nil || !strings.Contains(err.Error(), "pg") || !strings.Contains(err.Error(), "sqlite") ||
			!strings.Contains(err.Error(), "mysql") {
			t.Errorf("store for %s: got error %v, want one that names pg, sqlite and mysql", name, err)
		}
	}
}

// TestManyMigrateANewFile has the first connections to a file meet: each makes a
// WAL database of it, which SQLite refuses while another is at it.
func TestManyMigrateANewFile(t *testing.T) {
	t.Parallel()
	for round := range 8 {
		db := testdb.OpenSQLite(t, filepath.Join(t.TempDir(), fmt.Sprintf("new-%d.db", round)))
		gate := make(chan struct{})
		var instances sync.WaitGroup
		for i := range 4 {
			instances.Go(func() {
				<-gate
				if err := outbox.Migrate(context.WithoutCancel(t.Context()), db, bus.Tables{Prefix: fmt.Sprintf("t%d_", i)}); err != nil {
					t.Errorf("round %d: migrate: %v", round, err)
				}
			})
		}
		close(gate)
		instances.Wait()
	}
}
