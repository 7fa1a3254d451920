package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// someFindings are one of each, with a name that means harm.
func someFindings() []ops.Finding {
	return []ops.Finding{
		{Check: "consumers", Severity: ops.Critical, Subject: "charge\x1b[2Jcard", Text: "Messages wait.", Remedy: "Start it."},
		{Check: "schema", Severity: ops.Critical, Text: "Version 14, and 15 is needed.", Remedy: "Run asyncmonolith migrate."},
		{Check: "pauses", Severity: ops.Warning, Subject: "mail", Text: "Paused for 2 days.", Remedy: "Resume the consumer."},
		{Check: "pool", Severity: ops.OK, Text: "The pool is large enough."},
		{Check: "clock", Severity: ops.OK, Text: "It agrees."},
	}
}

// TestDoctorForPeople: the worst first, each with its cure.
func TestDoctorForPeople(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := &output{terminal: terminal{out: &out}}
	err := findings(someFindings()).write(o, true)
	if !errors.Is(err, errCheckFailed) || exitOf(err) != exitCheckFailed || !strings.Contains(err.Error(), "2 critical findings") {
		t.Errorf("got error %v, want a failed check of 2 critical findings", err)
	}
	want := `2 critical
consumers   charge\u001b[2Jcard
  Messages wait.
  Remedy: Start it.
schema
  Version 14, and 15 is needed.
  Remedy: Run asyncmonolith migrate.

1 warning
pauses     mail
  Paused for 2 days.
  Remedy: Resume the consumer.

2 ok
pool   The pool is large enough.
clock  It agrees.
`
	if out.String() != want {
		t.Errorf("got\n%s, want\n%s", out.String(), want)
	}
}

// TestDoctorForPrograms: a finding in each line; what is not a problem is no failure.
func TestDoctorForPrograms(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := &output{terminal: terminal{out: &out}, json: true}
	if err := findings(someFindings()[2:]).write(o, true); err != nil {
		t.Errorf("got error %v, want none", err)
	}
	want := `{"v":1,"check":"pauses","severity":"warning","subject":"mail","text":"Paused for 2 days.","remedy":"Resume the consumer."}
{"v":1,"check":"pool","severity":"ok","text":"The pool is large enough."}
{"v":1,"check":"clock","severity":"ok","text":"It agrees."}
`
	if out.String() != want {
		t.Errorf("got\n%s, want\n%s", out.String(), want)
	}
}

// TestDoctorOfAFile goes from no tables to tables.
func TestDoctorOfAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil { // only migrate makes one
		t.Fatal(err)
	}
	dsn := "sqlite:" + path
	call := func(args ...string) (code int, out string) {
		var stdout, stderr bytes.Buffer
		code = run(t.Context(), append(args, "--dsn", dsn),
			terminal{in: strings.NewReader(""), out: &stdout, err: &stderr, env: func(string) string { return "" }})
		if code != exitDone {
			t.Logf("%v: %s", args, stderr.String())
		}
		return code, stdout.String()
	}
	if code, out := call("doctor"); code != exitCheckFailed || !strings.HasPrefix(out, "2 critical\n") ||
		!strings.Contains(out, "asyncmonolith migrate") || !strings.Contains(out, "WAL") {
		t.Errorf("no tables: got exit code %d and\n%s", code, out)
	}
	if code, _ := call("migrate"); code != exitDone {
		t.Fatalf("migrate: got exit code %d", code)
	}
	code, out := call("doctor", "--json")
	if code != exitDone {
		t.Errorf("tables: got exit code %d", code)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for _, line := range lines {
		var f ops.Finding
		if err := json.Unmarshal([]byte(line), &f); err != nil || f.Severity != ops.OK {
			t.Errorf("got %s, error %v, want it fine", line, err)
		}
	}
	if len(lines) < 10 {
		t.Errorf("got %d findings, want one of each check", len(lines))
	}
}
