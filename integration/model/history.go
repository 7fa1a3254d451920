package model

import (
	"errors"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// What no single step shows: who is innocent, and that nothing is left over.

// innocents checks, by what happened so far and not by the count in the row, that
// a recovery poisons only what was lost with its owner often enough since it last
// had an outcome, and was in a claim of its own the last time.
func (w *world) innocents(after View, step Step) (err error) {
	for key := range w.view.Rows {
		if r, ok := step.result(w.view, key); ok && r.Outcome != store.Release {
			w.lost[key] = 0
		}
		if step.Kind != "recover" || step.Locked[key] || !freed(w.view, after, key) {
			continue
		}
		w.lost[key]++
		_, waits := after.Rows[key]
		if c, _ := w.view.claimOf(key); !waits && (w.lost[key] < MaxCrashes || len(c.Held) != 1) {
			err = errors.Join(err, fmt.Errorf("innocent: %v was poisoned after %d lost owners, the last of which held %v", key, w.lost[key], c.Held))
		}
	}
	return err
}

// drain checks I7: with one healthy processor what is due and nobody's starts at
// once, and what dead owners left behind does as soon as a lease is over. No delay
// is longer than a lease.
func (w *world) drain() {
	w.Helper()
	w.work()
	for key, row := range w.view.Rows {
		if _, held := w.view.claimOf(key); !held && row.Due <= w.now {
			w.Fatalf("I7: %v is due and nobody's, and did not start:\n%v", key, w.view)
		}
	}
	w.wait(Lease + time.Microsecond)
	w.work()
	if len(w.view.Rows)+len(w.view.Claims) > 0 {
		w.Fatalf("I7: left over by a healthy processor, a lease later:\n%v", w.view)
	}
}

// work is what a healthy processor does until it finds nothing more.
func (w *world) work() {
	w.Helper()
	for busy := true; busy; {
		busy = w.recover().Claims > 0
		for _, selection := range []store.Selection{store.Clean, store.Suspects, store.Killers} {
			r := Request{Owner: "healthy", Consumers: consumers(), Select: selection, Limit: 8}
			if selection == store.Killers {
				r.Limit, r.Solo = 1, true
			}
			keys := same(w, Step{Kind: "claim", Owner: r.Owner}, func(s System) []Key { return s.Claim(r) })
			if len(keys) == 0 {
				continue
			}
			busy = true
			w.claims++
			same(w, Step{Kind: "finish", Owner: r.Owner}, func(s System) map[int]int { return s.Finish(r.Owner, []int{w.claims}) })
			for _, key := range keys {
				if _, waits := w.view.Rows[key]; waits {
					w.Fatalf("I7: %v was claimed and finished, and is still there:\n%v", key, w.view)
				}
			}
		}
	}
}
