package chaos

import "slices"

// disorder finds runs of ordered consumers that began before their turn, or beside another of
// their key. What ran once may run again: a crash repeats the end of what a process did.
func (e Evidence) disorder() (inverted, beside []Run) {
	if len(e.Ordered) == 0 {
		return nil, nil
	}
	ordered, skips, doomed := set(e.Ordered), set(e.Skips), set(e.Doomed)
	byKey := make(map[string][]int)
	for _, job := range slices.Sorted(slices.Values(e.Jobs)) {
		byKey[e.Keys[job]] = append(byKey[e.Keys[job]], job)
	}
	type place struct{ consumer, key string }
	next := make(map[place]int) // how many of the key's jobs have passed, from the first on
	passed := make(map[Run]bool)
	current := make(map[place]Event)
	for _, event := range e.Ledger {
		if !ordered[event.Consumer] {
			continue
		}
		run, at := Run{event.Consumer, event.Job}, place{event.Consumer, e.Keys[event.Job]}
		jobs := byKey[at.key]
		switch before, running := current[at]; event.Kind {
		case Started:
			for next[at] < len(jobs) && (passed[Run{at.consumer, jobs[next[at]]}] || e.passedBy(Run{at.consumer, jobs[next[at]]}, event.At)) {
				next[at]++
			}
			if next[at] < len(jobs) && event.Job > jobs[next[at]] {
				inverted = append(inverted, run)
			}
			// Whoever is stopped loses its lease three quarters of one later at the soonest: it is
			// renewed when a quarter is over.
			if running && (before.Worker == event.Worker || e.Ledger.endsAfter(before, event.At) && event.At.Sub(before.At) < e.Lease*3/4) {
				beside = append(beside, run)
			}
			current[at] = event
		default:
			if running && before.Worker == event.Worker {
				delete(current, at)
			}
			if event.Kind == Finished || skips[event.Consumer] && doomed[event.Job] {
				passed[run] = true
			}
		}
	}
	return inverted, beside
}

// Turns counts, for each worker, how often an ordered consumer's key went from another worker
// to it: how much the order was put to the test.
func (e Evidence) Turns() (turns int) {
	last := make(map[Run]string)
	for _, event := range e.Ledger {
		if event.Kind != Started || !slices.Contains(e.Ordered, event.Consumer) {
			continue
		}
		key := Run{event.Consumer + "/" + e.Keys[event.Job], 0}
		if w := last[key]; w != "" && w != event.Worker {
			turns++
		}
		last[key] = event.Worker
	}
	return turns
}
