package cli_test

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// rightsOf are the statements of docs/reference/rights.md for one who looks or one who operates.
func rightsOf(t *testing.T, database, who string) []string {
	t.Helper()
	text := testapp.Must[[]byte](t)(os.ReadFile(filepath.Join("..", "..", "docs", "reference", "rights.md")))
	found := regexp.MustCompile("(?s)<!-- rights: " + database + " " + who + " -->\n```sql\n(.*?)```").FindSubmatch(text)
	if found == nil {
		t.Fatalf("docs/reference/rights.md has no statements for %s %s", database, who)
	}
	return strings.Split(strings.TrimSuffix(strings.TrimSpace(string(found[1])), ";"), ";\n")
}

// as is the site as a new user has it, with the rights of the guide.
func (s site) as(who string) site {
	s.Helper()
	name, host := "", ""
	database, role := map[dialect.Name]string{dialect.PG: "PostgreSQL", dialect.MySQL: "MariaDB"}[s.db.Dialect().Name()], who+"_"
	if err := s.db.NewRaw(map[string]string{"PostgreSQL": "SELECT current_database()",
		"MariaDB": "SELECT database()"}[database]).Scan(s.Context(), &name); err != nil {
		s.Fatal(err)
	}
	role += name[max(0, len(name)-20):]
	exec := func(statement string) {
		if _, err := s.db.ExecContext(s.Context(), statement); err != nil {
			s.Fatalf("%s: %v", statement, err)
		}
	}
	account := `"` + role + `"`
	if database == "MariaDB" {
		host = "@'%'"
		account = "'" + role + "'" + host
		exec("CREATE USER " + account + " IDENTIFIED BY 'geheim'")
	} else {
		exec("CREATE ROLE " + account + " LOGIN PASSWORD 'geheim'")
	}
	s.Cleanup(func() {
		for _, statement := range map[string][]string{"PostgreSQL": {"DROP OWNED BY " + account, "DROP ROLE " + account},
			"MariaDB": {"DROP USER " + account}}[database] {
			if _, err := s.db.Exec(statement); err != nil {
				s.Errorf("%s: %v", statement, err)
			}
		}
	})
	statements := rightsOf(s.T, database, "looks")
	if who == "operates" {
		statements = append(statements, rightsOf(s.T, database, who)...)
	}
	for _, statement := range statements {
		exec(strings.NewReplacer("messages_looks", account, "messages_operates", account, "shop.", name+".").Replace(statement))
	}
	return s.with(func(u *url.URL) {
		u.User = url.UserPassword(role, "geheim")
		query := u.Query()
		if query.Has("user") {
			query.Set("user", role)
		}
		u.RawQuery = query.Encode()
	})
}

// TestRights: with the rights of the guide people can do what it says, and are told what they cannot.
func TestRights(t *testing.T) {
	each(t, func(s site) {
		if s.db.Dialect().Name() == dialect.SQLite {
			return // its users are those of the file
		}
		a := filled(s)
		id := s.idOf(a, "SELECT MAX(id) FROM consumer_messages WHERE consumer_type = 'mail'")
		looks := s.as("looks")
		for _, args := range [][]string{
			{"status"}, {"consumers", "list"}, {"messages", "list"}, {"messages", "blocked-keys"}, {"messages", "get", id,
				"--show-payloads"}, {"poisoned", "groups"}, {"poisoned", "list", "--error", "luck"}, {"poisoned", "get", "1", "--show-payloads"},
			{"explain", id}, {"schedules", "list"}, {"processes"}, {"operations", "list"},
		} {
			looks.must(0, args...)
		}
		looks.must(6, "status", "--check")
		looks.must(6, "doctor")
		looks.must(4, "requeue", "--consumer", "mail")
		yes := []string{"--yes", "--reason", "why"}
		for _, args := range [][]string{
			{"requeue", "1"}, {"requeue", "--consumer", "mail"}, {"discard", "1"}, {"messages", "cancel", id}, {"messages", "run-now",
				"--consumer", "mail"}, {"consumers", "pause", "mail"},
			{"schedules", "run", "nightly"},
		} {
			looks.says(1, "the database user lacks a privilege", append(args, yes...)...)
		}
		operates := s.as("operates")
		for _, args := range [][]string{
			{"consumers", "pause", "mail"}, {"consumers", "resume", "mail"}, {"messages", "run-now", id}, {"messages", "reschedule", id,
				"--at", "2030-01-01"}, {"requeue", "1"}, {"discard", "2"}, {"requeue", "4"},
			{"requeue", "--consumer", "mail", "--wait", "--undo-window", "0", "--canary", "0"}, {"messages", "cancel", "--consumer", "stock",
				"--wait", "--undo-window", "0"},
			{"schedules", "run", "nightly"}, {"schedules", "pause", "nightly"}, {"schedules", "resume", "nightly"}, {"schedules", "delete",
				"nightly"},
		} {
			operates.must(0, append(args, yes...)...)
		}
		operates.must(0, append([]string{"poisoned", "export"}, yes[1:]...)...)
	})
}

// TestThroughAPooler: a pgbouncer in transaction mode is nothing that anybody notices.
func TestThroughAPooler(t *testing.T) {
	each(t, func(s site) {
		if s.db.Dialect().Name() != dialect.PG {
			return
		}
		a := filled(s)
		s.dsn = testdb.Pgbouncer(s.T, s.dsn)
		id := s.idOf(a, "SELECT MAX(id) FROM consumer_messages")
		for range 3 { // on whatever connections the pooler has
			for _, args := range [][]string{{"status"}, {"messages", "list"}, {"messages", "get", id}, {"explain", id},
				{"poisoned", "groups"}, {"operations", "list"}, {"schedules", "list"}, {"projections", "list"}} {
				s.must(0, args...)
			}
			s.must(6, "doctor")
		}
		s.must(0, "requeue", "1", "--yes", "--reason", "fixed")
		s.must(0, "requeue", "--consumer", "mail", "--wait", "--undo-window", "0", "--canary", "0", "--yes", "--reason", "fixed")
		s.must(0, "consumers", "pause", "mail", "--yes", "--reason", "it burns")
		s.must(0, "migrate")
	})
}
