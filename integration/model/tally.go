package model

import (
	"fmt"
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

// Missing lists what never happened and should have, in runs of Lockstep or, if
// so, of Halves.
func (t Tally) Missing(halves bool) (missing []string) {
	events := together()
	if halves {
		events = append(events, apart()...)
	}
	return slices.DeleteFunc(events, func(event string) bool { return t[event] > 0 })
}

// String lists the counts.
func (t Tally) String() string {
	var counts []string
	for _, event := range append(together(), apart()...) {
		if t[event] > 0 {
			counts = append(counts, fmt.Sprintf("%s %d", event, t[event]))
		}
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
