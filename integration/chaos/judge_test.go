//go:build unix

package chaos_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// What the judge is worth shows on evidence that was tampered with.

// fairRun is a run in which every promise was kept, whatever happened in it:
// job 1 failed once, job 2 was in flight when its worker was killed, job 3 killed
// three workers, and job 4 was rolled back.
func fairRun() chaos.Evidence {
	e := evidence{Evidence: chaos.Evidence{
		Consumers: []string{"plain", "tx"}, Tx: []string{"tx"}, Jobs: []int{0, 1, 2, 3}, Never: []int{4}, Doomed: []int{3},
		OnlyKills: true, Lease: time.Second, Effects: make(map[chaos.Run]int), Struck: make(map[chaos.Run]int),
		Messages: make(map[int64]chaos.Run),
	}}
	clock := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	add := func(kind chaos.EventKind, worker, consumer string, job, attempt int) {
		clock = clock.Add(10 * time.Millisecond)
		e.note(clock, kind, worker, chaos.Run{Consumer: consumer, Job: job})
		e.Ledger = append(e.Ledger, chaos.Event{At: clock, Kind: kind, Worker: worker, Consumer: consumer, Job: job, Attempt: attempt})
	}
	for _, consumer := range e.Consumers {
		add(chaos.Started, "a", consumer, 0, 1)
		add(chaos.Finished, "a", consumer, 0, 1)
		add(chaos.Started, "a", consumer, 1, 1)
		add(chaos.Failed, "a", consumer, 1, 1)
		add(chaos.Started, "b", consumer, 1, 2)
		add(chaos.Finished, "b", consumer, 1, 2)
		add(chaos.Started, "a", consumer, 2, 1) // and its worker was killed
		clock = clock.Add(2 * e.Lease)
		add(chaos.Started, "b", consumer, 2, 1)
		add(chaos.Finished, "b", consumer, 2, 1)
		for range 3 {
			add(chaos.Started, "b", consumer, 3, 1)
			clock = clock.Add(2 * e.Lease)
		}
		e.expire(clock, "b", chaos.Run{Consumer: consumer, Job: 3})
		e.Struck[chaos.Run{Consumer: consumer, Job: 2}] = 1
		e.Struck[chaos.Run{Consumer: consumer, Job: 3}] = 3
		e.Poisoned = append(e.Poisoned, chaos.Run{Consumer: consumer, Job: 3})
	}
	for job := range 3 {
		e.Effects[chaos.Run{Consumer: "tx", Job: job}] = 1
	}
	return e.Evidence
}

// evidence has the history that belongs to a ledger: each run has a claim of its own.
type evidence struct {
	chaos.Evidence
	claims int64 // so far; the last is that of the run at hand
}

// note enters what workers and recovery do around an event of the ledger.
func (e *evidence) note(at time.Time, kind chaos.EventKind, worker string, run chaos.Run) {
	if kind == chaos.Started {
		e.expire(at, worker, run)
		e.change(at.Add(-time.Millisecond), worker, chaos.Claimed, run, at.Add(e.Lease))
		return
	}
	if run.Consumer == "tx" && kind == chaos.Finished { // removed by the consumer's transaction, before the claim lets go of it
		e.change(at, worker, chaos.Written, run, time.Time{})
		e.change(at.Add(time.Millisecond), worker, chaos.Ended, run, at.Add(e.Lease))
		return
	}
	e.change(at, worker, chaos.Ended, run, at.Add(e.Lease))
	e.change(at, worker, chaos.Written, run, time.Time{})
}

// expire recovers the claim of a run, if there still is one.
func (e *evidence) expire(at time.Time, worker string, run chaos.Run) {
	for i := len(e.History) - 1; i >= 0 && e.History[i].Kind != chaos.Ended; i-- {
		if c := e.History[i]; c.Kind == chaos.Claimed && e.Messages[c.Messages[0]] == run {
			e.change(at.Add(-2*time.Millisecond), worker, chaos.Ended, run, c.Until)
			e.change(at.Add(-2*time.Millisecond), worker, chaos.Written, run, time.Time{})
			return
		}
	}
}

