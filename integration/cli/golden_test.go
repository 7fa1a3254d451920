package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// filled is a database in which there is some of everything: poisoned messages 1 to 4, and pending ones.
func filled(s site) *testapp.App {
	s.Helper()
	a, _ := testapp.NewPoisoned(s.T, s.db, 4, testapp.Consumed("mail"), testapp.Consumed("stock"))
	a.Exec("DELETE FROM poisoned_messages WHERE id > 4")
	a.Exec("UPDATE poisoned_messages SET consumer_type = 'mail', fingerprint = '1aaaaaaaaaaaaaaaa' WHERE id < 4")
	a.Exec("UPDATE poisoned_messages SET consumer_type = 'stock' WHERE id = 4")
	a.Produce(testapp.Order{ID: "a", N: 1}, outbox.InsertID("order a"))
	a.Exec("UPDATE consumer_messages SET attempts = 2, available_after = " + testapp.In(s.db, time.Hour) + " WHERE consumer_type = 'stock'")
	now := testapp.NowOf(s.db)
	a.Exec("INSERT INTO message_failures (consumer_type, fingerprint, error_type, sample, runs, first_at, last_at, first_version, row_id) VALUES ('mail', '1aaaaaaaaaaaaaaaa', '*net.OpError', 'no route to host', 12, " + now + ", " + now + ", 'v1.4.1', 3)")
	for i, kind := range []string{"processor", "scheduler"} {
		seen := []string{now, testapp.In(s.db, -time.Hour)}[i]
		a.Exec("INSERT INTO message_processes (id, kind, host, pid, program, version, started_at, seen_at, manifest, state) VALUES (?, ?, 'web-1', ?, 'shop', 'v1.4.1', "+testapp.In(s.db, -2*time.Hour)+", "+seen+", ?, ?)",
			uuid.UUID{15: byte(i)}.String(), kind, 40+i, `{"consumers":[{"name":"mail","payload_types":["order.placed"],"timeout":1000000000,"max_attempts":5}]}`, `{"every":15000000000,"running":1,"queued":2,"limit":8}`)
	}
	scheduler := a.Scheduler()
	for _, name := range []string{"nightly", "hourly"} {
		if _, err := scheduler.Schedule(a.Context(), s.db, testapp.Order{ID: name}, "0 4 * * *", "Europe/Berlin", schedule.Name(name), schedule.Tag("reports")); err != nil {
			s.Fatal(err)
		}
	}
	return a
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
		{` +`, " "}, // columns are as wide as what is in them
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.with)
	}
	return text
}

