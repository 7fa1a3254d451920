package cli_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// dump is all that is stored in some tables.
func (s site) dump(tables ...string) string {
	s.Helper()
	var b strings.Builder
	for _, table := range tables {
		rows, err := s.db.QueryContext(s.Context(), "SELECT * FROM "+table+" ORDER BY 1")
		if err != nil {
			s.Fatal(err)
		}
		columns, _ := rows.Columns()
		for rows.Next() {
			row := make([]any, len(columns))
			for i := range row {
				row[i] = new(any)
			}
			testapp.OK(s, rows.Scan(row...))
			for _, value := range row {
				fmt.Fprintf(&b, "%s %v;", table, *value.(*any))
			}
		}
		testapp.OK(s, rows.Close())
	}
	return b.String()
}

// TestNothingIsChangedUnasked: without --yes and --reason no command changes anything, and says so.
func TestNothingIsChangedUnasked(t *testing.T) {
	each(t, func(s site) {
		a := filled(s)
		id := s.idOf(a, "SELECT MAX(id) FROM consumer_messages")
		tables := []string{"consumer_messages", "poisoned_messages", "scheduled_messages", "paused_consumers", "message_operations"}
		before := s.dump(tables...)
		for _, args := range [][]string{
			{"consumers", "pause", "mail"}, {"consumers", "resume", "mail"},
			{"messages", "cancel", id}, {"messages", "run-now", id}, {"messages", "reschedule", id, "--at", "2030-01-01"},
			{"messages", "cancel", "--all"}, {"messages", "run-now", "--consumer", "mail"}, {"messages", "reschedule", "--consumer", "mail",
				"--at", "2030-01-01"},
			{"requeue", "1"}, {"requeue", "--consumer", "mail"}, {"requeue", "--all", "--wait"}, {"discard", "1"}, {"discard", "--consumer", "mail"},
			{"schedules", "run", "nightly"}, {"schedules", "pause", "nightly"}, {"schedules", "resume", "nightly"}, {"schedules", "delete",
				"nightly"},
		} {
			for _, more := range [][]string{nil, {"--reason", "why"}, {"--json"}} {
				got := s.must(4, append(args, more...)...)
				if !strings.Contains(got.err, "nothing was changed") {
					s.Errorf("%v %v: got %q, want it to say that nothing was changed", args, more, got.err)
				}
			}
			s.must(2, append(args, "--yes")...)
		}
		if after := s.dump(tables...); after != before {
			s.Errorf("got\n%s\nwant what there was\n%s", after, before)
		}
	})
}

// TestWait: an operation is carried out by the command that waits for it.
func TestWait(t *testing.T) {
	each(t, func(s site) {
		a := filled(s)
		got := s.must(0, "requeue", "--consumer", "mail", "--wait", "--undo-window", "0", "--canary", "0", "--rate", "1000", "--yes",
			"--reason", "fixed")
		if !strings.Contains(got.out, "(requeue) is done: 3 of 3 changed") || a.Count("SELECT count(*) FROM poisoned_messages") != 1 {
			s.Errorf("got %+v and %d poisoned messages, want 3 of 4 requeued", got, a.Count("SELECT count(*) FROM poisoned_messages"))
		}
		got = s.must(0, "messages", "cancel", "--consumer", "mail", "--wait", "--undo-window", "0", "--json", "--yes", "--reason", "void")
		if !strings.Contains(got.out, `"state":"done"`) || a.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'mail'") != 0 {
			s.Errorf("got %+v, want all messages of mail cancelled", got)
		}
		s.must(3, "requeue", "--consumer", "nobody", "--yes", "--reason", "fixed")

		a.Exec("UPDATE poisoned_messages SET insert_id = 'order a'")
		stock := []string{"requeue", "--consumer", "stock", "--undo-window", "0", "--canary", "0", "--yes", "--reason", "fixed"}
		if got := s.must(5, append(stock, "--wait")...); !got.says("0 of 1 changed, 1 skipped", "their insert id is pending") {
			s.Errorf("got %+v, want why it is skipped", got)
		}
		s.must(0, stock...)
		a.Exec("DELETE FROM poisoned_messages")
		got = s.must(0, "operations", "run", s.idOf(a, "SELECT MAX(id) FROM message_operations"))
		if !got.says("0 of 1 changed", "The other messages no longer matched") {
			s.Errorf("got %+v, want why it is not changed", got)
		}
	})
}

