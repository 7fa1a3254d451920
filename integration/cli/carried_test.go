package cli_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// says tells whether all of some texts are in what was said.
func (a answer) says(texts ...string) bool {
	for _, text := range texts {
		if !strings.Contains(a.out+a.err, text) {
			return false
		}
	}
	return true
}

// alive notes a process of a kind that lives.
func (s site) alive(a *testapp.App, kind string) {
	s.Helper()
	now := testapp.NowOf(s.db)
	a.Exec("INSERT INTO message_processes (id, kind, host, pid, program, version, started_at, seen_at, manifest, state) VALUES (?, ?, 'web-1', 99, 'shop', '', "+now+", "+now+", '{}', '{\"every\":15000000000}')", uuid.NewString(), kind)
}

// TestAnOperationIsStartedWithoutARunner: where no live process carries out operations, who starts or watches one hears so.
func TestAnOperationIsStartedWithoutARunner(t *testing.T) {
	each(t, func(s site) {
		a := filled(s)
		start := []string{"requeue", "--consumer", "mail", "--undo-window", "0", "--yes", "--reason", "fixed"}
		const noRunner = "No live process runs operations: start one, or use asyncmonolith operations run "
		got := s.must(0, start...)
		id := s.idOf(a, "SELECT MAX(id) FROM message_operations")
		if !got.says(noRunner+id+".") || got.says("A process that runs") {
			s.Errorf("got %+v, want that no process runs it", got)
		}
		got = s.must(0, append(start, "--json")...)
		if !strings.Contains(got.err, noRunner+id) || strings.Contains(got.out, "No live") {
			s.Errorf("JSON: got %+v, want it on stderr", got)
		}
		a.Exec("UPDATE message_operations SET starts_at = "+testapp.In(s.db, -11e9)+" WHERE id = ?", id)
		for _, command := range []string{"status --check", "doctor"} {
			got = s.must(6, strings.Fields(command)...)
			if !got.says("operation "+id+" (requeue by", "but no live process runs operations.") {
				s.Errorf("%s: got %+v, want that it stands still", command, got)
			}
		}
		s.watched(id, noRunner+id)
		s.alive(a, "operations")
		got = s.must(0, start...)
		if !got.says("A process that runs operations runs it.") || got.says(noRunner) {
			s.Errorf("got %+v, want that a process runs it", got)
		}
		got = s.must(6, "status", "--check")
		if got.says("operation " + id) {
			s.Errorf("got %+v, want patience with the process that lives", got)
		}
	})
}

// watched watches an operation until it says something, and ends that.
func (s site) watched(id, want string) {
	s.Helper()
	if said := s.until(want, "operations", "watch", id); said != want {
		s.Errorf("watch: got %q, want %q", said, want)
	}
}

// until runs a command until it has written a text to its stderr, ends it, and returns what it wrote.
func (s site) until(want string, args ...string) (said string) {
	s.Helper()
	return s.during(want, func() {}, args...)
}

// during is until, but does something before it ends the command.
func (s site) during(want string, do func(), args ...string) (said string) {
	s.Helper()
	c, _, _ := s.command(s.Context(), args...)
	c.Stderr = nil
	stderr, err := c.StderrPipe()
	if err != nil {
		s.Fatal(err)
	}
	testapp.OK(s, c.Start())
	defer time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() }).Stop()
	for one := make([]byte, 1); !strings.Contains(said, want); said += string(one) {
		if _, err := io.ReadFull(stderr, one); err != nil {
			break
		}
	}
	do()
	_ = c.Process.Kill()
	_ = c.Wait()
	return said
}

// TestCanariesThatNothingConsumes: who carries out an operation hears that no process runs its canaries.
func TestCanariesThatNothingConsumes(t *testing.T) {
	each(t, func(s site) {
		a := filled(s)
		start := []string{"requeue", "--consumer", "mail", "--undo-window", "0", "--yes", "--reason", "fixed", "--wait"}
		if said := s.until("waiting for canaries to run", start...); strings.Contains(said, "No live process consumes") {
			s.Errorf("a process lives: got %q, want no word of that", said)
		}
		a.Exec("DELETE FROM message_processes")
		const want = "No live process consumes mail: the operation waits for one to run its canaries.\n"
		run := []string{"operations", "run", s.idOf(a, "SELECT MAX(id) FROM message_operations")}
		if said := s.until(want, run...); !strings.Contains(said, want) {
			s.Errorf("got %q, want %q", said, want)
		}
	})
}