func (e *evidence) change(at time.Time, worker string, kind chaos.ChangeKind, run chaos.Run, until time.Time) {
	id := int64(100*len(run.Consumer) + run.Job)
	if kind == chaos.Claimed {
		e.claims++
	}
	e.Messages[id] = run
	c := chaos.Change{At: at, Tx: at.String(), Session: worker, Kind: kind, Until: until, Messages: []int64{id}}
	if kind != chaos.Written {
		c.Claim = e.claims
	}
	e.History = append(e.History, c)
}

// without drops the events of a kind of one run.
func without(l chaos.Ledger, kind chaos.EventKind, run chaos.Run) chaos.Ledger {
	return slices.DeleteFunc(slices.Clone(l), func(e chaos.Event) bool {
		return e.Kind == kind && e.Consumer == run.Consumer && e.Job == run.Job
	})
}

// claimedBy adds a claim that never ended.
func claimedBy(e *chaos.Evidence, worker string, run chaos.Run) {
	id := int64(1000 + len(e.Messages))
	e.Messages[id] = run
	e.History = append(e.History, chaos.Change{Session: worker, Kind: chaos.Claimed, Claim: id, At: time.Unix(1, 0), Messages: []int64{id}})
}

func TestJudgeAcquitsAFairRun(t *testing.T) {
	f := chaos.Judge(fairRun())
	if violations := f.Violations(); len(violations) > 0 {
		t.Errorf("violations: got %q, want none", violations)
	}
	// Of each consumer: the run that was killed, and two more of the killer.
	if f.Duplicates != 6 {
		t.Errorf("duplicates: got %d, want 6", f.Duplicates)
	}
	if got, want := f.String(), "lost 0, duplicates 6, effects other than one 0, innocent poisoned 0"; got != want {
		t.Errorf("summary: got %q, want %q", got, want)
	}
}

