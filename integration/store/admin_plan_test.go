package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
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
		a.Exec(analyzeOf(db))
		client, reader, ctx := a.Admin(), a.PendingReader(), t.Context()
		var sent []string
		hooked := db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) { sent = append(sent, query) }))
		list := func(f admin.Filter) error {
			_, next, err := client.List(ctx, hooked, f, admin.Page{})
			if err == nil && next != nil {
				_, _, err = client.List(ctx, hooked, f, *next)
			}
			return err
		}
		cancelled, cancelErr := client.Cancel(ctx, hooked, 1, 2, 3)
		ran, runErr := client.RunNow(ctx, hooked, 4, 5, 6)
		if cancelled.Changed != 3 || ran.Changed != 3 {
			t.Errorf("changes: got %+v and %+v, want 3 each", cancelled, ran)
		}
		claim, claimErr := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{})).Claims.Claim(ctx, db,
			store.ClaimRequest{Owner: "o", Lease: time.Minute, MaxBytes: 1 << 20,
				Wants: []store.Want{{Consumer: "c7", Payload: "order.placed", Limit: 5}}})
		held, heldErr := reader.ListClaimed(ctx, hooked, claim.ID)
		if len(held) != 5 || len(claim.Messages) != 5 {
			t.Errorf("messages of the claim: got %d of %d, want 5", len(held), len(claim.Messages))
		}
		if err := errors.Join(cancelErr, runErr, claimErr, heldErr, testapp.Second(reader.Head(ctx, hooked, 77, 10)),
			testapp.Second(reader.ListByID(ctx, hooked, 77, 78,
				79)), list(admin.Filter{}), list(admin.Filter{Crashed: true}), list(admin.Filter{Consumer: "c7"}), list(admin.Filter{InsertID: "k7"}),
			list(admin.Filter{Consumer: "c7", State: admin.Ready}), list(admin.Filter{Consumer: "c7", State: admin.Leased}),
			testapp.Second(client.Get(ctx, hooked, 77)), testapp.Second(client.Explain(ctx, hooked, 78))); err != nil {
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
		if explained < 15 {
			t.Errorf("statements explained: got %d, want those of every call", explained)
		}
	})
}

// suffixed is one of twenty names, as SQL.
func suffixed(db *bun.DB) string {
	if db.Dialect().Name() == dialect.MySQL {
		return "CONCAT('c', id % 20)"
	}
	return "'c' || (id % 20)"
}

// explainPlan returns the steps of the plan of a statement, which it does not run.
func explainPlan(t *testing.T, db *bun.DB, query string) (steps []string) {
	t.Helper()
	if db.Dialect().Name().String() == "pg" {
		testapp.OK(t, db.NewRaw("EXPLAIN "+query).Scan(t.Context(), &steps))
		return steps
	}
	if db.Dialect().Name() == dialect.MySQL {
		return explainMariaDB(t, db, query)
	}
	var rows []struct {
		ID, Parent, Notused int
		Detail              string
	}
	testapp.OK(t, db.NewRaw(fmt.Sprint("EXPLAIN QUERY PLAN ", query)).Scan(t.Context(), &rows))
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
		testapp.OK(t, rows.Scan(&id, &selectType, &table, &access, &possible, &key, &keyLen, &ref, &n, &extra))
		verb := "SEARCH"
		if access.String == "ALL" || access.String == "index" {
			verb = "SCAN"
		}
		steps = append(steps, fmt.Sprintf("%s %s BY %s %s", verb, table.String, key.String, extra.String))
	}
	testapp.OK(t, rows.Err())
	return steps
}

