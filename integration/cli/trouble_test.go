package cli_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// says runs a command that must fail with one sentence that shows nothing of the DSN.
func (s site) says(code int, want string, args ...string) {
	s.Helper()
	got := s.must(code, args...)
	if !strings.Contains(got.err, want) || strings.Count(got.err, "\n") != 1 {
		s.Errorf("%v: got %q, want one line with %q", args, got.err, want)
	}
	if strings.Contains(got.out+got.err, s.dsn) || strings.Contains(got.out+got.err, "geheim") {
		s.Errorf("%v: got %+v, which shows the DSN", args, got)
	}
}

// with is the site with another DSN.
func (s site) with(change func(*url.URL)) site {
	s.Helper()
	parsed := testapp.Must[*url.URL](s)(url.Parse(s.dsn))
	change(parsed)
	s.dsn = parsed.String()
	return s
}

// TestTrouble: what keeps the command from its work is one sentence.
func TestTrouble(t *testing.T) {
	each(t, func(s site) {
		if s.db.Dialect().Name() == dialect.SQLite {
			dir := s.TempDir()
			text := filepath.Join(dir, "text.db")
			testapp.OK(s, os.WriteFile(text, []byte(strings.Repeat("this is no database ", 100)), 0o600))
			for path, want := range map[string]string{dir: "the database file is a directory", text: "the file is not a SQLite database",
				filepath.Join(dir, "none.db"): "the database file does not exist"} {
				s.dsn = "sqlite:" + path
				s.says(1, want, "status")
			}
			if _, err := os.Stat(filepath.Join(dir, "none.db")); err == nil {
				s.Error("a look has made the file")
			}
			s.dsn = "sqlite:" + text + "?cache=shared"
			s.says(2, "a SQLite DSN allows only mode=ro", "status")
			return
		}
		s.with(func(u *url.URL) {
			u.User = url.UserPassword("nobody", "geheim")
			query := u.Query()
			if query.Has("user") {
				query.Set("user", "nobody")
			}
			u.RawQuery = query.Encode()
		}).says(1, "the database rejects the user or the password", "status")
		s.with(func(u *url.URL) { u.Host, u.RawQuery, u.User = "127.0.0.1:1", "", url.UserPassword("nobody", "geheim") }).
			says(1, "the database is down or unreachable: connection refused", "status")
		if s.db.Dialect().Name() == dialect.PG {
			for setting, want := range map[string]string{
				"no_such_setting":   `the database rejects a parameter of the DSN: unrecognized configuration parameter "no_such_setting"`,
				"statement_timeout": "the database rejects the value of a DSN parameter"} {
				s.with(func(u *url.URL) {
					query := u.Query()
					query.Set(setting, "geheim")
					u.RawQuery = query.Encode()
				}).says(1, want, "status")
			}
		}
		s.with(func(u *url.URL) {
			u.Path = "/no_such_database"
			query := u.Query()
			query.Del("database")
			query.Del("dbname")
			u.RawQuery = query.Encode()
		}).says(1, "the server has no database of that name", "status")
	})
}

// TestLooksLeaveTheFileOfADatabaseAsItIs: a command that only reads does not turn a SQLite database into one in WAL mode,
// and mode=ro opens it read-only.
func TestLooksLeaveTheFileOfADatabaseAsItIs(t *testing.T) {
	each(t, func(s site) {
		if s.db.Dialect().Name() != dialect.SQLite {
			return
		}
		filled(s)
		testapp.OK(s, testapp.Second(s.db.ExecContext(s.Context(), "PRAGMA journal_mode=DELETE")))
		for _, dsn := range []string{s.dsn, s.dsn + "?mode=ro"} {
			s.dsn = dsn
			s.must(0, "consumers", "list")
			var mode string
			if err := s.db.NewRaw("PRAGMA journal_mode").Scan(s.Context(), &mode); err != nil || mode != "delete" {
				s.Errorf("%s: journal mode: got %q, %v, want delete", dsn, mode, err)
			}
		}
		s.says(1, "the database is read-only", "consumers", "pause", "mail", "--yes", "--reason", "why")
	})
}