func TestJudgeConvicts(t *testing.T) {
	plain, tx := chaos.Run{Consumer: "plain", Job: 0}, chaos.Run{Consumer: "tx", Job: 0}
	for _, test := range []struct {
		crime string
		want  string
		do    func(e *chaos.Evidence)
	}{
		{"a message that never ran", "I1: lost: 1 of them, such as [{plain 0}]", func(e *chaos.Evidence) {
			e.Ledger = without(without(e.Ledger, chaos.Started, plain), chaos.Finished, plain)
		}},
		{"one consumer of a message left out", "I1: lost: 1 of them, such as [{plain 9}]", func(e *chaos.Evidence) {
			e.Jobs = append(e.Jobs, 9)
			claimedBy(e, "", chaos.Run{Consumer: "tx", Job: 9})
			e.Effects[chaos.Run{Consumer: "tx", Job: 9}] = 1
			e.Ledger = append(e.Ledger, chaos.Event{At: time.Now(), Kind: chaos.Started, Consumer: "tx", Job: 9},
				chaos.Event{At: time.Now(), Kind: chaos.Finished, Consumer: "tx", Job: 9})
		}},
		{"a produce that was rolled back and ran", "I1: ran although rolled back: 1 of them, such as [{tx 4}]", func(e *chaos.Evidence) {
			claimedBy(e, "a", chaos.Run{Consumer: "tx", Job: 4})
			e.Ledger = append(e.Ledger, chaos.Event{At: time.Now(), Kind: chaos.Started, Worker: "a", Consumer: "tx", Job: 4})
		}},
		{"a produce that was rolled back and waits", "I1: ran although rolled back: 1 of them", func(e *chaos.Evidence) {
			e.Pending = append(e.Pending, chaos.Run{Consumer: "plain", Job: 4})
		}},
		{"a produce that was rolled back and is poisoned", "I1: ran although rolled back: 1 of them", func(e *chaos.Evidence) {
			e.Poisoned = append(e.Poisoned, chaos.Run{Consumer: "plain", Job: 4})
		}},
		{"a row removed before its consumer had finished", "I2: gone without having finished: 1 of them, such as [{plain 0}]",
			func(e *chaos.Evidence) {
				e.Ledger = without(e.Ledger, chaos.Finished, plain)
			}},
		{"a message that waits twice, and ran", "I2: in two places: 1 of them, such as [{plain 0}]", func(e *chaos.Evidence) {
			e.Pending = append(e.Pending, plain, plain)
		}},
		{"a message that waits and is poisoned", "I2: in two places: 1 of them, such as [{plain 3}]", func(e *chaos.Evidence) {
			e.Pending = append(e.Pending, chaos.Run{Consumer: "plain", Job: 3})
		}},
		{"a message that is poisoned twice", "I2: in two places: 1 of them, such as [{plain 3}]", func(e *chaos.Evidence) {
			e.Poisoned = append(e.Poisoned, chaos.Run{Consumer: "plain", Job: 3})
		}},
		{"two workers at one message", "I3: two workers at once: 1 of them, such as [{plain 0}]", func(e *chaos.Evidence) {
			e.OnlyKills = false // it is a repetition that nothing explains, too
			late := e.Ledger[0]
			late.Worker, late.At = "b", late.At.Add(time.Millisecond)
			e.History = slices.Insert(e.History, 3, chaos.Change{At: late.At.Add(-time.Millisecond), Session: "b", Kind: chaos.Claimed,
				Claim: 99, Messages: e.History[0].Messages})
			e.Ledger = slices.Insert(e.Ledger, 1, late)
		}},
		{"a message in two live claims", "I3: in two live claims: 1 of them, such as [{plain 0}]", func(e *chaos.Evidence) {
			again := e.History[0]
			again.Claim, again.Session, again.Tx = 99, "b", "another"
			ended := again
			ended.Kind = chaos.Ended
			e.History = slices.Insert(e.History, 1, again, ended)
		}},
		{"a claim that still held what its owner had settled", "I3: in two live claims: 1 of them, such as [{plain 0}]", func(e *chaos.Evidence) {
			back := e.History[1]
			back.Kind = chaos.Kept
			e.History = slices.Insert(e.History, 3, back)
		}},
		{"a run that nobody had claimed", "I3: ran unclaimed: 1 of them, such as [{plain 0}]", func(e *chaos.Evidence) {
			e.History = e.History[3:]
		}},
		{"a run that began before it was claimed", "I3: ran unclaimed: 1 of them, such as [{plain 0}]", func(e *chaos.Evidence) {
			e.History[0].At = e.Ledger[0].At.Add(time.Microsecond)
		}},
		{"a claim that was ended by another while its lease lasted", "I4: taken from a live owner: 1 of them, such as [{plain 0}]",
			func(e *chaos.Evidence) {
				e.History[1].Session = "b"
			}},
		{"a claim that was renewed by another", "I4: taken from a live owner: 1 of them, such as [{plain 0}]", func(e *chaos.Evidence) {
			renewed := e.History[0]
			renewed.Kind, renewed.Session = chaos.Kept, "b"
			e.History = slices.Insert(e.History, 1, renewed)
		}},
		{"a claim that was renewed by another after its lease had run out", "I4: taken from a live owner: 1 of them, such as [{plain 0}]",
			func(e *chaos.Evidence) {
				renewed := e.History[0]
				renewed.Kind, renewed.Session, renewed.At = chaos.Kept, "b", renewed.Until.Add(time.Millisecond)
				e.History = slices.Insert(e.History, 1, renewed)
			}},
		{"a result that was settled after its claim was taken away", "I4: settled without a claim: 1 of them, such as [{plain 0}]",
			func(e *chaos.Evidence) {
				e.History[2].Tx = "a later one"
			}},
		{"a consumer's transaction that removed what somebody else had claimed since",
			"I4: settled without a claim: 1 of them, such as [{tx 0}]", func(e *chaos.Evidence) {
				i := slices.IndexFunc(e.History, func(c chaos.Change) bool {
					return c.Kind == chaos.Written && e.Messages[c.Messages[0]] == tx
				})
				e.History[i].Session = "b"
			}},
		{"an attempt that was counted though nothing failed", "I5: charged for nothing: 1 of them, such as [{plain 0}]", func(e *chaos.Evidence) {
			e.Ledger[0].Attempt = 2
		}},
		{"a crash that was counted though nobody died", "I5: charged for nothing: 1 of them, such as [{plain 0}]", func(e *chaos.Evidence) {
			e.Ledger[0].Crashes = 1
		}},
		{"a message that ran again though nobody died", "repeated though not killed: 1 of them, such as [{plain 0}]", func(e *chaos.Evidence) {
			again := e.Ledger[0]
			again.At = again.At.Add(time.Hour)
			e.Ledger = append(e.Ledger, again)
		}},
		{"a row of a consumer that nobody has", "unknown: 1 of them, such as [{other 0}]", func(e *chaos.Evidence) {
			e.Poisoned = append(e.Poisoned, chaos.Run{Consumer: "other", Job: 0})
		}},
		{"a run of a job that nobody produced", "unknown: 1 of them, such as [{plain 77}]", func(e *chaos.Evidence) {
			run := chaos.Run{Consumer: "plain", Job: 77}
			claimedBy(e, "a", run)
			e.Ledger = append(e.Ledger, chaos.Event{At: time.Unix(2, 0), Kind: chaos.Started, Worker: "a", Consumer: run.Consumer,
				Job: run.Job, Attempt: 1})
		}},
		{"a row that waits of a job that nobody produced", "unknown: 1 of them, such as [{plain 77}]", func(e *chaos.Evidence) {
			e.Pending = append(e.Pending, chaos.Run{Consumer: "plain", Job: 77})
		}},
		{"effects of a job that nobody produced", "unknown: 1 of them, such as [{tx 77}]", func(e *chaos.Evidence) {
			e.Effects[chaos.Run{Consumer: "tx", Job: 77}] = 1
		}},
		{"an effect that was lost", "I6: effects other than one: 1 of them, such as [{tx 0}]", func(e *chaos.Evidence) {
			delete(e.Effects, tx)
		}},
		{"an effect that happened twice", "I6: effects other than one: 1 of them, such as [{tx 0}]", func(e *chaos.Evidence) {
			e.Effects[tx] = 2
		}},
		{"an effect of a message that is poisoned", "I6: effects other than one: 1 of them, such as [{tx 3}]", func(e *chaos.Evidence) {
			e.Effects[chaos.Run{Consumer: "tx", Job: 3}] = 1
		}},
		{"an innocent who is poisoned", "poisoned though innocent: 1 of them, such as [{plain 2}]", func(e *chaos.Evidence) {
			e.Poisoned = append(e.Poisoned, chaos.Run{Consumer: "plain", Job: 2})
			e.Struck[chaos.Run{Consumer: "plain", Job: 2}] = 2
		}},
		{"a message that still waits", "I7: left over: 1 of them, such as [{plain 0}]", func(e *chaos.Evidence) {
			e.Pending = append(e.Pending, plain)
		}},
		{"a claim that holds nothing", "I7: claims left over: 2", func(e *chaos.Evidence) { e.Claims = 2 }},
	} {
		t.Run(test.crime, func(t *testing.T) {
			e := fairRun()
			test.do(&e)
			f := chaos.Judge(e)
			violations := f.Violations()
			if len(e.Pending) > 0 && len(violations) == 2 { // what waits is also left over
				violations = slices.DeleteFunc(violations, func(line string) bool { return strings.HasPrefix(line, "I7: left over") })
			}
			if len(violations) != 1 || !strings.HasPrefix(violations[0], test.want) {
				t.Errorf("violations: got %q, want one that begins with %q", violations, test.want)
			}
			if !strings.Contains(f.String(), test.want) {
				t.Errorf("summary: got %q, want it to say %q", f, test.want)
			}
		})
	}
}