// TestPagesReadWhatTheySay: a page that examines some messages reads about as many, wherever it
// begins, and however rare what it looks for is.
func TestPagesReadWhatTheySay(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const examine, all = 100, 20_000
		a := testapp.New(t, db, testapp.Consumed("c"),
			bus.Consume("k", func(context.Context, refund) error { return nil }, bus.Ordered(bus.BlockKey)))
		for range all / 2000 {
			a.ProduceMany(1000)
			for range 1000 / 500 {
				items := make([]outbox.Item, 500)
				for i := range items {
					items[i] = outbox.Item{Payload: refund{}, Options: []outbox.Option{outbox.OrderingKey(fmt.Sprint("key", i%40))}}
				}
				testapp.OK(t, testapp.Second(a.Producer.ProduceMany(t.Context(), db, items...)))
			}
		}
		a.Exec(analyzeOf(db))
		var sent []string
		hooked := db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) { sent = append(sent, query) }))
		client := a.Admin()
		for _, f := range []admin.Filter{{Retrying: true}, {Consumer: "c", Retrying: true}, {Consumer: "k", Retrying: true}} {
			pages, most := 0, 0
			for page := (&admin.Page{ScanLimit: examine}); page != nil; pages++ {
				sent = nil
				list, next, err := client.List(t.Context(), hooked, f, *page)
				if err != nil || len(list) != 0 {
					t.Fatalf("list: got %d messages and %v, want none", len(list), err)
				}
				page = next
				if pages%15 == 3 { // measuring takes its time
					for _, query := range sent {
						most = max(most, rowsRead(t, db, query))
					}
				}
			}
			want := all/2/examine + 1
			if f.Consumer == "" {
				want = all / examine
			}
			if pages < want || pages > want+2 || most > 30*examine {
				t.Errorf("%+v: got %d pages, and one that reads %d rows, want about %d of at most %d", f, pages, most, want, 30*examine)
			}
		}
	})
}

func analyzeOf(db *bun.DB) string {
	if db.Dialect().Name() == dialect.MySQL {
		return "ANALYZE TABLE consumer_messages"
	}
	return "ANALYZE"
}

// rowsRead runs a statement, and tells how many rows it has read of any table, where the database
// tells; SQLite has a plan, which must not sort all there is.
func rowsRead(t *testing.T, db *bun.DB, query string) (rows int) {
	t.Helper()
	switch db.Dialect().Name() {
	case dialect.PG:
		var lines []string
		testapp.OK(t, db.NewRaw("EXPLAIN (ANALYZE, TIMING OFF) "+query).Scan(t.Context(), &lines))
		for _, line := range lines {
			if found := regexp.MustCompile(`actual rows=(\d+)(?:\.\d+)? loops=(\d+)`).FindStringSubmatch(line); found != nil {
				n, _ := strconv.Atoi(found[1])
				loops, _ := strconv.Atoi(found[2])
				rows += n * loops
			}
			if found := regexp.MustCompile(`Rows Removed by (?:Filter|Index Recheck|Join Filter): (\d+)`).FindStringSubmatch(line); found != nil {
				n, _ := strconv.Atoi(found[1])
				rows += n
			}
		}
		return rows
	case dialect.MySQL:
		conn := testapp.Must[bun.Conn](t)(db.Conn(t.Context()))
		defer conn.Close()
		read := func() (n int) {
			var status []struct {
				Name  string `bun:"Variable_name"`
				Value int    `bun:"Value"`
			}
			testapp.OK(t, conn.NewRaw("SHOW SESSION STATUS LIKE 'Handler_read%'").Scan(t.Context(), &status))
			for _, row := range status {
				n += row.Value
			}
			return n
		}
		read()
		before := read()
		idle := read() - before
		before = read()
		result := testapp.Must[*sql.Rows](t)(conn.QueryContext(t.Context(), strings.ReplaceAll(query, "?", "??")))
		for result.Next() { // all of it
		}
		testapp.OK(t, errors.Join(result.Err(), result.Close()))
		return read() - before - idle
	}
	scans := 0 // one is of what was examined
	for _, step := range explainPlan(t, db, query) {
		if strings.HasPrefix(step, "SCAN m") && !strings.Contains(step, "INDEX") || strings.HasPrefix(step, "SCAN l ") {
			scans++
		}
	}
	if scans > 1 {
		t.Errorf("plan: got %d scans for\n%s", scans, query)
	}
	return 0
}
