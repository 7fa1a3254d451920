package console_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// Who sees the console for the first time believes what it says: it must not say what is not so.

// texts are what a page has to say, and what it must not.
type texts struct{ says, not []string }

// reads compares what a page says.
func (s *site) reads(when, path string, want texts) {
	s.Helper()
	_, got, _ := strings.Cut(parse(s, path, s.must(path).body).text, " Save ") // behind what stands on each page
	got, _, _ = strings.Cut(got, " Times are in UTC, ")
	for _, text := range want.says {
		if !strings.Contains(got, text) {
			s.Errorf("%s: want %q, got %q", when, text, got)
		}
	}
	for _, text := range want.not {
		if strings.Contains(got, text) {
			s.Errorf("%s: want nothing of %q, got %q", when, text, got)
		}
	}
}

// exec changes something in a site's database.
func (s *site) exec(statement string, args ...any) {
	s.Helper()
	if _, err := s.db.NewRaw(statement, args...).Exec(s.Context()); err != nil {
		s.Fatal(err)
	}
}

// ago is an instant on the database's clock.
func (s *site) ago(d time.Duration) bun.Safe { return bun.Safe(testapp.In(s.db, -d)) }

// live has a process be there.
func (s *site) live(id, kind, version, manifest string) {
	s.Helper()
	s.exec("INSERT INTO message_processes (id, kind, host, pid, program, version, started_at, seen_at, manifest, state) VALUES (?, ?, 'box', 7, 'shop', ?, ?, ?, ?, ?)",
		id, kind, version, s.ago(0), s.ago(0), manifest, fmt.Sprintf(`{"every": %d}`, time.Hour))
}

// TestAnOperationWithoutARunnerSaysSo says so, and no more than that it was to begin.
func TestAnOperationWithoutARunnerSaysSo(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Administrator, named("ada"), patient)
	s.exec("UPDATE message_processes SET stopped_at = seen_at")
	planned := planOf(s)
	path := fmt.Sprintf("operation?id=%d", planned.ID)
	const orphan = "No live process runs operations"
	s.reads("a plan", path, texts{[]string{orphan, "The operation starts after ten seconds"}, nil})
	testapp.Must[ops.Operation](t)(s.session().Operations().Start(t.Context(), planned.ID,
		ops.StartOptions{Reason: "because", Rate: 100, Canary: 10}))
	s.reads("one that begins", path, texts{[]string{"The operation starts in 59 min", orphan, "10 run first", "as undone"},
		[]string{"Remaining", "without a trace", "ran first"}})
	begins := func(in time.Duration) {
		s.exec("UPDATE message_operations SET starts_at = ? WHERE id = ?", bun.Safe(testapp.In(s.db, in)), planned.ID)
	}
	begins(-24 * time.Second)
	s.reads("one that was to begin", path, texts{[]string{"The operation was due 2", " s ago. " + orphan, "10 run first"},
		[]string{"The operation starts", "Remaining"}})

	s.live("a-runner", "operations", "v1", "{}")
	begins(-5 * time.Second)
	s.reads("one that a runner takes", path,
		texts{[]string{"s ago. A runner starts it within ten seconds."}, []string{orphan, "The operation starts", "Remaining"}})
	begins(-5 * time.Minute)
	s.reads("one that runners leave", path, texts{[]string{"The operation was due 5 min", " ago. No live process has started it"},
		[]string{orphan}})
	begins(time.Hour)
	s.reads("one that a runner takes later", path, texts{[]string{"The operation starts in 59 min"}, []string{orphan}})

	s.exec("UPDATE message_operations SET state = 'running', changed = 1 WHERE id = ?", planned.ID)
	s.reads("one that runs", path, texts{[]string{"10 ran first", "Remaining"}, []string{orphan}})
	s.exec("UPDATE message_processes SET stopped_at = seen_at")
	s.reads("one whose runner has gone", path, texts{[]string{"The operation makes no progress. " + orphan}, []string{"Remaining"}})
}

// TestAProcessWithoutAVersionRuns: that its version is not known does not mean that there is none.
func TestAProcessWithoutAVersionRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Viewer)
	s.exec("UPDATE message_processes SET version = ''")
	path := "group?consumer=consumer-03&fingerprint=" + fingerprint(3)
	s.reads("a process without a version", path, texts{[]string{"Live versions unknown"}, []string{"no process"}})
	s.exec("UPDATE message_processes SET stopped_at = seen_at")
	s.reads("no process", path, texts{[]string{"Live versions no process"}, []string{"unknown"}})
}

