package store_test

import (
	"context"
	"strings"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// TestAnInboxIsCountedByItsIndex: behind the many rows of another receiver lie those of this one, and gauges
// count them every few seconds.
func TestAnInboxIsCountedByItsIndex(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		for _, receiver := range []string{"a", "b"} {
			hash, from := "decode(md5(i::text), 'hex')", "generate_series(1, 60000) i"
			switch db.Dialect().Name() {
			case dialect.MySQL:
				hash, from = "UNHEX(MD5(seq))", "seq_1_to_60000"
			case dialect.SQLite:
				hash, from = "CAST(printf('%016d', i) AS BLOB)", "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000) SELECT i FROM n)"
			}
			a.Exec("INSERT INTO inbox_messages (receiver, hash, received_at) SELECT '" + receiver + "', " + hash + ", " + testapp.NowOf(db) + " FROM " + from)
		}
		a.Exec(map[dialect.Name]string{dialect.PG: "ANALYZE inbox_messages", dialect.MySQL: "ANALYZE TABLE inbox_messages", dialect.SQLite: "ANALYZE"}[db.Dialect().Name()])
		var sent string
		hooked := db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) { sent = query }))
		inbox, err := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{})).Inbox(t.Context(), hooked, "b", 10_000)
		if err != nil || inbox.Hashes != 10_000 {
			t.Fatalf("got %d hashes, error %v, want 10,000", inbox.Hashes, err)
		}
		for _, step := range explainPlan(t, db, sent) {
			if strings.Contains(step, "Seq Scan on") || strings.Contains(step, "Sort") || strings.Contains(step, "B-TREE") || strings.Contains(step, "filesort") {
				t.Errorf("plan: got %q for\n%s", step, sent)
			}
		}
	})
}
