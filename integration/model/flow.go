package model

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// What the world does where messages have keys, and consumers limits and rates.

// flowActions are those beside what concerns every message.
func (w *world) flowActions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"requeue":      func(*rapid.T) { w.requeue(w.poisoned()) },
		"discard":      func(*rapid.T) { w.discard(w.poisoned()) },
		"take slots":   func(*rapid.T) { w.takeSlots(draw(w, "owner", owners()...), draw(w, "wanted", 1, Slots)) },
		"extend slots": func(*rapid.T) { w.extendSlots() },
		"return slots": func(*rapid.T) { w.returnSlots() },
	}
}

// guess draws what a process may believe to know of the lanes of a consumer.
func (w *world) guess() (g Guess) {
	g = Guess{Run: draw(w, "run", 1, 2, 4), Walk: w.chance("walk", 4)}
	if w.chance("sticky", 3) {
		g.Sticky = []string{draw(w, "order key", orderKeys()...)}
	}
	if w.chance("cursor", 3) {
		g.Cursor = draw(w, "order key", orderKeys()...)
	}
	return g
}

// unmet is a delay like the given one after which nothing else is due, of what has a bound for
// each key: who comes first of several that are due at one instant is not said.
func (w *world) unmet(delay time.Duration, consumers ...string) time.Duration {
	if !slices.ContainsFunc(consumers, func(c string) bool { return rulesOf(c).PerKey > 0 }) {
		return delay
	}
	for w.instants[w.now+delay] {
		delay += time.Microsecond
	}
	w.instants[w.now+delay] = true
	return delay
}

// poisoned draws a poisoned message.
func (w *world) poisoned() Key {
	if len(w.view.Poisoned) == 0 {
		w.Skip("nothing is poisoned")
	}
	return draw(w, "poisoned", slices.SortedFunc(maps.Keys(w.view.Poisoned), compareKeys)...)
}

func (w *world) requeue(key Key) bool {
	pending := same(w, Step{Kind: "requeue", Key: key}, func(s System) bool { return s.Requeue(key) })
	if pending {
		w.tally["requeued"]++
		w.lost[key] = 0
	}
	return pending
}

func (w *world) discard(key Key) {
	same(w, Step{Kind: "discard", Key: key}, func(s System) struct{} { s.Discard(key); return struct{}{} })
	w.tally["discarded"]++
}

// started notes what a claim has taken of rates at an instant, and checks O6: in no stretch of
// time that ends then there are more than the rate has in it, and a burst.
func (w *world) started(r Request, keys []Key, rows map[Key]Row, at time.Duration) {
	rules := rulesOf(r.Consumers[0])
	for _, key := range keys {
		if rules.Rate != nil && r.Select == store.Clean {
			w.start(rules.Rate, lane{consumer: key.Consumer}, at)
		}
		if rules.KeyRate != nil {
			w.start(rules.KeyRate, lane{key.Consumer, rows[key].OrderKey}, at)
		}
	}
}

func (w *world) start(rate *store.Rate, of lane, at time.Duration) {
	w.starts[of] = append(w.starts[of], at)
	for i, from := range w.starts[of] {
		if n := len(w.starts[of]) - i; n > rate.Burst+rate.In(at-from) {
			w.Fatalf("O6: of %v %d have started within %s:\n%v", of, n, at-from, w.view)
		}
	}
}

// mine are the slots that an owner believes to have, until their leases are over.
func (w *world) mine(owner string) (slots []int) {
	for _, n := range slices.Sorted(maps.Keys(w.slots[owner])) {
		if w.slots[owner][n] > w.now {
			slots = append(slots, n)
		}
	}
	return slots
}

func (w *world) takeSlots(owner string, wanted int) (taken []int) {
	taken = same(w, Step{Kind: "slots", Owner: owner}, func(s System) []int { return s.TakeSlots(owner, wanted) })
	for _, n := range taken {
		w.hold(owner, n)
	}
	w.tally["slots taken"] += len(taken)
	if len(taken) < wanted {
		w.tally["slots refused"]++
	}
	w.withinLimit()
	return taken
}

// hold notes that an owner was told to have a slot.
func (w *world) hold(owner string, n int) {
	if w.slots[owner] == nil {
		w.slots[owner] = make(map[int]time.Duration)
	}
	w.slots[owner][n] = w.now + Lease
}

func (w *world) drop(owner string, n int) {
	if delete(w.slots[owner], n); len(w.slots[owner]) == 0 {
		delete(w.slots, owner)
	}
}

// slotOwner draws who has had slots, and has not given up all of them.
func (w *world) slotOwner() string {
	if len(w.slots) == 0 {
		w.Skip("no slots")
	}
	return draw(w, "owner", slices.Sorted(maps.Keys(w.slots))...)
}

// extendSlots renews what an owner has had, late maybe, and gives up what it has no more.
func (w *world) extendSlots() {
	owner := w.slotOwner()
	slots := slices.Sorted(maps.Keys(w.slots[owner]))
	held := same(w, Step{Kind: "slots", Owner: owner}, func(s System) []int { return s.ExtendSlots(owner, slots) })
	for _, n := range slots {
		if slices.Contains(held, n) {
			w.hold(owner, n)
			w.tally["slots renewed"]++
		} else {
			w.drop(owner, n)
			w.tally["slots lost"]++
		}
	}
	w.withinLimit()
}

// returnSlots gives back one that an owner has had, too late if there is such a one, and somebody
// may take it at once.
func (w *world) returnSlots() {
	owner := w.slotOwner()
	n := draw(w, "slot", slices.Sorted(maps.Keys(w.slots[owner]))...)
	for _, other := range owners() {
		for m, until := range w.slots[other] {
			if until < w.now && (w.slots[owner][n] >= w.now || other == owner && m < n) { // the same in every run of a seed
				owner, n = other, m
			}
		}
	}
	w.drop(owner, n) // before others can hear of it
	same(w, Step{Kind: "slots", Owner: owner}, func(s System) struct{} { s.ReturnSlots(owner, []int{n}); return struct{}{} })
	if w.chance("wanted", 2) {
		w.takeSlots(draw(w, "owner", owners()...), 1)
	}
}

// withinLimit checks O5 of slots: no more run than the limit has.
func (w *world) withinLimit() {
	live := 0
	for owner := range w.slots {
		live += len(w.mine(owner))
	}
	if live > Slots {
		w.Fatalf("O5: %d slots of %d are live: %v\n%v", live, Slots, fmt.Sprint(w.slots), w.view)
	}
}
