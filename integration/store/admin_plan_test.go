package store_test

import (
	"context"
	"database/sql"
	"encoding/json"
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
	"github.com/asyncmonolith/asyncmonolith-go/internal/poisoned"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
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
		if n, err := s.Reports.ForgetReports(t.Context(), hooked, 100); err != nil || n != 0 || len(sent) != 7 {
			t.Fatalf("forget: got %d, error %v and %d statements, want 0 in 7", n, err, len(sent))
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

// fillPoisoned writes 20,000 poisoned messages: of twenty consumers, in four groups each, one of which is
// unclassified.
func fillPoisoned(a *testapp.App) {
	a.Helper()
	now := testapp.NowOf(a.DB)
	insert := func(id, uid, from string) {
		at := now + " - " + id + " * 1000"
		if a.DB.Dialect().Name() == dialect.PG {
			at = now + " - " + id + " * interval '1 ms'"
		}
		a.Exec(`INSERT INTO poisoned_messages (id, message_id, consumer_type, payload_type, payload, created_at, available_after, attempts, crashes, poisoned_at, reason, fingerprint)
			SELECT ` + id + `, ` + uid + `, CONCAT('c', ` + id + ` % 20), 'order.placed', '{}', ` + now + `, ` + now + `, 5, 0, ` + at + `, 'r',
			CASE WHEN ` + id + ` % 80 < 20 THEN NULL WHEN ` + id + ` % 80 < 40 THEN '1a' WHEN ` + id +
			` % 80 < 60 THEN '1b' ELSE '1c' END FROM ` + from)
	}
	switch a.DB.Dialect().Name() {
	case dialect.PG:
		insert("i", "gen_random_uuid()", "generate_series(1, 20000) i")
		a.Exec("VACUUM ANALYZE poisoned_messages")
	case dialect.MySQL:
		insert("seq", "UUID()", "seq_1_to_20000")
		a.Exec("ANALYZE TABLE poisoned_messages")
	default:
		insert("i", "printf('%032d', i)", "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT i FROM n)")
		a.Exec("ANALYZE")
	}
}

// TestPoisonReadsNoMoreThanItShows: what a console asks again and again reads so many rows at most, of 20,000.
func TestPoisonReadsNoMoreThanItShows(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c7"))
		fillPoisoned(a)
		s := testapp.Must[*poisoned.Store](t)(poisoned.NewStore(a.Registry))
		conn := testapp.Must[bun.Conn](t)(db.Conn(t.Context()))
		defer conn.Close()
		inner := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{}))
		sizes, err := inner.Poison.GroupSizes(t.Context(), db,
			[]store.GroupKey{{ConsumerType: "c7", Fingerprint: "1a"}, {ConsumerType: "c7"}, {ConsumerType: "c7", Fingerprint: "gone"}}, 100)
		if err != nil || len(sizes) != 3 || sizes[0].Messages != 100 || sizes[1].Messages != 100 || sizes[2].Messages != 0 {
			t.Errorf("counted up to 100: got %+v, error %v, want 100, 100 and 0", sizes, err)
		}
		group := poison.Filter{Consumer: "c7", Fingerprint: "1a"}
		unclassified := poison.Filter{Consumer: "c7", Fingerprint: poison.Unclassified}
		list := func(f poison.Filter) func(context.Context, bun.IDB) error {
			return func(ctx context.Context, db bun.IDB) error {
				_, _, err := s.List(ctx, db, f, admin.Page{Brief: true})
				return err
			}
		}
		for _, test := range []struct {
			name string
			most int
			run  func(context.Context, bun.IDB) error
		}{
			{"groups", 16_000, func(ctx context.Context, db bun.IDB) error { _, _, err := s.Groups(ctx, db, ""); return err }},
			{"groups of a consumer", 1_200, func(ctx context.Context, db bun.IDB) error { _, _, err := s.Groups(ctx, db, "c7"); return err }},
			{"the last failures", 40, func(ctx context.Context, db bun.IDB) error {
				return testapp.Second(inner.Poison.LastFailures(ctx, db, []string{"c7", "c8", "gone"}))
			}},
			{"a page", 200, list(poison.Filter{})},
			{"a page of a consumer", 200, list(poison.Filter{Consumer: "c7"})},
			{"a page of a group", 1_500, list(group)},
			{"a count", 700, func(ctx context.Context, db bun.IDB) error {
				return testapp.Second(s.CountUpTo(ctx, db, poison.Filter{Consumer: "c7"}, 300))
			}},
			{"a preview", 1_000, func(ctx context.Context, db bun.IDB) error { return testapp.Second(s.Preview(ctx, db, group, 100)) }},
			{"a preview of what is unclassified", 1_500, func(ctx context.Context, db bun.IDB) error {
				return testapp.Second(s.Preview(ctx, db, unclassified, 100))
			}},
			{"a batch", 1_500, func(ctx context.Context, db bun.IDB) error {
				return testapp.Second(s.RequeueChunk(ctx, db, poisoned.Chunk{Filter: group, UpTo: 20_000, Limit: 50}))
			}},
			{"a head", 20, func(ctx context.Context, db bun.IDB) error { return testapp.Second(s.GetHead(ctx, db, 77, 10)) }},
		} {
			most := test.most
			if db.Dialect().Name() == dialect.MySQL {
				most *= 2 // it keeps what it counts, and reads that as well
			}
			if read := rowsReadBy(t, db, conn, test.run); read > most {
				t.Errorf("%s: got %d rows read, want %d at most", test.name, read, most)
			}
		}
	})
}

