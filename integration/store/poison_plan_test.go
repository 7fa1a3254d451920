package store_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/poisoned"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

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
