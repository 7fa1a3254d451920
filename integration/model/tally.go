package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Tally counts what happened in all runs: a property that nothing ever put to the
// test proves nothing.
type Tally map[string]int

// together are the events of every kind of run, apart those of runs that stop
// claims and transactions between their halves.
func together() []string {
	return []string{
		"runs", "steps", "rolled back produces", "insert ids pending", "two produced", "claims", "claims of suspects",
		"claims of killers", "hints used", "done", "failed", "snoozed", "poisoned", "released", "fenced", "finished", "extended",
		"disclaimed", "effects", "transactions refused", "crashes", "poisoned by crashes", "spared in company", "claims of lanes",
		"claims of several of a lane", "claims of crashed heads", "parked", "kept by a park", "requeued", "discarded",
		"held up by a rate", "slots taken", "slots refused", "slots renewed", "slots lost",
	}
}

// Not every database hands off, so that is among the latter.
func apart() []string {
	return []string{"handed off", "dropped at record", "blocked", "locked at recovery", "waited at a gate"}
}

// Kind is a kind of run.
type Kind int

// The kinds.
const (
	InLockstep Kind = iota
	InHalves
	OfPrograms
	OfProgramsOnMariaDB
)

func (k Kind) events() []string {
	return [][]string{together(), append(together(), apart()...), append(called(), changedInTx()...), called()}[k]
}

// changedInTx are changes of pending messages in a transaction of the caller's.
func changedInTx() []string {
	return []string{"cancel: " + done, "run now: " + done, "reschedule: " + done}
}

// called are the calls of programs with their answers, and the endings of runs.
func called() []string {
	all := []string{
		"steps", "nothing to run", "fired 0", "fired 1", "fired 2", "commit", "rollback", "savepoint", "rollback to savepoint",
		"produce: 3 written", "produce with an insert id: 0 written", "produce with an insert id: 1 written",
		"produce with an insert id: 2 written", "produce with an insert id: 3 written",
		"produce with a key: 0 written", "produce with a key: 1 written", "resume: " + nothing, "requeue: " + conflict, "edit: " + conflict,
	}
	for _, name := range []string{"cancel alone", "reschedule alone", "run now alone", "pause", "resume", "requeue",
		"edit", "discard poisoned", "write schedule"} {
		all = append(all, name+": "+done)
	}
	for _, change := range scheduleChanges() {
		all = append(all, string(change)+": "+done)
	}
	for _, ending := range endings() {
		all = append(all, string(ending), string(ending)+" in order")
	}
	return all
}

// Missing lists what should have happened in such runs, and never did.
func (t Tally) Missing(of Kind) []string {
	return slices.DeleteFunc(of.events(), func(event string) bool { return t[event] > 0 })
}

// String lists the counts.
func (t Tally) String() string {
	var counts []string
	for _, event := range slices.Sorted(maps.Keys(t)) {
		counts = append(counts, fmt.Sprintf("%s %d", event, t[event]))
	}
	return strings.Join(counts, ", ")
}

// asked counts what became of a claim.
func (t Tally) asked(r Request, before View, keys []Key) {
	rules := rulesOf(r.Consumers[0])
	if len(keys) == 0 && (rules.Rate != nil || rules.KeyRate != nil) && len(before.Rates) > 0 {
		t["held up by a rate"]++
	}
	if !rules.Keyed {
		return
	}
	for key, row := range before.Rows {
		if slices.Contains(r.Consumers, key.Consumer) && before.parked(lane{key.Consumer, row.OrderKey}) {
			t["kept by a park"]++
		}
	}
	if len(keys) == 0 {
		return
	}
	t["claims of lanes"]++
	if r.Select != store.Clean {
		t["claims of crashed heads"]++
	}
	if len(keys) > 1 && before.Rows[keys[0]].OrderKey == before.Rows[keys[1]].OrderKey {
		t["claims of several of a lane"]++
	}
}

// note counts what a step did, from what was visible before and after it.
func (t Tally) note(before, after View, step Step) {
	t["steps"]++
	if step.Kind == "produce" && step.Produce.RolledBack {
		t["rolled back produces"]++
	}
	for _, consumer := range step.Produce.Consumers {
		if _, written := after.Rows[Key{step.Produce.Message, consumer}]; !written && !step.Produce.RolledBack {
			t["insert ids pending"]++
		}
	}
	for _, r := range step.Results {
		if found, ok := step.result(before, r.Key); ok && found == r {
			t[map[store.Outcome]string{store.Done: "done", store.Failed: "failed", store.Snoozed: "snoozed", store.Poison: "poisoned",
				store.Release: "released"}[r.Outcome]]++
		}
	}
	for key, p := range after.Poisoned {
		if _, old := before.Poisoned[key]; !old && p.Parks {
			t["parked"]++
		}
	}
	for key, was := range before.Rows {
		is, waits := after.Rows[key]
		switch {
		case step.Kind != "recover" || !charged(before, after, key):
		case step.Locked[key]:
			t["locked at recovery"]++
		case !waits:
			t["poisoned by crashes"]++
		case was.Crashes == MaxCrashes-1 && is.Crashes == was.Crashes:
			t["spared in company"]++
		}
	}
}
