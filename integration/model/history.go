package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"
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
		if step.Kind != "recover" || step.Locked[key] || !charged(w.view, after, key) {
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

// drain checks I7 and O4: with one healthy processor what is due and nobody's starts at once,
// unless its lane is parked or a rate is spent, and what dead owners left behind does as soon as
// a lease is over. No delay is much longer than a lease. Once nothing is parked any more, nothing is
// left.
func (w *world) drain() {
	w.Helper()
	w.work()
	w.wait(Lease + time.Millisecond)
	w.finishAll()
	for key, row := range w.view.Rows {
		if !w.view.parked(lane{key.Consumer, row.OrderKey}) {
			w.Fatalf("%s: left over by a healthy processor, a lease later: %v\n%v", invariantOf(key.Consumer), key, w.view)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(w.view.Poisoned), compareKeys) {
		if !w.requeue(key) {
			w.discard(key)
		}
	}
	w.finishAll()
	if len(w.view.Rows)+len(w.view.Claims) > 0 {
		w.Fatalf("O4: left over once nothing was parked:\n%v", w.view)
	}
	if taken := w.takeSlots("healthy", Slots); len(taken) < Slots {
		w.Fatalf("O5: of the slots that nobody has there were %v:\n%v", taken, w.view)
	}
}

// finishAll works until nothing waits for a rate any more.
func (w *world) finishAll() {
	w.Helper()
	w.work()
	for left := len(w.view.Rows); left >= 0; left-- { // a rate allows one of them in a second
		if _, _, waits := w.startable(true); !waits {
			return
		}
		w.wait(time.Second)
		w.work()
	}
	w.Fatalf("O4: held up by a rate for longer than that takes:\n%v", w.view)
}

// invariantOf is the one that says that messages of a consumer start.
func invariantOf(consumer string) string {
	if rulesOf(consumer).Keyed {
		return "O4"
	}
	return "I7"
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
		group, selection, due := w.startable(false)
		if !due {
			return
		}
		r := Request{Owner: "healthy", Consumers: group, Select: selection, Limit: 8, Lanes: Guess{Run: 8}}
		if selection == store.Killers {
			r.Limit, r.Solo = 1, true
		}
		before := w.view
		keys := same(w, Step{Kind: "claim", Owner: r.Owner}, func(s System) []Key { return s.Claim(r) })
		if len(keys) == 0 {
			w.Fatalf("%s: something of %v is due and nobody's, and did not start:\n%v", invariantOf(group[0]), group, w.view)
		}
		w.claims++
		w.started(r, keys, before.Rows, w.now)
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

// startable returns the first consumers of which something may start, which is due and in no claim,
// and the selection of that; if so, although a rate is spent.
func (w *world) startable(spent bool) (group []string, selection store.Selection, due bool) {
	held := w.view.heldOf()
	for _, group := range w.groups {
		for key, row := range w.view.Rows { // the same in every run of a seed
			s := store.Selection(min(row.Crashes, 2))
			if slices.Contains(group, key.Consumer) && (!due || s < selection) && w.mayStart(key, row, held, spent) {
				selection, due = s, true
			}
		}
		if due {
			return group, selection, true
		}
	}
	return nil, 0, false
}

// mayStart tells whether a message is due, in no claim, and bounded by nothing.
func (w *world) mayStart(key Key, row Row, held map[lane]int, spent bool) bool {
	of, rules := lane{key.Consumer, row.OrderKey}, rulesOf(key.Consumer)
	_, claimed := w.view.claimOf(key)
	switch {
	case claimed || row.Due > w.now:
		return false
	case rules.Keyed && (held[of] >= max(rules.PerKey, 1) || w.view.parked(of)):
		return false
	case rules.Keyed && rules.PerKey == 0 && w.view.firstOf(of) != key:
		return false
	case rules.PerKey > 0 && row.Crashes == 0 && w.placesFor(of, rules, held[of], spent) <= 0:
		return false
	}
	return spent || !w.spent(rules.KeyRate, of) && (row.Crashes > 0 || !w.spent(rules.Rate, lane{consumer: key.Consumer}))
}

// placesFor is how many clean messages of a key may start: those that have crashed keep a place each.
func (w *world) placesFor(of lane, rules Rules, held int, spent bool) int {
	places := rules.PerKey - held
	if r := rules.KeyRate; r != nil && !spent {
		places = min(places, int(max(w.now+time.Duration(r.Burst)*each(r)-max(w.now, w.view.Rates[of]), 0)/each(r)))
	}
	for key, row := range w.view.Rows {
		if _, claimed := w.view.claimOf(key); !claimed && row.Crashes > 0 && row.Due <= w.now && of == (lane{key.Consumer, row.OrderKey}) {
			places--
		}
	}
	return places
}

// spent tells whether a rate allows nothing now.
func (w *world) spent(rate *store.Rate, of lane) bool {
	return rate != nil && w.view.Rates[of] > w.now+time.Duration(rate.Burst-1)*each(rate)
}
