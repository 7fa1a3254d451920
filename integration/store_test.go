package integration_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *bun.DB{
		"postgres":        func(t *testing.T) *bun.DB { return testdb.Postgres(t) },
		"sqlite":          func(t *testing.T) *bun.DB { return testdb.SQLite(t) },
		"sqlite deferred": openDeferred,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, open)
		})
	}
}

// openDeferred opens SQLite without _txlock=immediate: a transaction takes the
// write lock with its first write only, which must be its first statement.
func openDeferred(t *testing.T) *bun.DB {
	t.Helper()
	conns, err := sql.Open("sqlite", fmt.Sprintf("file:%s/test.db?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)", t.TempDir()))
	if err != nil {
		t.Fatalf("open sqlite: %v", err)
	}
	conns.SetMaxOpenConns(4)
	db := bun.NewDB(conns, sqlitedialect.New())
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestStoreNamesTheDialectsItKnows(t *testing.T) {
	t.Parallel()
	for _, name := range []dialect.Name{dialect.Invalid, dialect.MSSQL, dialect.Oracle} {
		_, err := store.For(name, bus.Tables{})
		if err == nil || !strings.Contains(err.Error(), "pg") || !strings.Contains(err.Error(), "sqlite") {
			t.Errorf("store for %s: got error %v, want one that names pg and sqlite", name, err)
		}
	}
}