// TestATerminalRunsItsOwnOperation: a terminal that runs one operation runs no others, which their principals hear.
func TestATerminalRunsItsOwnOperation(t *testing.T) {
	each(t, func(s site) {
		a := filled(s)
		start := func(consumer string, more ...string) []string {
			return append([]string{"requeue", "--consumer", consumer, "--undo-window", "0", "--yes", "--reason", "fixed"}, more...)
		}
		var first string
		s.during("waiting for canaries to run", func() {
			first = s.idOf(a, "SELECT MAX(id) FROM message_operations")
			got := s.must(0, start("stock")...)
			if want := "No live process runs operations: start one, or use asyncmonolith operations run "; !got.says(want) {
				s.Errorf("got %+v, want %q", got, want)
			}
			if said := s.until("operation "+first, "operations", "watch", first); strings.Contains(said, "No live process runs operations") {
				s.Errorf("watched: got %q, but the terminal runs it", said)
			}
			if got := s.must(0, "processes"); !got.says("operations: only operation " + first) {
				s.Errorf("processes: got %+v, want the operation", got)
			}
		}, start("mail", "--wait")...)
	})
}

// TestTheSameHasPausedItself: who starts it again hears how it goes on, that nothing is done, and leaves no plan behind.
func TestTheSameHasPausedItself(t *testing.T) {
	each(t, func(s site) {
		a := filled(s)
		start := []string{"requeue", "--consumer", "mail", "--undo-window", "1h", "--yes", "--reason", "fixed"}
		s.must(0, start...)
		id := s.idOf(a, "SELECT MAX(id) FROM message_operations")
		if got := s.must(0, start...); !got.says("Operation "+id+", started by", "operations undo "+id) {
			s.Errorf("waiting: got %+v, want how to take it back", got)
		}
		a.Exec("UPDATE message_operations SET state = 'running'")
		if got := s.must(0, start...); !got.says("operations stop "+id) || got.says("undo") {
			s.Errorf("running: got %+v, want how to end it", got)
		}
		a.Exec("UPDATE message_operations SET state = 'paused', note = '10 of 10 canary messages failed again'")
		for _, more := range [][]string{nil, {"--wait"}, {"--json"}} {
			got := s.must(5, append(start, more...)...)
			if !got.says("operation "+id+" has paused itself", "operations resume "+id+" --yes --reason TEXT",
				"operations stop "+id+" --reason TEXT") || got.says("undo") {
				s.Errorf("%v: got %+v, want how it goes on, or ends", more, got)
			}
		}
		if n := a.Count("SELECT count(*) FROM message_operations"); n != 1 {
			s.Errorf("got %d operations, want the one: %s", n, s.dump("message_operations"))
		}
		s.must(0, "operations", "resume", id, "--yes", "--reason", "other orders")
		if got := s.must(0, "operations", "get", id, "--show-payloads"); !got.says("resumed by cli:",
			"; before that: 10 of 10 canary messages failed again") {
			s.Errorf("got %+v, want why it had paused itself, too", got)
		}
	})
}

// TestRequeuedHasAnotherID: who requeues messages by their ids hears what they are called now.
func TestRequeuedHasAnotherID(t *testing.T) {
	each(t, func(s site) {
		a := filled(s)
		yes := []string{"--yes", "--reason", "fixed"}
		got := s.must(0, append([]string{"requeue", "3"}, yes...)...)
		if id := s.idOf(a, "SELECT MAX(id) FROM consumer_messages"); got.out != "1 message requeued: it is message "+id+" now.\n" {
			s.Errorf("got %+v, want that it is message %s", got, id)
		}
		got = s.must(5, append([]string{"requeue", "1", "2", "99", "--json"}, yes...)...)
		last := a.Count("SELECT MAX(id) FROM consumer_messages")
		if want := fmt.Sprintf("{\"v\":1,\"requeued\":2,\"conflicts\":0,\"missing\":1,\"ids\":[%d,%d]}\n", last-1, last); got.out != want {
			s.Errorf("JSON: got %q, want %q", got.out, want)
		}
	})
}

