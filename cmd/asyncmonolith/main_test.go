package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The tests are inside the package: a command exports nothing. Those on databases are in integration/cli.

// answer is what a run has done.
type answer struct {
	code     int
	out, err string
}

// called runs the command with an environment.
func called(t *testing.T, dsn string, args ...string) answer {
	t.Helper()
	var out, stderr bytes.Buffer
	code := run(t.Context(), args, terminal{in: strings.NewReader(""), out: &out, err: &stderr, env: func(name string) string {
		if name == "ASYNCMONOLITH_DSN" {
			return dsn
		}
		return ""
	}})
	return answer{code, out.String(), stderr.String()}
}

// database is an empty one with tables.
func database(t *testing.T) string {
	t.Helper()
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "test.db")
	if got := called(t, dsn, "migrate"); got.code != 0 {
		t.Fatalf("migrate: got %+v", got)
	}
	return dsn
}

// screens is an output that ends a context with the second status.
type screens struct {
	bytes.Buffer
	end context.CancelFunc
}

func (s *screens) Write(text []byte) (int, error) {
	n, err := s.Buffer.Write(text)
	if strings.Count(s.String(), "Programs:") == 2 {
		s.end()
	}
	return n, err
}

// TestStatusIsWatched until the user ends it.
func TestStatusIsWatched(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	out := &screens{end: end}
	var stderr bytes.Buffer
	code := run(ctx, []string{"status", "--watch"}, terminal{in: strings.NewReader(""), out: out, err: &stderr, width: 80,
		env: func(name string) string { return map[string]string{"ASYNCMONOLITH_DSN": dsn}[name] }})
	if got := strings.Count(out.String(), "\x1b[H\x1b[2J"); code != exitDone || got != 2 || stderr.Len() > 0 {
		t.Errorf("got code %d, %d screens, %q, want two", code, got, stderr.String())
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{nil, exitDone, "Operate the messages of a database"},
		{[]string{"consumers"}, exitDone, "pause"},
		{[]string{"--help"}, exitDone, "Exit codes"},
		{[]string{"completion", "bash"}, exitDone, "bash completion"},
		{[]string{"status"}, exitDone, "No consumer has messages."},
		{[]string{"status", "--check"}, exitDone, "All clear."},
		{[]string{"status", "--check", "--json"}, exitDone, ""},
		{[]string{"messages", "blocked-keys"}, exitDone, "No key is blocked."},
		{[]string{"messages", "list", "--key", "k"}, exitDone, "No pending message matches."},
		{[]string{"stauts"}, exitUsage, `did you mean "asyncmonolith status"?`},
		{[]string{"consumers", "puase"}, exitUsage, `did you mean "asyncmonolith consumers pause"?`},
		{[]string{"status", "--jsn"}, exitUsage, "did you mean --json?"},
		{[]string{"messages", "list", "--payloadtype", "x"}, exitUsage, "did you mean --payload-type?"},
		{[]string{"status", "-x"}, exitUsage, "there is no flag"},
		{[]string{"status", "more"}, exitUsage, "see asyncmonolith status --help"},
		{[]string{"explain"}, exitUsage, "the message is missing: asyncmonolith messages list lists them: see asyncmonolith explain --help"},
		{[]string{"projections", "parked"}, exitUsage, "the projection is missing: asyncmonolith projections list lists them"},
		{[]string{"operations", "undo"}, exitUsage, "the operation is missing: asyncmonolith operations list lists them"},
		{[]string{"operations", "set-rate"}, exitUsage, "the operation is missing"},
		{[]string{"schedules", "next", "a", "b"}, exitUsage, "one schedule is allowed, not 2"},
		{[]string{"status", "more"}, exitUsage, `"more": no arguments are allowed`},
		{[]string{"requeue", "--all", "--show-payloads"}, exitUsage, `there is no flag "show-payloads": see asyncmonolith requeue --help`},
		{[]string{"poisoned", "requeue"}, exitUsage, `there is no command "asyncmonolith poisoned requeue": did you mean "asyncmonolith requeue"? See `},
		{[]string{"frobnicate"}, exitUsage, `there is no command "asyncmonolith frobnicate": see asyncmonolith --help`},
		{[]string{"version"}, exitDone, ", go1."},
		{[]string{"version", "--json"}, exitDone, `"go":"go1.`},
		{[]string{"consumers", "pause", "brandnew"}, exitNotFound, "--allow-unknown-consumer pauses"},
		{[]string{"messages", "list", "--state", "asleep"}, exitUsage, `leased are allowed`},
		{[]string{"messages", "list", "--limit", "many"}, exitUsage, `--limit "many": a number is allowed`},
		{[]string{"messages", "list", "--limit"}, exitUsage, "see asyncmonolith messages list --help"},
		{[]string{"messages", "list", "--older-than", "1 day"}, exitUsage, `--older-than "1 day": a duration is allowed`},
		{[]string{"messages", "list", "--message-id", "1"}, exitUsage, "a UUID is allowed"},
		{[]string{"messages", "list", "--message-id", uuid.Nil.String()}, exitUsage, "a UUID is allowed"},
		{[]string{"messages", "cancel", "--consumer", "", "--state", "ready"}, exitUsage, `--consumer "": a text that is not empty is allowed`},
		{[]string{"discard", "--fingerprint=", "--consumer", "c"}, exitUsage, `--fingerprint "": a text that is not empty is allowed`},
		{[]string{"discard", "--exported="}, exitUsage, `--exported "": a text that is not empty is allowed`},
		{[]string{"explain", "--key", "", "1"}, exitUsage, `--key "": a text that is not empty is allowed`},
		{[]string{"explain", uuid.Nil.String()}, exitUsage, "a trace id is allowed"},
		{[]string{"messages", "list", "--crashed=maybe"}, exitUsage, "true or false is allowed"},
		{[]string{"help", "stauts"}, exitUsage, `did you mean "asyncmonolith status"?`},
		{[]string{"completion", "bsh"}, exitUsage, `did you mean "asyncmonolith completion bash"?`},
		{[]string{"messages", "list", "--limit", "1001"}, exitUsage, "1 to 1000 are allowed"},
		{[]string{"messages", "list", "--after", "nowhere"}, exitUsage, ""},
		{[]string{"messages", "list", "--state", "asleep"}, exitUsage, "ready, delayed, leased are allowed"},
		{[]string{"messages", "list", "--state", "redy"}, exitUsage, `did you mean "ready"?`},
		{[]string{"messages", "get", "0"}, exitUsage, "is not an id"},
		{[]string{"messages", "find"}, exitUsage, "no search is given"},
		{[]string{"messages", "find", "--trace-id", "1"}, exitUsage, ""},
		{[]string{"messages", "reschedule", "1"}, exitUsage, "--at is missing"},
		{[]string{"messages", "reschedule", "1", "--at", "noon"}, exitUsage, "a time is allowed such as"},
		{[]string{"requeue"}, exitUsage, "no messages are selected"},
		{[]string{"requeue", "1", "--consumer", "c"}, exitUsage, "use one"},
		{[]string{"requeue", "--all", "--consumer", "c"}, exitUsage, "use one"},
		{[]string{"requeue", "--all", "--undo-window", "-1s"}, exitUsage, "0 or more is allowed"},
		{[]string{"poisoned", "export"}, exitUsage, "--reason is missing"},
		{[]string{"processes", "--within", "-1s"}, exitUsage, "more than 0 is allowed"},
		{[]string{"status", "--schema", "s"}, exitUsage, "Schema"},
		{[]string{"status", "--prefix", "no-name"}, exitUsage, "Prefix"},
		{[]string{"status", "--dsn", "oracle://x"}, exitUsage, "are allowed"},
		{[]string{"status", "--dsn", "sqlite:"}, exitUsage, "the path is empty"},
		{[]string{"status", "--dsn", "mariadb://h/d?colour=red"}, exitUsage, `unknown parameter "colour"`},
		{[]string{"status", "--dsn", dsn, "--dsn-file", "x"}, exitUsage, "use one"},
		{[]string{"status", "--dsn-file", "/no/such/file"}, exitUsage, "--dsn-file"},
		{[]string{"messages", "get", "1"}, exitNotFound, ""},
		{[]string{"poisoned", "get", "1"}, exitNotFound, ""},
		{[]string{"explain", "1"}, exitNotFound, ""},
		{[]string{"requeue", "1"}, exitNotFound, ""},
		{[]string{"requeue", "1", "--yes", "--reason", "r"}, exitNotFound, ""},
		{[]string{"requeue", "--all"}, exitNotFound, "nothing matches"},
		{[]string{"messages", "cancel", "1", "--yes", "--reason", "r"}, exitNotFound, ""},
		{[]string{"operations", "undo", "99"}, exitNotFound, ""},
		{[]string{"schedules", "next", "nightly"}, exitNotFound, ""},
		{[]string{"projections", "resume", "totals"}, exitNotFound, ""},
		{[]string{"consumers", "pause", "c"}, exitNotFound, ""},
		{[]string{"consumers", "pause", "c", "--allow-unknown-consumer"}, exitNotConfirmed, "nothing was changed"},
		{[]string{"consumers", "pause", "c", "--allow-unknown-consumer", "--yes"}, exitUsage, "--reason is missing"},
		{[]string{"operations", "set-rate", "1", "0"}, exitUsage, "1 to 100000"},
		{[]string{"operations", "set-rate", "1"}, exitUsage, "see asyncmonolith operations set-rate --help"},
		{[]string{"operations", "set-rate", "99", "5"}, exitNotFound, ""},
		{[]string{"help", "messages", "lst"}, exitUsage, `did you mean "asyncmonolith messages list"?`},
		{[]string{"help", "messages", "list"}, exitDone, "--crashed"},
		{[]string{"status", "--prefix", "other_"}, exitSchema, "neither --schema nor --prefix"},
	} {
		got := called(t, dsn, test.args...)
		if got.code != test.code || !strings.Contains(got.out+got.err, test.says) {
			t.Errorf("%v: got %+v, want exit code %d and %q", test.args, got, test.code, test.says)
		}
	}
	if got := called(t, "", "status"); got.code != exitUsage || !strings.Contains(got.err, "set ASYNCMONOLITH_DSN") {
		t.Errorf("no DSN: got %+v", got)
	}
}