// A worker that had lost its lease may still be at it, and one that was killed
// leaves no end behind: neither is a second worker at the same message.
func TestJudgeKnowsLateWorkersAndDeadOnes(t *testing.T) {
	start := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	event := func(after time.Duration, kind chaos.EventKind, worker string) chaos.Event {
		return chaos.Event{At: start.Add(after), Kind: kind, Worker: worker, Consumer: "plain", Job: 0, Attempt: 1}
	}
	for what, ledger := range map[string]chaos.Ledger{
		"late": {event(0, chaos.Started, "a"), event(2*time.Second, chaos.Started, "b"), event(3*time.Second, chaos.Finished, "a"),
			event(4*time.Second, chaos.Finished, "b")},
		"dead": {event(0, chaos.Started, "a"), event(time.Second/2, chaos.Started, "b"), event(time.Second, chaos.Finished, "b")},
		"same": {event(0, chaos.Started, "a"), event(time.Second/2, chaos.Started, "a"), event(time.Second, chaos.Finished, "a")},
	} {
		e := chaos.Evidence{Consumers: []string{"plain"}, Jobs: []int{0}, Lease: time.Second, Ledger: ledger,
			Messages: map[int64]chaos.Run{1: {Consumer: "plain"}}}
		for i, worker := range []string{"a", "b"} {
			claim := chaos.Change{At: start.Add(-time.Minute), Tx: worker, Session: worker, Kind: chaos.Claimed, Claim: int64(i),
				Messages: []int64{1}}
			ended := claim
			ended.Kind = chaos.Ended
			e.History = append(e.History, claim, ended)
		}
		if violations := chaos.Judge(e).Violations(); len(violations) > 0 {
			t.Errorf("%s: got %q, want no violations", what, violations)
		}
	}
}