// TestTables: tables that are missing, elsewhere or old are one sentence, and exit code 7.
func TestTables(t *testing.T) {
	each(t, func(s site) {
		if err := s.db.PingContext(s.Context()); err != nil { // which makes the file of SQLite
			s.Fatal(err)
		}
		s.says(7, "the database has no tables of the library: run asyncmonolith migrate", "status")
		sql := s.must(0, "migrate", "--sql", "--prefix", "shop_")
		if !strings.Contains(sql.out, "shop_consumer_messages") {
			s.Errorf("got %q, want statements", sql.out)
		}
		s.says(7, "the database has no tables", "status", "--prefix", "shop_")
		s.must(0, "migrate", "--prefix", "shop_")
		s.must(0, "status", "--prefix", "shop_")
		s.says(7, "no tables of the library have this schema and prefix; some exist with --prefix shop_", "poisoned", "list")
		if s.db.Dialect().Name() == dialect.PG {
			s.must(0, "migrate", "--schema", "other")
			s.must(0, "status", "--schema", "other")
			s.says(7, "--schema other", "status")
		}
		testapp.OK(s, testapp.Second(s.db.ExecContext(s.Context(), "DROP TABLE shop_message_operations")))
		s.says(7, "the library's tables are older than this version needs", "operations", "list", "--prefix", "shop_")
		s.says(2, "Prefix", "status", "--prefix", "shop; DROP")
	})
}

// TestStatusWithoutAPart: the rest is shown, and what could not be read is named. Scripts see by the exit code that a table is
// missing.
func TestStatusWithoutAPart(t *testing.T) {
	each(t, func(s site) {
		filled(s)
		s.must(0, "status")
		testapp.OK(s, testapp.Second(s.db.ExecContext(s.Context(), "ALTER TABLE message_processes RENAME TO gone")))
		a := s.must(7, "status")
		if check := s.must(6, "status", "--check"); !strings.Contains(check.out, "The tables are not up to date") {
			s.Errorf("status --check: got\n%s\nwant that the tables are not up to date", check.out)
		}
		if !strings.Contains(a.out, "mail") || strings.Contains(a.out, "Programs:") ||
			!strings.Contains(a.err, "Could not be read: states, processes.") {
			s.Errorf("got\n%s\n%s\nwant the consumers, and that the processes are not shown", a.out, a.err)
		}
	})
}

// TestReadOnly: a database that takes no changes is one sentence, and shows what it has: reading and previews write nothing.
func TestReadOnly(t *testing.T) {
	s := site{T: t}
	each(t, func(on site) {
		if on.db.Dialect().Name() != dialect.PG {
			return
		}
		s = on
		id := s.idOf(filled(s), "SELECT MAX(id) FROM consumer_messages WHERE consumer_type = 'mail'")
		name := ""
		testapp.OK(s, s.db.NewRaw("SELECT current_database()").Scan(s.Context(), &name))
		testapp.OK(s, testapp.Second(s.db.ExecContext(s.Context(), "ALTER DATABASE "+name+" SET default_transaction_read_only = on")))
		for _, args := range [][]string{
			{"status"}, {"consumers", "list"}, {"messages", "list"}, {"messages", "get", id}, {"messages", "blocked-keys"},
			{"poisoned", "list"}, {"poisoned", "groups"}, {"poisoned", "get", "1"}, {"consumed", "list"}, {"explain", id}, {"processes"},
			{"schedules", "list"}, {"schedules", "next", "nightly"}, {"projections", "list"}, {"operations", "list"}, {"asyncapi"},
		} {
			s.must(0, args...)
		}
		s.must(6, "status", "--check")
		s.must(6, "doctor")
		s.must(3, "messages", "find", "--header", "tenant=acme")
		for _, args := range [][]string{
			{"requeue", "--consumer", "mail"}, {"requeue", "1"}, {"discard", "1"}, {"messages", "cancel", "--consumer", "mail"},
			{"messages", "cancel", id}, {"consumers", "pause", "mail"}, {"schedules", "pause", "nightly"}, {"schedules", "delete", "nightly"},
		} { // without --yes they are previews
			s.must(4, args...)
		}
		s.says(1, "the database is read-only", "consumers", "pause", "mail", "--yes", "--reason", "why")
	})
}