// TestGolden: every command says the same on the three databases, as text and as JSON.
func TestGolden(t *testing.T) {
	cases := []struct {
		name string
		code int
		args []string
	}{
		{"status", 0, []string{"status"}},
		{"status-content", 0, []string{"status", "--content"}},
		{"status-check", 6, []string{"status", "--check"}},
		{"consumers-list", 0, []string{"consumers", "list"}},
		{"consumers-pause-asked", 4, []string{"consumers", "pause", "mail"}},
		{"consumers-pause", 0, []string{"consumers", "pause", "mail", "--yes", "--reason", "it burns"}},
		{"explain-paused", 0, []string{"explain", "MAIL"}},
		{"consumers-paused", 0, []string{"consumers", "list"}},
		{"consumers-resume", 0, []string{"consumers", "resume", "mail", "--yes", "--reason", "it is out"}},
		{"messages-list", 0, []string{"messages", "list"}},
		{"messages-list-page", 0, []string{"messages", "list", "--consumer", "stock", "--limit", "1"}},
		{"messages-get", 0, []string{"messages", "get", "ID"}},
		{"messages-get-content", 0, []string{"messages", "get", "ID", "--content"}},
		{"messages-find", 3, []string{"messages", "find", "--header", "tenant=acme"}},
		{"messages-cancel-asked", 4, []string{"messages", "cancel", "ID", "999999"}},
		{"messages-cancel-all-asked", 4, []string{"messages", "cancel", "--consumer", "mail"}},
		{"messages-run-now", 5, []string{"messages", "run-now", "ID", "999999", "--yes", "--reason", "why not"}},
		{"messages-reschedule", 0, []string{"messages", "reschedule", "ID", "--at", "2030-01-01", "--yes", "--reason", "later"}},
		{"explain", 5, []string{"explain", "ID", "999999"}},
		{"explain-ready", 0, []string{"explain", "MAIL"}},
		{"explain-poisoned", 0, []string{"explain", "4"}},
		{"poisoned-groups", 0, []string{"poisoned", "groups"}},
		{"poisoned-groups-content", 0, []string{"poisoned", "groups", "--content"}},
		{"poisoned-list", 0, []string{"poisoned", "list"}},
		{"poisoned-list-page", 0, []string{"poisoned", "list", "--consumer", "mail", "--limit", "2", "--content"}},
		{"poisoned-get", 0, []string{"poisoned", "get", "3"}},
		{"poisoned-get-content", 0, []string{"poisoned", "get", "3", "--content"}},
		{"poisoned-export", 0, []string{"poisoned", "export", "--consumer", "stock", "--content", "--reason", "a look"}},
		{"requeue-asked", 4, []string{"requeue", "1", "2"}},
		{"requeue-all-asked", 4, []string{"requeue", "--consumer", "mail", "--fingerprint", "1aaaaaaaaaaaaaaaa"}},
		{"requeue", 5, []string{"requeue", "1", "999999", "--yes", "--reason", "fixed"}},
		{"discard-asked", 4, []string{"discard", "2"}},
		{"discard", 0, []string{"discard", "2", "--yes", "--reason", "void"}},
		{"discard-all", 0, []string{"discard", "--consumer", "mail", "--undo-window", "1h", "--yes", "--reason", "void"}},
		{"schedules-list", 0, []string{"schedules", "list"}},
		{"schedules-next", 0, []string{"schedules", "next", "nightly"}},
		{"schedules-run", 0, []string{"schedules", "run", "nightly", "--yes", "--reason", "now"}},
		{"schedules-pause-asked", 4, []string{"schedules", "pause", "nightly"}},
		{"schedules-pause", 0, []string{"schedules", "pause", "nightly", "--yes", "--reason", "not now"}},
		{"schedules-resume", 0, []string{"schedules", "resume", "1", "--yes", "--reason", "now"}},
		{"schedules-delete", 0, []string{"schedules", "delete", "hourly", "--yes", "--reason", "too often"}},
		{"processes", 0, []string{"processes"}},
		{"operations-list", 0, []string{"operations", "list"}},
		{"operations-show", 0, []string{"operations", "show", "OPERATION"}},
		{"operations-undo", 0, []string{"operations", "undo", "OPERATION"}},
		{"operations-watch", 5, []string{"operations", "watch", "OPERATION"}},
		{"operations-stop", 1, []string{"operations", "stop", "OPERATION"}},
		{"operations-continue", 4, []string{"operations", "continue", "OPERATION"}},
		{"migrate", 0, []string{"migrate"}},
	}
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			each(t, func(s site) {
				a := filled(s)
				id := s.idOf(a, "SELECT MAX(id) FROM consumer_messages WHERE consumer_type = 'stock'")
				mail := s.idOf(a, "SELECT MAX(id) FROM consumer_messages WHERE consumer_type = 'mail'")
				operation := ""
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
						case "OPERATION":
							args[i] = operation
						}
					}
					got := s.must(c.code, args...)
					if c.name == "discard-all" {
						operation = s.idOf(a, "SELECT MAX(id) FROM message_operations")
					}
					text := regexp.MustCompile(`\b`+id+`\b`).ReplaceAllString(normalise(got.out+"--\n"+got.err), "ID")
					text = regexp.MustCompile(`\b`+mail+`\b`).ReplaceAllString(text, "MAIL")
					golden(s.T, filepath.Join("testdata", format, c.name+".txt"), text)
				}
			})
		})
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
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("%s: got\n%s\nwant (%v)\n%s", path, got, err, want)
	}
}