// The ledger of a worker that was killed is complete up to the last write, and
// workers' parts are read in the order of time.
func TestLedgerSurvivesAndIsRead(t *testing.T) {
	dir := t.TempDir()
	for i, worker := range []string{"b", "a"} {
		r := testapp.Must[*chaos.Recorder](t)(chaos.NewRecorder(dir, worker))
		defer r.Close() // the events are there before it is closed
		testapp.OK(t, r.Record(chaos.Started, "plain", i, 1, 0))
	}
	ledger := testapp.Must[chaos.Ledger](t)(chaos.ReadLedger(dir))
	var got []string
	for _, e := range ledger {
		got = append(got, fmt.Sprint(e.Worker, e.Job))
	}
	if want := []string{"b0", "a1"}; !slices.Equal(got, want) {
		t.Errorf("events: got %q, want %q", got, want)
	}
}

// A run may go on only as long as the lease that its worker knows of.
func TestTermsTellHowMuchOfALeaseWasLeft(t *testing.T) {
	start := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	after := func(d time.Duration) time.Time { return start.Add(d) }
	claim := func(at time.Duration, kind chaos.ChangeKind, worker string, id int64, until time.Duration) chaos.Change {
		return chaos.Change{At: after(at), Session: worker, Kind: kind, Claim: id, Until: after(until), Messages: []int64{1}}
	}
	run := chaos.Run{Consumer: "plain", Job: 7}
	event := func(at time.Duration, kind chaos.EventKind, worker string) chaos.Event {
		return chaos.Event{At: after(at), Kind: kind, Worker: worker, Consumer: run.Consumer, Job: run.Job}
	}
	e := chaos.Evidence{
		Messages: map[int64]chaos.Run{1: run},
		History: []chaos.Change{
			claim(0, chaos.Claimed, "a", 1, 3*time.Second), claim(time.Second, chaos.Kept, "a", 1, 4*time.Second),
			claim(5*time.Second, chaos.Ended, "b", 1, 4*time.Second), claim(5*time.Second, chaos.Claimed, "b", 2, 8*time.Second),
			claim(7*time.Second, chaos.Kept, "b", 2, 10*time.Second),
			claim(11*time.Second, chaos.Claimed, "a", 3, 14*time.Second), // and has not started it yet
		},
		Ledger: chaos.Ledger{
			event(time.Second, chaos.Started, "a"), event(4500*time.Millisecond, chaos.Failed, "a"), // half a second late
			event(6*time.Second, chaos.Started, "b"), event(9*time.Second, chaos.Finished, "b"),
		},
	}
	terms, err := e.Terms()
	if err != nil || len(terms) != 2 {
		t.Fatalf("terms: got %+v and error %v, want 2 and none", terms, err)
	}
	for i, want := range []time.Duration{-500 * time.Millisecond, time.Second} {
		if got := terms[i].Left(); got != want || terms[i].Run != run {
			t.Errorf("term %d: got %v of %v, want %v left", i, got, terms[i].Run, want)
		}
	}
	e.History = e.History[:2]
	if _, err := e.Terms(); err == nil {
		t.Error("a run without a claim: got no error, want one")
	}
}

