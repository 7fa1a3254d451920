package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	store "github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// filled is a database in which there is some of everything: poisoned messages 1 to 4, and pending ones.
func filled(s site) *testapp.App {
	s.Helper()
	a, _ := testapp.NewPoisoned(s.T, s.db, 4, testapp.Consumed("mail"), testapp.Consumed("stock"))
	a.Exec("DELETE FROM poisoned_messages WHERE id > 4")
	a.Exec("UPDATE poisoned_messages SET consumer_type = 'mail', fingerprint = '1aaaaaaaaaaaaaaaa' WHERE id < 4")
	a.Exec("UPDATE poisoned_messages SET consumer_type = 'stock', order_key = 'order-17', lane = ?, rank = 4, parks = TRUE WHERE id = 4",
		store.Lane("order-17"))
	a.Exec("UPDATE poisoned_messages SET errors = ? WHERE id = 2", `[{"attempt":5,"at":"2026-01-02T03:04:05Z","error":"no \"luck\""}]`)
	a.Exec(map[dialect.Name]string{ // to ids that no other number is
		dialect.PG:     "ALTER TABLE consumer_messages ALTER COLUMN id RESTART WITH 4711",
		dialect.MySQL:  "ALTER TABLE consumer_messages AUTO_INCREMENT = 4711",
		dialect.SQLite: "UPDATE sqlite_sequence SET seq = 4710 WHERE name = 'consumer_messages'",
	}[s.db.Dialect().Name()])
	testapp.New(s.T, s.db, testapp.Consumed("mail"),
		testapp.Consumed("stock", bus.Ordered(bus.BlockKey))).Produce(testapp.Order{ID: "a",
		N: 1}, outbox.InsertID("order a"), outbox.OrderingKey("order-17"))
	a.Exec("UPDATE consumer_messages SET attempts = 2, available_after = " + testapp.In(s.db, time.Hour) + " WHERE consumer_type = 'stock'")
	now := testapp.NowOf(s.db)
	a.Exec("INSERT INTO message_failures (consumer_type, fingerprint, error_type, sample, runs, first_at, last_at, first_version, row_id) VALUES ('mail', '1aaaaaaaaaaaaaaaa', '*net.OpError', 'no route to host', 12, " + now + ", " + now + ", 'v1.4.1', 3)")
	for i, kind := range []string{"processor", "scheduler"} {
		seen := []string{now, testapp.In(s.db, -time.Hour)}[i]
		a.Exec("INSERT INTO message_processes (id, kind, host, pid, program, version, started_at, seen_at, manifest, state) VALUES (?, ?, 'web-1', ?, 'shop', 'v1.4.1', "+testapp.In(s.db, -2*time.Hour)+", "+seen+", ?, ?)",
			uuid.UUID{15: byte(i)}.String(), kind, 40+i,
			`{"consumers":[{"name":"mail","payload_types":["order.placed"],"timeout":1000000000,"max_attempts":5}]}`,
			`{"every":600000000000,"running":1,"queued":2,"limit":8}`)
	}
	a.Exec("UPDATE message_processes SET contract = ? WHERE kind = 'processor'", `{"consumers":{"mail":{"payloads":["order.placed"]}},
		"payloads":{"order.placed":{"schema_version":2,"schema":{"type":"object","properties":{"id":{"type":"string"}}}}}}`)
	s.fillConsumed(a, now)
	scheduler := a.Scheduler()
	for _, name := range []string{"nightly", "hourly"} {
		if _, err := scheduler.Upsert(a.Context(), s.db, testapp.Order{ID: name}, "0 4 * * *", "Europe/Berlin", schedule.Name(name),
			schedule.Tag("reports")); err != nil {
			s.Fatal(err)
		}
	}
	return a
}

