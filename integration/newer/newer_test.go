// Package newer_test has a program of today beside a newer release of it, on one database: nothing of what only the newer
// one knows is lost, dropped or done twice.
package newer_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

// additions are what the library of the newer release has, by the file: a field that filters more, and a kind of operation.
func additions() map[string][]string {
	const cancel = "\t\tCancel: {"
	const archive = "\t\t\"archive\": {check: ofPending, preview: previewPending, step: " +
		"func(ctx context.Context, d *Service, tx bun.Tx, s step) (moved, error) { return kinds()[Cancel].step(ctx, d, tx, s) }},\n"
	const field = "\tInsertID string `json:\"insert_id,omitempty\"`\n"
	return map[string][]string{
		"admin/message.go":       {field, field + "\tNamed string `json:\"named,omitempty\"`\n"},
		"ops/target.go":          {"InsertID: f.InsertID", "InsertID: f.Named"},
		"ops/operation_kinds.go": {cancel, archive + cancel},
	}
}

// build builds the program: as it is, and the newer release of it.
func build(t *testing.T) (today, newer string) {
	t.Helper()
	dir, replaced := t.TempDir(), make(map[string]string)
	for file, texts := range additions() {
		path := testapp.Must[string](t)(filepath.Abs("../../" + file))
		source := string(testapp.Must[[]byte](t)(os.ReadFile(path)))
		if strings.Count(source, texts[0]) != 1 {
			t.Fatalf("%s: the text to replace is there %d times, want once: %q", file, strings.Count(source, texts[0]), texts[0])
		}
		replaced[path] = filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		write(t, replaced[path], strings.Replace(source, texts[0], texts[1], 1))
	}
	overlay := filepath.Join(dir, "overlay.json")
	write(t, overlay, string(testapp.Must[[]byte](t)(json.Marshal(map[string]any{"Replace": replaced}))))
	run := func(name string, flags ...string) string {
		program := filepath.Join(dir, name+".exe")
		args := append([]string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", program}, flags...)
		command := exec.CommandContext(t.Context(), "go", append(args, "./testdata/program")...)
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, output)
		}
		return program
	}
	return run("today"), run("newer", "-tags", "newer", "-overlay", overlay)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// start starts a program, and returns what has it do something.
func start(t *testing.T, program, dsn string) (do func(commands ...string)) {
	t.Helper()
	command := exec.Command(program, dsn)
	command.Stderr = os.Stderr
	input := testapp.Must[io.WriteCloser](t)(command.StdinPipe())
	output := testapp.Must[io.ReadCloser](t)(command.StdoutPipe())
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	hangs := time.AfterFunc(time.Minute, func() { _ = command.Process.Kill() })
	answers := bufio.NewScanner(output)
	t.Cleanup(func() {
		_ = input.Close()
		if err := command.Wait(); err != nil {
			t.Errorf("%s: got %v", filepath.Base(program), err)
		}
		hangs.Stop()
	})
	return func(commands ...string) {
		t.Helper()
		for _, c := range commands {
			if _, err := fmt.Fprintln(input, c); err != nil || !answers.Scan() || answers.Text() != "done" {
				t.Fatalf("%s: %s: got %q, %v, want it done", filepath.Base(program), c, answers.Text(), err)
			}
		}
	}
}

// TestANewerReleaseBesideToday: what is added is left to the processes that know it.
func TestANewerReleaseBesideToday(t *testing.T) {
	today, newer := build(t)
	dsn := testdb.PostgresDSN(t)
	db := testdb.OpenPostgres(t, dsn)
	a := &testapp.App{T: t, DB: db}
	a.Exec("CREATE TABLE done (what text, id text, by text)")
	a.Exec("CREATE TABLE outgoing (n serial, id text, body text)")
	a.Exec("CREATE TABLE incoming (n serial, type text, body text, by text)")
	older, recent := start(t, today, dsn), start(t, newer, dsn)
	older("run", "before") // it has the shard, and all of the subscription
	testapp.Eventually(t, "today's release relays", func() bool { return a.Count("SELECT count(*) FROM outgoing") == 1 })

	recent("run")
	for i := range 20 {
		older(fmt.Sprint("today-", i))
		recent(fmt.Sprint("newer-", i))
		receive(a, i)
	}
	testapp.Eventually(t, "all that arrived is taken", func() bool { return a.Count("SELECT count(*) FROM incoming WHERE by IS NULL") == 0 })
	testapp.Eventually(t, "all is consumed", func() bool {
		return a.Count("SELECT count(*) FROM consumer_messages WHERE payload_type <> 'later'") == 0
	})
	testapp.Eventually(t, "all leaves", func() bool { return a.Count("SELECT count(DISTINCT id) FROM outgoing") >= 61 })
	const each = " FROM (SELECT id FROM done WHERE what = '%s' GROUP BY id HAVING count(*) = 1) d"
	for what, want := range map[string]int{
		"ship": 61, "repay": 40, "audit order.refunded ": 40, // of both releases, and the broker
		"audit order.placed ": 41, "audit order.placed fragile": 20, // a field that today's release does not know is kept
	} {
		once, all := a.Count("SELECT count(*)"+fmt.Sprintf(each, what)), a.Count("SELECT count(*) FROM done WHERE what = ?", what)
		if once != want || all != want {
			t.Errorf("%q: got %d done once of %d, want %d", what, once, all, want)
		}
	}
	if n := a.Count("SELECT count(*) FROM poisoned_messages"); n != 0 {
		t.Errorf("poisoned: got %d, want none", n)
	}
	if n := a.Count("SELECT count(DISTINCT id) FROM outgoing WHERE body LIKE '%north%'"); n != 20 {
		t.Errorf("events with a new field: got %d that have it, want 20", n)
	}

	recent("one", "plan")
	older("operate")
	waiting := func() int { return a.Count("SELECT count(*) FROM consumer_messages WHERE payload_type = 'later'") }
	if n, all := waiting(), 2*42; n != all {
		t.Errorf("operations of the newer release: today's left %d messages, want all %d", n, all)
	}
	recent("operate")
	if n := a.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'wait'"); n != 41 || waiting() != 41 {
		t.Errorf("the newer release: got %d messages left of one consumer and %d in all, want 41 of the first", n, waiting())
	}
	if by := a.Count("SELECT count(*) FROM done WHERE by = 'today'"); by == 0 {
		t.Error("today's release has done nothing, want it to work beside the other")
	}
}

// receive puts records of both types into the broker.
func receive(a *testapp.App, i int) {
	a.Helper()
	for _, kind := range []string{"order.placed", "order.refunded"} {
		a.Exec("INSERT INTO incoming (type, body) VALUES (?, ?)", kind, fmt.Sprintf(`{"id":"broker-%d"}`, i))
	}
}