// TestHostileTexts: what is stored reaches no terminal but as text.
func TestHostileTexts(t *testing.T) {
	each(t, func(s site) {
		a := filled(s)
		evil := "e\x1b[31m\x1b]0;owned\x07\r\n\t\u202egnp\u202c\u009b2J\u200b"
		if s.db.Dialect().Name() == dialect.SQLite {
			evil += "\xff\xfe"
		}
		a.Exec("UPDATE consumer_messages SET consumer_type = ?, insert_id = ? WHERE consumer_type = 'mail'", evil, evil)
		a.Exec("UPDATE poisoned_messages SET consumer_type = ?, payload_type = ?, reason = ?, fingerprint = ?", evil, evil, evil, "1\x1b[2J")
		a.Exec("UPDATE message_failures SET consumer_type = ?, fingerprint = ?, error_type = ?, sample = ?, first_version = ?", evil,
			"1\x1b[2J", evil, evil, evil)
		a.Exec("UPDATE message_processes SET host = ?, program = ?, version = ?", evil, evil, evil)
		a.Exec("UPDATE scheduled_messages SET name = ?, tag = ?, cron_expression = ?, last_error = ? WHERE name = 'nightly'", evil, evil,
			evil, evil)
		s.must(0, "consumers", "pause", strings.ToValidUTF8(evil, ""), "--allow-unknown-consumer", "--yes", "--reason", evil)
		id := s.idOf(a, "SELECT MIN(id) FROM consumer_messages")
		for _, args := range [][]string{
			{"status", "--show-payloads"}, {"consumers", "list"}, {"messages", "list"}, {"messages", "get", id,
				"--show-payloads"}, {"explain", id}, {"explain", "4"},
			{"poisoned", "groups", "--show-payloads"}, {"poisoned", "list", "--show-payloads"}, {"poisoned", "get", "1",
				"--show-payloads"}, {"poisoned", "export", "--show-payloads", "--reason", evil},
			{"schedules", "list", "--show-payloads"}, {"schedules", "next", "1"}, {"processes"}, {"operations", "list"}, {"operations",
				"get", "1"}, {"requeue", "1"}, {"requeue", "--all"},
			{"status", "--check"}, {"status", "--chek" + evil}, {evil}, {"consumers", "pause", evil + "x"}, {"messages", "get",
				evil}, {"__complete", "consumers", "pause", ""},
		} {
			for _, format := range [][]string{nil, {"--json"}} {
				if args[0] == "__complete" && format != nil {
					continue
				}
				got := s.run(append(args, format...)...)
				if strings.ContainsAny(got.out+got.err, "\x1b\x07\r\t\u202e\u202c\u009b\u200b") || !utf8.ValidString(got.out+got.err) ||
					strings.Contains(got.err, "panic") {
					s.Errorf("%q: got %q, which a terminal would act upon", args, got.out+got.err)
				}
				if format == nil && strings.Contains(got.out, "\ngnp") {
					s.Errorf("%q: got %q, with a line of its own", args, got.out)
				}
			}
		}
	})
}

// TestCompletion: names come from the database, and a database that is away is silence.
func TestCompletion(t *testing.T) {
	each(t, func(s site) {
		filled(s)
		for _, test := range []struct {
			args []string
			want string
		}{
			{[]string{"consumers", "pause", ""}, "mail\nstock\n"},
			{[]string{"poisoned", "list", "--consumer", ""}, "mail\nstock\n"},
			{[]string{"poisoned", "list", "--fingerprint", ""}, "1aaaaaaaaaaaaaaaa\nunclassified\n"},
			{[]string{"schedules", "run", ""}, "nightly\nhourly\n"},
			{[]string{"messages", "list", "--state", ""}, "ready\ndelayed\nleased\n"},
		} {
			var got answer
			for range 10 { // it gives up after a second, which a busy machine may need
				if got = s.must(0, append([]string{"__complete"}, test.args...)...); got.out != ":4\n" {
					break
				}
			}
			if !strings.HasPrefix(got.out, test.want+":4") {
				s.Errorf("%v: got %q, want %q", test.args, got.out, test.want)
			}
		}
		s.dsn = "postgres://127.0.0.1:1/none"
		if got := s.must(0, "__complete", "consumers", "pause", ""); !strings.HasPrefix(got.out, ":4") {
			s.Errorf("no database: got %q, want nothing", got.out)
		}
	})
}