// TestRequeuedIntoAPause: who requeues messages of a consumer that is paused hears that they wait.
func TestRequeuedIntoAPause(t *testing.T) {
	each(t, func(s site) {
		filled(s)
		s.must(0, "consumers", "pause", "mail", "--yes", "--reason", "it burns")
		if got := s.must(4, "discard", "--all"); got.says("requeued messages wait") {
			s.Errorf("discard: got %+v, want nothing of a requeue", got)
		}
		yes := []string{"--yes", "--reason", "fixed"}
		for _, test := range []struct {
			code int
			args []string
		}{
			{4, []string{"requeue", "1"}},
			{4, []string{"requeue", "--consumer", "mail"}},
			{4, []string{"requeue", "--all", "--json"}},
			{0, append([]string{"requeue", "1"}, yes...)},
			{0, append([]string{"requeue", "--consumer", "mail", "--undo-window", "1h"}, yes...)},
			{0, append([]string{"requeue", "--all", "--wait", "--undo-window", "0", "--canary", "0"}, yes...)},
		} {
			got := s.must(test.code, test.args...)
			if !strings.Contains(got.err, "mail is paused by cli:") || !strings.Contains(got.err, ": requeued messages wait until it is resumed.") {
				s.Errorf("%v: got %+v, want that it is paused", test.args, got)
			}
		}
	})
}

// TestWhatIsKeptIsWhatIsDeleted: a discard of an export deletes what is in the file, and nothing else.
func TestWhatIsKeptIsWhatIsDeleted(t *testing.T) {
	eachAsIs(t, func(s site) {
		a := filled(s)
		write := func(text string) string {
			s.Helper()
			path := filepath.Join(s.TempDir(), "kept.ndjson")
			testapp.OK(s, os.WriteFile(path, []byte(text), 0o600))
			return path
		}
		discard := func(code int, path string, more ...string) answer {
			s.Helper()
			return s.must(code, append([]string{"discard", "--exported", path}, more...)...)
		}
		yes := []string{"--yes", "--reason", "kept elsewhere"}
		a.Exec("UPDATE poisoned_messages SET consumer_type = 'other' WHERE id = 1") // it fails later, with a lower id
		kept := s.must(0, "poisoned", "export", "--consumer", "mail", "--show-payloads", "--reason", "to keep").out
		path := write(kept)
		a.Exec("UPDATE poisoned_messages SET consumer_type = 'mail' WHERE id = 1")
		lines := strings.SplitAfter(kept, "\n")
		for what, text := range map[string]string{
			"cut short":                    kept[:len(kept)-20],
			"ended early":                  kept + `{"v":1,"error":"the export ended early: it is not whole"}` + "\n",
			"without content":              s.must(0, "poisoned", "export", "--consumer", "mail", "--reason", "to keep").out,
			"no export":                    "hello",
			"without content, by an error": s.must(0, "poisoned", "export", "--consumer", "mail", "--error", "luck", "--reason", "to keep").out,
		} {
			if got := discard(2, write(text), yes...); a.Count("SELECT count(*) FROM poisoned_messages") != 4 {
				s.Errorf("%s: got %+v, want it refused", what, got)
			}
		}
		discard(2, path, append(yes, "--consumer", "mail")...)
		discard(2, filepath.Join(s.TempDir(), "none"), yes...)
		elsewhere := strings.ReplaceAll(kept, `"message_id":"0`, `"message_id":"1`)
		discard(3, write(elsewhere), yes...) // of another database
		if got := discard(4, path); !strings.Contains(got.out, "2 messages would be discarded, of 2 in the file.") ||
			a.Count("SELECT count(*) FROM poisoned_messages") != 4 {
			s.Errorf("unasked: got %+v", got)
		}
		if got := discard(0, write(lines[0]), yes...); !strings.Contains(got.out, "1 message discarded.") {
			s.Errorf("one: got %+v", got)
		}
		if got := discard(5, path, append(yes, "--json")...); !strings.Contains(got.out, `"discarded":1,"missing":1`) {
			s.Errorf("the rest: got %+v", got)
		}
		if left := a.Count("SELECT count(*) FROM poisoned_messages WHERE id IN (1, 4)"); left != 2 ||
			a.Count("SELECT count(*) FROM poisoned_messages") != 2 {
			s.Errorf("got %d left, want what was not kept: that of another consumer, and the one that failed later", left)
		}
		discard(3, path, yes...)
	})
}