// fillConsumed adds kept messages 21 to 23 of mail: one done, one discarded, and one without its payload.
func (s site) fillConsumed(a *testapp.App, now string) {
	s.Helper()
	for i, row := range []string{`'{"id":"c"}', 'order-17', 'done', NULL`, `'{}', NULL, 'discarded', 'no such address'`, `NULL, NULL, 'done', NULL`} {
		a.Exec("INSERT INTO consumed_messages (id, message_id, consumer_type, payload_type, headers, any_order, created_at, attempts, version, started_at, run_micros, finished_at, expires_at, payload, order_key, outcome, reason) VALUES (?, ?, 'mail', 'order.placed', ?, FALSE, "+
			now+", 2, 'v1.4.1', "+now+", 1500, "+testapp.In(s.db, time.Duration(-i)*time.Minute)+", "+testapp.In(s.db, time.Hour)+", "+row+")",
			21+i, uuid.UUID{14: 9, 15: byte(i)}.String(), `{"tenant":"acme"}`)
	}
}

// normalise makes the same of what differs from run to run.
func normalise(text string) string {
	for _, r := range []struct{ pattern, with string }{
		{`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?`, "TIME"},
		{`\d\d:\d\d:\d\d UTC`, "TIME UTC"},
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, "UUID"},
		{`cli:[^\s"]+@[^\s"]+`, "cli:WHO"},
		{`"(oldest_ready_seconds|oldest_poisoned_seconds)":[0-9.]+`, `"$1":0`},
		{`\b(\d+h)?(\d+m)?\d+(\.\d+)?(ms|s)\b`, "AGE"},
		{`eyJ[\w-]+`, "PLACE"},
		{`CES?T`, "ZONE"},
		{`it is message \d+ now`, "it is message NEW now"}, // databases skip numbers in their own ways
		{`("missing":\d+,"ids":)\[\d+\]`, `$1["NEW"]`},
		{` +`, " "}, // columns are as wide as what is in them
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.with)
	}
	return text
}

// TestGolden: every command says the same on the three databases, as text and as JSON.
func TestGolden(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			each(t, func(s site) {
				a := filled(s)
				s.goldens(a, format, goldenCases())
			})
		})
	}
}

// TestGoldenProjections: so do the commands of projections, where there is an event log.
func TestGoldenProjections(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			each(t, func(s site) {
				if s.db.Dialect().Name() == dialect.MySQL {
					return
				}
				a := testapp.New(s.T, s.db, testapp.Consumed("mail"))
				now := testapp.NowOf(s.db)
				for _, row := range []string{"1, 0, 'halted', 5, 3, 'no such column: \"total\"'", "2, 0, 'running', 7, 0, NULL",
					"2, 1, 'running', 9, 0, NULL"} {
					a.Exec("INSERT INTO event_subscriptions (name, shards, filter, next_at, moved_at, version, shard, status, position, attempts, last_error) VALUES ('totals', 2, '', " + now + ", " + now + ", " + row + ")")
				}
				a.Exec("INSERT INTO event_projections (name, active_version) VALUES ('totals', 1)")
				a.Exec("INSERT INTO event_parked (name, version, position, stream, reason, parked_at) VALUES ('totals', 1, 4, 'order-17', 'there is no price', " + now + ")")
				s.goldens(a, format, goldenProjections())
			})
		})
	}
}

// TestGoldenOfADatabase: what differs from one database to another has goldens for each.
func TestGoldenOfADatabase(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			eachAsIs(t, func(s site) {
				filled(s)
				path := filepath.Join("testdata", format, filepath.Base(s.Name()))
				var flags []string
				if format == "json" {
					flags = []string{"--json"}
				}
				got := s.must(6, append([]string{"doctor"}, flags...)...)
				golden(s.T, filepath.Join(path, "doctor.txt"), ofTables(normalise(got.out+"--\n"+got.err)))
				got = s.must(0, append([]string{"migrate", "--sql"}, flags...)...)
				golden(s.T, filepath.Join(path, "migrate-sql.txt"), filesOnly(got.out))
				if s.db.Dialect().Name() == dialect.MySQL {
					got = s.must(1, append([]string{"projections", "list"}, flags...)...)
					golden(s.T, filepath.Join(path, "projections.txt"), got.out+"--\n"+got.err)
				}
			})
		})
	}
}

// ofTables is what the doctor says of the library's tables, and not of a server, which is anybody's.
func ofTables(text string) string {
	var b strings.Builder
	left := false
	for line := range strings.Lines(text) {
		check := regexp.MustCompile(`^(server|safety|connections|dead rows|snapshots|pool|.*"check":"(server|safety|connections|dead rows|snapshots|pool)")`)
		if !strings.HasPrefix(line, " ") {
			left = check.MatchString(line)
		}
		if !left {
			b.WriteString(regexp.MustCompile(`\d+ (problem|warning|fine)s?`).ReplaceAllString(line, "N $1"))
		}
	}
	return b.String()
}

