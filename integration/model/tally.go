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
	return []string{"runs", "steps", "rolled back produces", "insert ids pending", "claims", "claims of suspects", "claims of killers", "hints used",
		"done", "failed", "snoozed", "poisoned", "released", "fenced", "finished", "extended", "disclaimed", "effects", "transactions refused",
		"crashes", "poisoned by crashes", "spared in company"}
}

func apart() []string { return []string{"dropped at record", "blocked", "locked at recovery"} }

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
			t[map[store.Outcome]string{store.Done: "done", store.Failed: "failed", store.Snoozed: "snoozed", store.Poison: "poisoned", store.Release: "released"}[r.Outcome]]++
		}
	}
	for key, was := range before.Rows {
		is, waits := after.Rows[key]
		switch {
		case step.Kind != "recover" || !freed(before, after, key):
		case step.Locked[key]:
			t["locked at recovery"]++
		case !waits:
			t["poisoned by crashes"]++
		case was.Crashes == MaxCrashes-1 && is.Crashes == was.Crashes:
			t["spared in company"]++
		}
	}
}
