package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestAdminReadsIndexes: what names a message or a consumer, or wants one page,
// must not read the whole table of messages.
func TestAdminReadsIndexes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		for range 5 {
			a.ProduceMany(1000)
		}
		a.Exec("UPDATE consumer_messages SET consumer_type = " + suffixed(db) + ", crashes = CASE WHEN id % 100 = 0 THEN 1 ELSE 0 END")
		analyze := "ANALYZE"
		if db.Dialect().Name() == dialect.MySQL {
			analyze = "ANALYZE TABLE consumer_messages"
		}
		a.Exec(analyze)
		admin, ctx := a.Admin(), t.Context()
		var sent []string
		hooked := db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) { sent = append(sent, query) }))
		list := func(f outbox.Filter) error {
			_, next, err := admin.List(ctx, hooked, f, outbox.Page{})
			if err == nil && next != nil {
				_, _, err = admin.List(ctx, hooked, f, *next)
			}
			return err
		}
		cancelled, cancelErr := admin.Cancel(ctx, hooked, 1, 2, 3)
		ran, runErr := admin.RunNow(ctx, hooked, 4, 5, 6)
		if cancelled.Changed != 3 || ran.Changed != 3 {
			t.Errorf("changes: got %+v and %+v, want 3 each", cancelled, ran)
		}
		if err := errors.Join(cancelErr, runErr, list(outbox.Filter{}), list(outbox.Filter{Crashed: true}), list(outbox.Filter{Consumer: "c7"}), list(outbox.Filter{InsertID: "k7"}),
			list(outbox.Filter{Consumer: "c7", State: outbox.Ready}), list(outbox.Filter{Consumer: "c7", State: outbox.Leased}),
			testapp.Second(admin.Get(ctx, hooked, 77)), testapp.Second(admin.Explain(ctx, hooked, 78))); err != nil {
			t.Fatal(err)
		}
		explained := 0
		for _, query := range sent {
			if !strings.Contains(query, "consumer_messages") {
				continue
			}
			explained++
			for _, step := range explainPlan(t, db, query) {
				if strings.Contains(step, "Seq Scan on consumer_messages") || strings.HasPrefix(step, "SCAN") && !strings.Contains(step, "INDEX") &&
					(strings.HasPrefix(step, "SCAN m") || strings.Contains(step, "consumer_messages")) {
					t.Errorf("plan: got %q for\n%s", step, query)
				}
			}
		}
		if explained < 12 {
			t.Errorf("statements explained: got %d, want those of every call", explained)
		}
	})
}

// suffixed is one of twenty names, as SQL.
func suffixed(db *bun.DB) string {
	if db.Dialect().Name() == dialect.MySQL {
		return "CONCAT('c', id % 20)"
	}
	return "'c' || id % 20"
}

// explainPlan returns the steps of the plan of a statement, which it does not run.
func explainPlan(t *testing.T, db *bun.DB, query string) (steps []string) {
	t.Helper()
	if db.Dialect().Name().String() == "pg" {
		if err := db.NewRaw("EXPLAIN "+query).Scan(t.Context(), &steps); err != nil {
			t.Fatal(err)
		}
		return steps
	}
	if db.Dialect().Name() == dialect.MySQL {
		return explainMariaDB(t, db, query)
	}
	var rows []struct {
		ID, Parent, Notused int
		Detail              string
	}
	if err := db.NewRaw(fmt.Sprint("EXPLAIN QUERY PLAN ", query)).Scan(t.Context(), &rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		steps = append(steps, row.Detail)
	}
	return steps
}

// explainMariaDB writes the steps like those of SQLite.
func explainMariaDB(t *testing.T, db *bun.DB, query string) (steps []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), strings.ReplaceAll("EXPLAIN "+query, "?", "??"))
	if err != nil {
		t.Fatalf("%v in\n%s", err, query)
	}
	defer rows.Close()
	for rows.Next() {
		var id, selectType, table, access, possible, key, keyLen, ref, n, extra sql.NullString
		if err := rows.Scan(&id, &selectType, &table, &access, &possible, &key, &keyLen, &ref, &n, &extra); err != nil {
			t.Fatal(err)
		}
		verb := "SEARCH"
		if access.String == "ALL" || access.String == "index" {
			verb = "SCAN"
		}
		steps = append(steps, fmt.Sprintf("%s %s BY %s %s", verb, table.String, key.String, extra.String))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return steps
}