// filesOnly leaves out the statements of migrations, which are where they come from.
func filesOnly(text string) string {
	if strings.HasPrefix(text, "{") {
		return regexp.MustCompile(`"sql":"([^"\\]|\\.)+"`).ReplaceAllString(text, `"sql":"STATEMENTS"`)
	}
	return strings.Join(regexp.MustCompile(`(?m)^-- \d+\w+\.sql$`).FindAllString(text, -1), "\n") + "\n"
}

// goldens runs the command, and compares what it says with files.
func (s site) goldens(a *testapp.App, format string, cases []goldenCase) {
	s.Helper()
	id := s.idOf(a, "SELECT COALESCE(MAX(id), 0) FROM consumer_messages WHERE consumer_type = 'stock'")
	mail := s.idOf(a, "SELECT COALESCE(MAX(id), 0) FROM consumer_messages WHERE consumer_type = 'mail'")
	operation, message := "", ""
	if found, _, err := a.Admin().List(a.Context(), s.db, admin.Filter{Consumer: "mail"}, admin.Page{Size: 1}); err == nil && len(found) > 0 {
		message = found[0].MessageID.String()
	}
	for _, c := range cases {
		args := append([]string(nil), c.args...)
		if format == "json" {
			args = append(args, "--json")
		}
		for i, arg := range args {
			switch arg {
			case "ID":
				args[i] = id
			case "MAIL":
				args[i] = mail
			case "MESSAGE":
				args[i] = message
			case "OPERATION":
				args[i] = operation
			}
		}
		got := s.must(c.code, args...)
		if c.name == "discard-all" {
			operation = s.idOf(a, "SELECT MAX(id) FROM message_operations")
		}
		text := normalise(got.out + "--\n" + got.err)
		if id != "0" {
			text = regexp.MustCompile(`\b`+id+`\b`).ReplaceAllString(text, "ID")
			text = regexp.MustCompile(`\b`+mail+`\b`).ReplaceAllString(text, "MAIL")
		}
		golden(s.T, filepath.Join("testdata", format, c.name+".txt"), text)
	}
}

// idOf is a number that a query finds.
func (s site) idOf(a *testapp.App, query string) string {
	s.Helper()
	return strconv.Itoa(a.Count(query))
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		testapp.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testapp.OK(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("%s: got\n%s\nwant (%v)\n%s", path, got, err, want)
	}
}

// TestFields: JSON has names in small letters, and those of each line stand in docs/reference/json.md.
func TestFields(t *testing.T) {
	t.Parallel()
	guide := testapp.Must[[]byte](t)(os.ReadFile(filepath.Join("..", "..", "docs", "reference", "json.md")))
	paths, err := filepath.Glob(filepath.Join("testdata", "json", "*.txt"))
	if err != nil || len(paths) < 50 {
		t.Fatalf("got %d goldens, %v", len(paths), err)
	}
	for _, path := range paths {
		if filepath.Base(path) == "asyncapi.txt" {
			continue // a document in AsyncAPI's form, not lines
		}
		text := testapp.Must[[]byte](t)(os.ReadFile(path))
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "{") {
				continue
			}
			var fields map[string]any
			line = regexp.MustCompile(`([:\[])(ID|MAIL)\b`).ReplaceAllString(line, "${1}1")
			if err := json.Unmarshal([]byte(line), &fields); err != nil {
				t.Fatalf("%s: %v: %s", path, err, line)
			}
			for name := range fields {
				if name != "v" && !strings.Contains(string(guide), "`"+name+"`") {
					t.Errorf("%s: docs/reference/json.md does not have the field %q", path, name)
				}
			}
			for _, name := range regexp.MustCompile(`"(\w+)":`).FindAllStringSubmatch(line, -1) {
				if name[1] != strings.ToLower(name[1]) {
					t.Errorf("%s: field %q: want small letters", path, name[1])
				}
			}
			if fields["v"] != 1.0 {
				t.Errorf("%s: got version %v, want 1: %s", path, fields["v"], line)
			}
		}
	}
}