// rowsReadBy is how many rows and index entries a call reads. SQLite does not tell: there it is all rows where a
// plan would read a table as a whole.
func rowsReadBy(t *testing.T, db *bun.DB, conn bun.Conn, run func(context.Context, bun.IDB) error) (rows int) {
	t.Helper()
	ctx := t.Context()
	if db.Dialect().Name() == dialect.MySQL {
		count := func() (n int) {
			const handlers = "SELECT CAST(SUM(VARIABLE_VALUE) AS SIGNED) FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME LIKE 'HANDLER_READ%'"
			testapp.OK(t, conn.NewRaw(handlers).Scan(ctx, &n))
			return n
		}
		before := count()
		testapp.OK(t, run(ctx, conn))
		return count() - before
	}
	var sent []string
	hooked := db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) { sent = append(sent, query) }))
	testapp.OK(t, run(ctx, hooked))
	for _, query := range sent {
		if !strings.Contains(query, "poisoned_messages") || !strings.HasPrefix(strings.TrimSpace(query), "SELECT") &&
			!strings.HasPrefix(strings.TrimSpace(query), "WITH") {
			continue
		}
		if db.Dialect().Name() == dialect.PG {
			rows += rowsOfPlan(t, db, query)
			continue
		}
		for _, step := range explainPlan(t, db, query) {
			if strings.HasPrefix(step, "SCAN p") && !strings.Contains(step, "INDEX") {
				t.Logf("%s in %s", step, query)
				rows += 20_000
			}
		}
	}
	return rows
}

type planStep struct {
	Rows    float64    `json:"Actual Rows"`
	Loops   float64    `json:"Actual Loops"`
	Removed float64    `json:"Rows Removed by Filter"`
	Table   string     `json:"Relation Name"`
	Plans   []planStep `json:"Plans"`
}

func (s planStep) read() (rows float64) {
	if s.Table != "" {
		rows = (s.Rows + s.Removed) * s.Loops
	}
	for _, inner := range s.Plans {
		rows += inner.read()
	}
	return rows
}

func rowsOfPlan(t *testing.T, db *bun.DB, query string) int {
	t.Helper()
	var text string
	if err := db.NewRaw("EXPLAIN (ANALYZE, FORMAT JSON) ?", bun.Safe(query)).Scan(t.Context(), &text); err != nil {
		t.Fatalf("%v in\n%s", err, query)
	}
	var plans []struct{ Plan planStep }
	if err := json.Unmarshal([]byte(text), &plans); err != nil || len(plans) != 1 {
		t.Fatalf("%v in %s", err, text)
	}
	return int(plans[0].Plan.read())
}
