package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// fillInbox writes 20,000 hashes of two receivers: half of each are ten days old.
func fillInbox(a *testapp.App) {
	a.Helper()
	const rows = "INSERT INTO inbox_messages (receiver, hash, received_at) SELECT CASE WHEN i % 2 = 0 THEN 'from-shop' ELSE 'from-bank' END, "
	old, young := testapp.In(a.DB, -10*24*time.Hour), testapp.In(a.DB, -time.Hour)
	at := "CASE WHEN i % 4 < 2 THEN " + old + " ELSE " + young + " END"
	switch a.DB.Dialect().Name() {
	case dialect.PG:
		a.Exec(rows + "decode(md5(CAST(i AS text)), 'hex'), " + at + " + i * interval '1 ms' FROM generate_series(1, 20000) i")
		a.Exec("ANALYZE inbox_messages")
	case dialect.MySQL:
		a.Exec(rows + "UNHEX(MD5(i)), " + at + " + i * 1000 FROM (SELECT seq AS i FROM seq_1_to_20000) s")
		a.Exec("ANALYZE TABLE inbox_messages")
	default:
		a.Exec(rows + "randomblob(16), " + at +
			" + i * 1000 FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT i FROM n)")
		a.Exec("ANALYZE")
	}
}

// TestForgettingReadsNoMoreThanItDeletes: neither all rows of a receiver nor all of the table, and the oldest go first.
func TestForgettingReadsNoMoreThanItDeletes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const limit, most = 100, 900 // each row is counted at several steps of a plan
		a := testapp.New(t, db, testapp.Consumed("c"))
		fillInbox(a)
		s := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{}))
		var sent []string
		hooked := db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) { sent = append(sent, query) }))
		n, err := s.Inbox.Forget(t.Context(), hooked, "from-shop", 7*24*time.Hour, limit)
		if err != nil || n != limit || len(sent) != 1 {
			t.Fatalf("forget: got %d, error %v and %d statements, want %d in one", n, err, len(sent), limit)
		}
		if read := rowsRead(t, db, sent[0]); read > most {
			t.Errorf("got %d rows read, want %d at most, for\n%s", read, most, sent[0])
		}
		for _, step := range explainPlan(t, db, sent[0]) {
			if strings.Contains(step, "SCAN inbox_messages") || strings.Contains(step, "TEMP B-TREE") ||
				strings.Contains(step, "filesort") || strings.Contains(step, "Seq Scan") {
				t.Errorf("plan: got %q for\n%s", step, sent[0])
			}
		}
	})
}

// TestReportsAreForgottenByTheirAge: where an index is named, it has the rows in the order in which they go.
func TestReportsAreForgottenByTheirAge(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		testapp.New(t, db, testapp.Consumed("c"))
		s := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{}))
		var sent []string
		hooked := db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) { sent = append(sent, query) }))
		if n, err := s.Reports.ForgetReports(t.Context(), hooked, 100); err != nil || n != 0 || len(sent) != 5 {
			t.Fatalf("forget: got %d, error %v and %d statements, want 0 in 5", n, err, len(sent))
		}
		for _, query := range sent {
			for _, step := range explainPlan(t, db, query) {
				if strings.Contains(step, "TEMP B-TREE") || strings.Contains(step, "filesort") {
					t.Errorf("plan: got %q for\n%s", step, query)
				}
			}
		}
	})
}

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
			a.Exec("INSERT INTO inbox_messages (receiver, hash, received_at) SELECT '" + receiver + "', " + hash + ", " + testapp.NowOf(db) +
				" FROM " + from)
		}
		a.Exec(map[dialect.Name]string{dialect.PG: "ANALYZE inbox_messages", dialect.MySQL: "ANALYZE TABLE inbox_messages",
			dialect.SQLite: "ANALYZE"}[db.Dialect().Name()])
		var sent string
		hooked := db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) { sent = query }))
		inbox, err := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{})).Inbox.Size(t.Context(), hooked, "b", 10_000)
		if err != nil || inbox.Hashes != 10_000 {
			t.Fatalf("got %d hashes, error %v, want 10,000", inbox.Hashes, err)
		}
		for _, step := range explainPlan(t, db, sent) {
			if strings.Contains(step, "Seq Scan on") || strings.Contains(step, "Sort") || strings.Contains(step, "B-TREE") ||
				strings.Contains(step, "filesort") {
				t.Errorf("plan: got %q for\n%s", step, sent)
			}
		}
	})
}