// TestPasswordsOfArgumentsAreRefused, since everybody sees them in the list of processes.
func TestPasswordsOfArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"postgres://ada:geheim@h/d", "mariadb://ada:geheim@h/d", "postgres://h/d?password=geheim",
		"postgres://ada@h/d?password=geheim", "postgres://h/d?sslpassword=geheim",
		"mariadb://ada:1?geheim@h/d", "postgres://ada:1#geheim@h/d", "postgres://ada:1/geheim@h/d"} {
		got := called(t, "", "status", "--dsn", dsn)
		if got.code != exitUsage || !strings.Contains(got.err, "in the list of processes") || strings.Contains(got.err, "geheim") {
			t.Errorf("%s: got %+v, want that it is refused", dsn, got)
		}
	}
	for _, dsn := range []string{"postgres://ada:geheim@127.0.0.1:1/d", "mariadb://ada:geheim@127.0.0.1:1/d",
		"postgres://ada:gehe%zzim@h/d", "mariadb://ada:geheim@h/d?tls=geheim",
		"mariadb://ada:1?geheim@h/d", "mariadb://ada:?geheim&x=y@h/d", "postgres://ada:1?geheim@h/d", "postgres://ada:1#geheim@h/d",
		"mariadb://ada:1/geheim@h/d"} {
		got := called(t, dsn, "status")
		if got.code == exitDone || strings.Contains(got.out+got.err, "geheim") || strings.Contains(got.out+got.err, "gehe%") ||
			strings.Contains(got.out+got.err, "ada") {
			t.Errorf("%s: got %+v, want an error without what is secret", dsn, got)
		}
	}
	file := filepath.Join(t.TempDir(), "dsn")
	if err := os.WriteFile(file, []byte(database(t)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := called(t, "", "status", "--dsn-file", file); got.code != exitDone {
		t.Errorf("--dsn-file: got %+v", got)
	}
}

// TestEveryCommandHelps: short and long, with an example, and flags that say what they are.
func TestEveryCommandHelps(t *testing.T) {
	t.Parallel()
	a := &app{output: &output{}}
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Short == "" || c.Long == "" || c.Example == "" {
			t.Errorf("%s: it lacks help", c.CommandPath())
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s: it lacks help", c.CommandPath(), f.Name)
			}
		})
		for _, below := range c.Commands() {
			visit(below)
		}
	}
	visit(a.root())
}