// TestWaitLeavesOthersAlone: who waits for an operation carries out no other, though it is due as well.
func TestWaitLeavesOthersAlone(t *testing.T) {
	each(t, func(s site) {
		a := filled(s)
		s.must(0, "requeue", "--consumer", "mail", "--undo-window", "0", "--canary", "0", "--rate", "1000", "--yes", "--reason", "fixed")
		other := s.idOf(a, "SELECT MAX(id) FROM message_operations")
		s.must(0, "discard", "--consumer", "stock", "--wait", "--undo-window", "0", "--yes", "--reason", "void")
		if a.Count("SELECT count(*) FROM message_operations WHERE state = 'waiting'") != 1 ||
			a.Count("SELECT count(*) FROM poisoned_messages") != 3 {
			s.Errorf("got %s, want the other operation as it was", s.dump("message_operations"))
		}
		s.must(0, "operations", "set-rate", other, "500", "--yes", "--reason", "faster")
		if got := s.must(0, "operations", "run", other); !strings.Contains(got.out, "is done: 3 of 3 changed") {
			s.Errorf("got %+v, want it done by who watches", got)
		}
	})
}

// TestPipes: where nobody reads on, as behind head, the command ends without a word.
func TestPipes(t *testing.T) {
	each(t, func(s site) {
		a := filled(s)
		a.ProduceMany(400)
		c, _, stderr := s.command(s.Context(), "messages", "list", "--limit", "1000", "--json")
		c.Stdout = nil
		out := testapp.Must[io.ReadCloser](s.T)(c.StdoutPipe())
		testapp.OK(s, c.Start())
		if _, err := io.ReadFull(out, make([]byte, 100)); err != nil {
			_ = c.Wait()
			s.Fatalf("reading the first 100 bytes: %v; the command ended with %v and wrote %q", err, c.ProcessState, stderr)
		}
		testapp.OK(s, out.Close())
		err := c.Wait()
		if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGPIPE ||
			stderr.Len() > 0 {
			s.Errorf("got %v and %q, want the end of who writes into a closed pipe", err, stderr)
		}
	})
}

// TestInterrupted: Ctrl-C leaves an operation as it is, and says how to go on.
func TestInterrupted(t *testing.T) {
	each(t, func(s site) {
		a := filled(s)
		c, _, _ := s.command(context.WithoutCancel(s.Context()), "requeue", "--consumer", "mail", "--wait", "--undo-window", "1h",
			"--yes", "--reason", "fixed")
		c.Stderr = nil
		stderr := testapp.Must[interface{ Read([]byte) (int, error) }](s.T)(c.StderrPipe())
		testapp.OK(s, c.Start())
		lines := bufio.NewScanner(stderr)
		if !lines.Scan() || !strings.Contains(lines.Text(), "is waiting, and starts at") {
			s.Errorf("got %q, want that it waits", lines.Text())
		}
		if args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.Process.Pid)); err == nil && strings.Contains(string(args), s.dsn) {
			s.Errorf("the list of processes shows the DSN: %q", args)
		}
		testapp.OK(s, c.Process.Signal(syscall.SIGINT))
		said := ""
		for lines.Scan() {
			said += lines.Text() + "\n"
		}
		_ = c.Wait()
		id := s.idOf(a, "SELECT MAX(id) FROM message_operations")
		for _, want := range []string{"Not stopped: operation " + id + " (requeue) is waiting", "asyncmonolith operations run " + id,
			"asyncmonolith operations undo " + id} {
			if !strings.Contains(said, want) {
				s.Errorf("got %q, want it to say %q", said, want)
			}
		}
		if code := c.ProcessState.ExitCode(); code != 5 || a.Count("SELECT count(*) FROM message_operations WHERE state = 'waiting'") != 1 {
			s.Errorf("got exit code %d, want 5, with the operation waiting", code)
		}
		s.must(0, "operations", "undo", id)
		s.must(1, "operations", "undo", id)
		if n := a.Count("SELECT count(*) FROM poisoned_messages"); n != 4 {
			s.Errorf("got %d poisoned messages, want all 4", n)
		}
	})
}

// TestTwoStartsOfOnePlanAreOneOperation get one operation.
func TestTwoStartsOfOnePlanAreOneOperation(t *testing.T) {
	each(t, func(s site) {
		a := filled(s)
		answers := make([]answer, 4)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() {
				answers[i] = s.run("requeue", "--consumer", "mail", "--undo-window", "1h", "--yes", "--reason", "fixed")
			})
		}
		all.Wait()
		told := 0
		for _, got := range answers {
			if got.code != 0 {
				s.Errorf("got %+v, want exit code 0", got)
			}
			if strings.Contains(got.err, "does the same and has not ended") {
				told++
			}
		}
		waiting := a.Count("SELECT count(*) FROM message_operations WHERE state = 'waiting'")
		if waiting != 1 || told != len(answers)-1 {
			s.Errorf("got %d operations, %d told so, want 1, and the others told", waiting, told)
		}
		s.must(0, "requeue", "--consumer", "stock", "--undo-window", "1h", "--yes", "--reason", "another")
		if n := a.Count("SELECT count(*) FROM message_operations WHERE state = 'waiting'"); n != 2 {
			s.Errorf("got %d operations, want another one for another target", n)
		}
	})
}

