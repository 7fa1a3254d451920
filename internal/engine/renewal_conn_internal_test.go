package engine

// An internal test: no external test can have a renewal hang while those of others are due.

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

// reachable is a database whose connections are never used.
type reachable struct{ driver.Conn }

func (r reachable) Connect(context.Context) (driver.Conn, error) { return r, nil }
func (reachable) Driver() driver.Driver                          { return nil }
func (reachable) Close() error                                   { return nil }

// TestProcessorsShareTheConnectionForRenewals, and one whose renewal hangs does not delay another's.
// Promise: pool
func TestProcessorsShareTheConnectionForRenewals(t *testing.T) {
	t.Parallel()
	db := bun.NewDB(sql.OpenDB(reachable{}), pgdialect.New())
	defer func() { _ = db.Close() }()
	first, releaseFirst := renewalConnOf(db.DB)
	second, releaseSecond := renewalConnOf(db.DB)
	renew := func(c *renewalConn, during func(bun.IDB)) {
		if err := c.use(t.Context(), db, func(_ context.Context, db bun.IDB) error { during(db); return nil }); err != nil {
			t.Errorf("renewal: %v", err)
		}
	}
	inUse := func(when string, want int) {
		t.Helper()
		if got := db.Stats().InUse; got != want {
			t.Errorf("%s: got %d connections in use, want %d", when, got, want)
		}
	}
	renew(first, func(bun.IDB) { inUse("during a renewal", 1) })
	renew(second, func(bun.IDB) { inUse("during the second one's", 1) })
	renew(first, func(bun.IDB) {
		renew(second, func(other bun.IDB) {
			if other != bun.IDB(db) {
				t.Errorf("while the first one's hangs: got %T, want the pool", other)
			}
		})
	})
	releaseFirst()
	inUse("with one processor left", 1)
	releaseSecond()
	inUse("with none", 0)
}