// What a killed worker held is what others took over from it afterwards.
func TestStrikesAreWhatAKilledWorkerHeld(t *testing.T) {
	e := fairRun()
	killed := e.Ledger[6].At // worker a was at job 2
	struck, running := e.Strikes(map[string]time.Time{"a": killed})
	want := map[chaos.Run]int{{Consumer: "plain", Job: 2}: 1, {Consumer: "tx", Job: 2}: 1}
	if !maps.Equal(struck, want) || running["a"] != 2 || len(running) != 1 {
		t.Errorf("strikes: got %v with %v running, want %v with 2 of worker a", struck, running, want)
	}
	if struck, _ := e.Strikes(map[string]time.Time{"a": killed.Add(time.Hour)}); len(struck) > 0 {
		t.Errorf("a worker that lost its lease before it was killed: got strikes %v, want none", struck)
	}
	if struck, _ := e.Strikes(map[string]time.Time{"other": killed}); len(struck) > 0 {
		t.Errorf("a worker that was not killed: got strikes %v, want none", struck)
	}
}

// Of what it held, it had finished one message, was at another, and had not begun the
// third: the first is nobody's repetition, and the third is none that was running.
func TestStrikesLeaveOutWhatWasDoneAndTellWhatRan(t *testing.T) {
	start := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	after := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	run := func(job int) chaos.Run { return chaos.Run{Consumer: "tx", Job: job} }
	event := func(at int, kind chaos.EventKind, job int) chaos.Event {
		return chaos.Event{At: after(at), Kind: kind, Worker: "a", Consumer: "tx", Job: job}
	}
	held := []int64{1, 2, 3}
	e := chaos.Evidence{
		Messages: map[int64]chaos.Run{1: run(1), 2: run(2), 3: run(3)},
		History: []chaos.Change{
			{At: after(0), Session: "a", Kind: chaos.Claimed, Claim: 1, Messages: held},
			{At: after(2), Session: "a", Kind: chaos.Written, Messages: []int64{1}},
			{At: after(9), Session: "b", Kind: chaos.Ended, Claim: 1, Messages: held},
		},
		Ledger: chaos.Ledger{event(1, chaos.Started, 1), event(2, chaos.Finished, 1), event(3, chaos.Started, 2)},
	}
	struck, running := e.Strikes(map[string]time.Time{"a": after(4)})
	if want := map[chaos.Run]int{run(2): 1, run(3): 1}; !maps.Equal(struck, want) || running["a"] != 1 {
		t.Errorf("strikes: got %v with %d running, want %v with 1", struck, running["a"], want)
	}
}

// A kill may leave half a line behind, which nothing has followed.
func TestLedgerIsReadUpToWhatAKillCutShort(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const line = `{"at":"2026-01-02T03:04:05Z","kind":"started","worker":"w","consumer":"c","job":1,"attempt":1,"crashes":0}` + "\n"
	for text, want := range map[string]int{line + line[:20]: 1, line[:20]: 0, line: 1, "": 0} {
		testapp.OK(t, os.WriteFile(filepath.Join(dir, "w.ledger"), []byte(text), 0o600))
		if ledger, err := chaos.ReadLedger(dir); err != nil || len(ledger) != want {
			t.Errorf("ledger %q: got %d events and error %v, want %d", text, len(ledger), err, want)
		}
	}
	testapp.OK(t, os.WriteFile(filepath.Join(dir, "w.ledger"), []byte(line[:20]+"\n"+line), 0o600))
	if _, err := chaos.ReadLedger(dir); err == nil {
		t.Error("a ledger with half a line in its midst: got no error, want one")
	}
}