// TestWhatNeedsNoChangeOfAConsumer is said, and is no success; an open breaker is due for a probe.
func TestWhatNeedsNoChangeOfAConsumer(t *testing.T) {
	each(t, func(s site) {
		a := filled(s)
		probe := []string{"consumers", "probe", "mail", "--yes", "--reason", "the provider is back"}
		s.says(3, "the circuit breaker is not open", probe...)
		s.says(3, "the consumer is not paused", "consumers", "resume", "mail", "--yes", "--reason", "it is out")
		now, until := testapp.NowOf(s.db), testapp.In(s.db, time.Hour)
		a.Exec("INSERT INTO message_breakers (name, half_since, opened, opened_at, open_until) VALUES ('mail', " + now + ", 1, " + now + ", " + until + ")")
		s.must(4, probe[:3]...)
		due := func() int {
			return a.Count("SELECT count(*) FROM message_breakers WHERE open_until <= " + testapp.NowOf(s.db))
		}
		if due() != 0 {
			s.Error("unconfirmed: got the breaker due for a probe, want it left alone")
		}
		if got := s.must(0, probe...); !got.says(`Consumer "mail" tries one message`, "asyncmonolith status") || due() != 1 {
			s.Errorf("probe: got %+v, %d breakers due for a probe, want the one", got, due())
		}
	})
}

// TestFlagsOfOperationsWithIDs: flags of an operation are refused with ids, which are changed at once.
func TestFlagsOfOperationsWithIDs(t *testing.T) {
	eachAsIs(t, func(s site) {
		a := filled(s)
		yes := []string{"--yes", "--reason", "fixed"}
		for _, flags := range [][]string{{"--canary", "1"}, {"--rate", "5"}, {"--undo-window", "1h"}, {"--wait"}} {
			got := s.must(2, append(append([]string{"requeue", "1", "2"}, flags...), yes...)...)
			if !got.says(flags[0] + " concerns operations, and ids are changed at once") {
				s.Errorf("%v: got %+v, want the flag refused", flags, got)
			}
		}
		s.must(2, append([]string{"discard", "1", "--undo-window", "1h"}, yes...)...)
		got := s.must(2, append([]string{"discard", "--exported", "kept.ndjson", "--rate", "5"}, yes...)...)
		if !got.says("--rate concerns operations") {
			s.Errorf("--exported: got %+v, want the flag refused", got)
		}
		s.must(2, append([]string{"messages", "cancel", "1", "--rate", "5"}, yes...)...)
		if n := a.Count("SELECT count(*) FROM poisoned_messages"); n != 4 {
			s.Errorf("got %d poisoned messages, want all 4", n)
		}
	})
}

// TestOneConsumedMessage: it has the size of its whole payload, and says whether contents are hidden.
func TestOneConsumedMessage(t *testing.T) {
	eachAsIs(t, func(s site) {
		a := filled(s)
		a.Exec("UPDATE consumed_messages SET payload = ? WHERE id = 22", "x"+strings.Repeat("é", 50<<10))
		if got := s.must(0, "consumed", "get", "22", "--show-payloads"); !got.says("102401") || strings.Contains(got.out, "\uFFFD") {
			s.Errorf("got %.300s … %q, want the size, and whole characters", got.out, got.out[len(got.out)-20:])
		}
		if got := s.must(0, "consumed", "get", "22", "--json"); !got.says(`"payload_bytes":102401`, `"hidden":true`) {
			s.Errorf("JSON: got %+v, want the size, and that contents are hidden", got)
		}
	})
}

// TestAPreviewSkipsWhatIsLeased, as the change does.
func TestAPreviewSkipsWhatIsLeased(t *testing.T) {
	eachAsIs(t, func(s site) {
		a := filled(s)
		leased, free := s.idOf(a, "SELECT MIN(id) FROM consumer_messages"), s.idOf(a, "SELECT MAX(id) FROM consumer_messages")
		ids := "'[" + leased + "]'"
		if s.db.Dialect().Name() == dialect.PG {
			ids = "'{" + leased + "}'"
		}
		skipped := "1 message leased and skipped: [" + leased + "]."
		a.Exec("INSERT INTO message_claims (owner, solo, message_ids, claimed_at, leased_until) VALUES ('p', FALSE, " + ids + ", " +
			testapp.NowOf(s.db) + ", " + testapp.In(s.db, time.Hour) + ")")
		for _, command := range []string{"run-now", "reschedule", "cancel"} {
			args := []string{"messages", command, leased, free}
			if command == "reschedule" {
				args = append(args, "--at", "2030-01-02")
			}
			if got := s.must(4, args...); !got.says("1 message would be ", skipped) {
				s.Errorf("%s: got %+v, want one, and one that is skipped", command, got)
			}
			got := s.must(5, append(args, "--yes", "--reason", "why")...)
			if !got.says(skipped) {
				s.Errorf("%s --yes: got %+v, want one that is skipped", command, got)
			}
		}
	})
}
