package console_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// said is what the command has written to both of its ends.
func said(t *testing.T, dsn string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), command.path(t), args...)
	c.Env = append(os.Environ(), "ASYNCMONOLITH_DSN="+dsn)
	output, err := c.CombinedOutput()
	if err != nil && c.ProcessState == nil {
		t.Fatalf("%v: %v", args, err)
	}
	return string(output)
}

// TestAttack26TerminalCommands: what stands in the database is no command to a terminal.
// Promise: console
func TestAttack26TerminalCommands(t *testing.T) {
	t.Parallel()
	const evil = "\x1b[2J\x1b]0;owned\x07\x1bP$q\x1b\\\u009b31m\r\x08\x7f\u202e\u2066"
	path := prepared.copyOf(t, worldOf(t, "normal"))
	db := testdb.OpenSQLite(t, path)
	for table, columns := range map[string][]string{
		"consumer_messages": {"consumer_type", "payload_type", "insert_id", "errors", "payload"}, "poisoned_messages": {"consumer_type",
			"payload_type", "reason", "payload"},
		"scheduled_messages": {"name", "tag", "payload_type", "last_error", "cron_expression"}, "message_processes": {"host", "program",
			"version"},
		"message_operations": {"actor", "reason", "note"}, "message_failures": {"consumer_type", "sample", "error_type",
			"first_version"}, "paused_consumers": {"paused_by", "note"},
		"event_subscriptions": {"name", "last_error"}, "event_parked": {"name", "stream", "reason"},
	} {
		for _, column := range columns {
			testapp.Must[any](t)(db.NewRaw("UPDATE ? SET ? = ? || ?", bun.Ident(table), bun.Ident(column), bun.Ident(column),
				evil).Exec(t.Context()))
		}
	}
	for _, args := range [][]string{
		{"status"}, {"status", "--show-payloads"}, {"doctor"}, {"messages", "list"}, {"messages", "get", "3",
			"--show-payloads"}, {"explain", "3"}, {"poisoned", "groups"}, {"poisoned", "groups", "--show-payloads"},
		{"poisoned", "list", "--show-payloads"}, {"poisoned", "get", "1000003", "--show-payloads"}, {"schedules", "list"}, {"projections",
			"list"}, {"projections", "list", "--show-payloads"}, {"processes"}, {"operations", "list"}, {"operations", "show", "1"},
		{"requeue", "--all"}, {"consumers", "pause", "consumer-00" + evil}, {"schedules", "next", "schedule-00" + evil}, {"messages",
			"list", "--consumer", evil},
		{"no-such" + evil}, {"status", "--no-such" + evil}, {"schedules", "next", "none" + evil}, {"status", "--prefix", evil}, {"status",
			"--dsn-file", "no-such" + evil},
	} {
		for _, more := range [][]string{nil, {"--json"}} {
			output := said(t, "sqlite:"+path, append(args, more...)...)
			if output == "" && more == nil { // of nothing JSON has no line
				t.Errorf("%q: got nothing", args)
			}
			for _, r := range strings.NewReplacer("\n", "", "\t", "").Replace(output) {
				if unicode.IsControl(r) || r == '\u202e' || r == '\u2066' {
					t.Errorf("%q %v: got the character %U, which a terminal would act upon, in %.300q", args, more, r, output)
					break
				}
			}
		}
	}
}

// TestAttack27SecretsOfTheConnection: a password of the database is in no error, no page, no JSON, and no list of processes.
// Promise: console
func TestAttack27SecretsOfTheConnection(t *testing.T) {
	t.Parallel()
	const password, user = "geheim-0815", "ada-of-the-database"
	dsn := "postgres://" + user + ":" + password + "@127.0.0.1:1/shop?sslmode=disable"
	s := newSite(t, testdb.OpenPostgres(t, dsn), ops.Administrator)
	for _, path := range everywhere(t) {
		for _, r := range []func() answer{func() answer { return s.once(http.MethodGet, path) },
			func() answer { return s.once(http.MethodPost, path) }} {
			if a := r(); strings.Contains(fmt.Sprint(a.header, a.body), password) || strings.Contains(a.body, user) ||
				strings.Contains(a.body, "127.0.0.1") {
				t.Errorf("%q: got %s, which tells of the connection", path, a)
			}
		}
	}
	if a := s.once(http.MethodGet, "messages"); a.status < 500 {
		t.Errorf("no database: got %s, want an error", a)
	}
	if strings.Contains(s.log.String(), password) {
		t.Error("the log has the password")
	}
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"serve", "--json"}, {"doctor"}, {"requeue", "--all", "--json"}} {
		if output := said(t, dsn, args...); output == "" || strings.Contains(output, password) || strings.Contains(output, user) {
			t.Errorf("%v: got %q, want an error that does not tell of the connection", args, output)
		}
		if output := said(t, "", append(args, "--dsn", dsn)...); !strings.Contains(output, "list of processes") ||
			strings.Contains(output, password) {
			t.Errorf("%v --dsn: got %q, want that a password is not taken there", args, output)
		}
	}
	// One that goes on: nothing of it is among its arguments, and not in what it says.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	good := testdb.PostgresDSN(t)
	migrated(t, testdb.OpenPostgres(t, good))
	c := exec.CommandContext(ctx, command.path(t), "serve", "--json")
	c.Env = append(os.Environ(), "ASYNCMONOLITH_DSN="+good)
	var output bytes.Buffer
	lines := startedWith(t, c, &output)
	if line := <-lines; !strings.Contains(line, `"url"`) || strings.Contains(line, "postgres") {
		t.Errorf("serve: got %q", line)
	}
	arguments, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.Process.Pid))
	if err == nil && strings.Contains(string(arguments), "postgres") {
		t.Errorf("arguments: got %q", arguments)
	}
	cancel()
	_ = c.Wait()
}
