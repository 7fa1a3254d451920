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
	w.wait(Lease + time.Microsecond)
	w.work()
	if len(w.view.Rows)+len(w.view.Claims) > 0 {
		w.Fatalf("I7: left over by a healthy processor, a lease later:\n%v", w.view)
	}
}

// work is what a healthy processor does for as long as there is something to do.
func (w *world) work() {
	w.Helper()
	for {
		if w.expired() {
			if w.recover().Claims == 0 {
				w.Fatalf("I7: a claim has expired, and nobody recovered it:\n%v", w.view)
			}
			continue
		}
		selection, due := w.startable()
		if !due {
			return
		}
		r := Request{Owner: "healthy", Consumers: consumers(), Select: selection, Limit: 8}
		if selection == store.Killers {
			r.Limit, r.Solo = 1, true
		}
		keys := same(w, Step{Kind: "claim", Owner: r.Owner}, func(s System) []Key { return s.Claim(r) })
		if len(keys) == 0 {
			w.Fatalf("I7: something is due and nobody's, and did not start:\n%v", w.view)
		}
		w.claims++
		finished := same(w, Step{Kind: "finish", Owner: r.Owner}, func(s System) map[int]int { return s.Finish(r.Owner, []int{w.claims}) })
		if finished[w.claims] != len(keys) {
			w.Fatalf("I7: of %v got %v finished, want all:\n%v", keys, finished, w.view)
		}
	}
}

// expired tells whether a lease is over.
func (w *world) expired() bool {
	for _, c := range w.view.Claims {
		if c.Until < w.now {
			return true
		}
	}
	return false
}

// startable returns the selection of something that is due and in no claim.
func (w *world) startable() (selection store.Selection, due bool) {
	for key, row := range w.view.Rows {
		if _, held := w.view.claimOf(key); !held && row.Due <= w.now {
			s := store.Selection(min(row.Crashes, 2))
			if !due || s < selection { // the same in every run of a seed
				selection, due = s, true
			}
		}
	}
	return selection, due
}