// TestWhatIsNotReportedYet is not said to be nothing.
func TestWhatIsNotReportedYet(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Viewer)
	s.exec("DELETE FROM message_failures")
	s.reads("no failure", "", texts{[]string{"No failures were reported in the last 30 days."}, []string{"in the last hour", "No run"}})

	s = newSite(t, s.db, ops.Viewer) // with an overview of its own
	s.exec("DELETE FROM message_minutes")
	s.reads("nothing", "", texts{[]string{"Nothing was reported in the last hour. Processes report every 15 s.",
		"nothing reported"}, []string{"No failure", "no runs", " 0.0 "}})
	s.reads("nothing of a consumer", "consumer?name=consumer-03",
		texts{[]string{"Nothing was reported in the last 48 hours"}, []string{"Nothing has run"}})
}

// TestAGroupIsCalledByWhatFailed, and by the type of its errors only where their texts are hidden.
func TestAGroupIsCalledByWhatFailed(t *testing.T) {
	t.Parallel()
	path := "group?consumer=consumer-03&fingerprint=" + fingerprint(3)
	s := newSite(t, inWorld(t, "normal"), ops.Operator)
	heading := func(s *site) string {
		_, after, _ := strings.Cut(s.must(path).body, "<h1>")
		text, rest, _ := strings.Cut(after, "</h1>")
		beside, _, _ := strings.Cut(rest, `<span class="pill`)
		return text + beside
	}
	if got, want := heading(s), "error-… with sesame-…"+`<span class="soft">error-type-03</span>`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := heading(newSite(t, s.db, ops.Operator, hidden)); got != "error-type-03" {
		t.Errorf("where texts are hidden: got %q, want the type", got)
	}
	s.exec("UPDATE message_failures SET sample = ?", strings.Repeat("long ", 100)+"\nsecond line")
	if got := heading(s); len(got) > 200 || strings.Contains(got, "second") || !strings.Contains(got, " …<") {
		t.Errorf("a long text: got %q, want the beginning of it", got)
	}
}

// TestAMessageOfAPausedConsumer says who has paused that, and why.
func TestAMessageOfAPausedConsumer(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Viewer)
	of := func(consumer string) string {
		return fmt.Sprintf("message?id=%d", count(t, s.db, "SELECT max(id) FROM consumer_messages WHERE consumer_type = ?", consumer))
	}
	s.reads("paused", of("consumer-01"), texts{[]string{", by person-00: note-00. View consumer"}, nil})
	s.reads("not paused", of("consumer-03"), texts{nil, []string{"has been paused", "person-00"}})
}

// TestProgramsAreCounted, and not each of their runs.
func TestProgramsAreCounted(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "empty"), ops.Viewer)
	s.live("one", "processor", "v1", "{}")
	s.live("another", "scheduler", "v1", "{}")
	for _, path := range []string{"", "processes"} {
		s.reads("two runs of a program", path, texts{[]string{"1 program alive"}, []string{"live processes, as of"}})
	}
}

// TestPlansOfOthers are no changes: who has made one sees it.
func TestPlansOfOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Administrator, named("ada"))
	s.exec("DELETE FROM message_operations")
	s.exec("INSERT INTO message_operations (kind, actor, reason, note, preview, target, state, rate, canary, canaries, after_id, up_to_id, changed, left_alone, created_at) SELECT 'requeue', 'grace', '', '', '{}', '{}', 'planned', 1, 0, '[]', 0, 0, 0, 0, ? FROM consumer_messages LIMIT 60", s.ago(0))
	s.reads("plans of others only", "operations",
		texts{[]string{"This page has only plans of other people.", "Next page"}, []string{"grace", "No changes yet"}})
	planOf(s)
	s.reads("a plan of hers", "operations", texts{[]string{"planned", "ada"}, []string{"grace"}})
	s.exec("UPDATE message_operations SET state = 'undone' WHERE actor = 'grace'")
	s.reads("what is no plan any more", "operations", texts{[]string{"grace"}, nil})
}

// TestWhatIsPoisonedIsSeenOnAPhone: it is the first number of a consumer, and of a group.
func TestWhatIsPoisonedIsSeenOnAPhone(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Operator)
	s.reads("the overview", "", texts{[]string{"Consumer State Ready Oldest due Poisoned"}, nil})
	s.reads("groups", "poisoned", texts{[]string{"Consumer Poisoned Error Failed runs", "consumer-03 6 error-…"}, nil})
}

// TestAScheduleThatCannotFire has no second badge that says that it runs.
func TestAScheduleThatCannotFire(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Operator)
	s.exec("UPDATE scheduled_messages SET run_at = available_after")
	s.exec("UPDATE schedule_fires SET recent = '[]' WHERE schedule_id NOT IN (SELECT id FROM scheduled_messages WHERE last_error IS NOT NULL)")
	s.reads("one that cannot", "schedules?name=schedule-03", texts{[]string{"cannot fire"}, []string{"extra fire"}})
	s.reads("one that can", "schedules?name=schedule-02", texts{[]string{"extra fire"}, []string{"cannot fire"}})
}

// TestACureHasItsPage: the service names a command, and the console the page.
func TestACureHasItsPage(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Operator)
	s.reads("a process that vanished", "doctor", texts{[]string{"A message that it held may be the cause. Crash suspects"}, nil})
}
