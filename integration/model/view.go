package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Key is one consumer's row of a produced message.
type Key struct {
	Message  int
	Consumer string
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Message, b.Message), cmp.Compare(a.Consumer, b.Consumer))
}

func compareLanes(a, b lane) int {
	return cmp.Or(cmp.Compare(a.consumer, b.consumer), cmp.Compare(a.orderKey, b.orderKey))
}

// Row is a pending message. Instants are spans since the start of the run.
type Row struct {
	Due      time.Duration
	Attempts int
	Crashes  int
	Errors   string
	InsertID string
	OrderKey string
	Payload  int
	Rank     time.Duration // where messages of a key run in any order; in order no two databases have the same
}

// Claim is a claim and what it still holds, in the order of keys, which in a lane is that
// of the produces.
type Claim struct {
	Owner string
	Solo  bool
	Until time.Duration
	Held  []Key
	Lanes []string // the order keys of what it holds, in the same order
}

// Poisoned is a poisoned message.
type Poisoned struct {
	Row
	At     time.Duration
	Reason string
	Parks  bool
}

// Schedule is a schedule that fires every minute.
type Schedule struct {
	Payload           int
	Due               time.Duration
	Paused, Triggered bool
}

// View is everything that a database stores. Claims have the numbers in which
// they were made.
type View struct {
	Rows     map[Key]Row
	Claims   map[int]Claim
	Poisoned map[Key]Poisoned
	Effects  map[Key]int // of transactional consumers
	Slots    map[int]Slot
	Rates    map[lane]time.Duration // up to when they are used, of those that are not at rest

	// Of programs:
	Paused    map[string]time.Duration // consumers, and since when
	Schedules map[string]Schedule      // by name
}

func newView() View {
	return View{Rows: make(map[Key]Row), Claims: make(map[int]Claim), Poisoned: make(map[Key]Poisoned), Effects: make(map[Key]int),
		Slots: make(map[int]Slot), Rates: make(map[lane]time.Duration),
		Paused: make(map[string]time.Duration), Schedules: make(map[string]Schedule)}
}

// String lists the view, a line each, in order: equal views have equal texts.
func (v View) String() string {
	return strings.Join(slices.Concat(
		lines("row", v.Rows, compareKeys), lines("claim", v.Claims, cmp.Compare[int]), lines("poisoned", v.Poisoned, compareKeys),
		lines("effects", v.Effects, compareKeys), lines("slot", v.Slots, cmp.Compare[int]), lines("rate", v.Rates, compareLanes),
		lines("paused", v.Paused, cmp.Compare[string]), lines("schedule", v.Schedules, cmp.Compare[string])), "\n")
}

func lines[K comparable, V any](what string, of map[K]V, compare func(a, b K) int) (lines []string) {
	for _, key := range slices.SortedFunc(maps.Keys(of), compare) {
		lines = append(lines, fmt.Sprintf("%s %v %+v", what, key, of[key]))
	}
	return lines
}

// pending tells whether an insert id waits or runs.
func (v View) pending(insertID, consumer string) bool {
	for key, row := range v.Rows {
		if insertID != "" && key.Consumer == consumer && row.InsertID == insertID {
			return true
		}
	}
	return false
}

// claimOf returns the claim that holds the key, whosever it is.
func (v View) claimOf(key Key) (Claim, bool) {
	for _, c := range v.Claims {
		if slices.Contains(c.Held, key) {
			return c, true
		}
	}
	return Claim{}, false
}

// heldBy tells whether a claim of the owner holds the key.
func (v View) heldBy(owner string, key Key) bool {
	return slices.ContainsFunc(
		slices.Collect(maps.Values(v.Claims)), func(c Claim) bool { return c.Owner == owner && slices.Contains(c.Held, key) },
	)
}

// heldOf counts what claims hold of each lane.
func (v View) heldOf() map[lane]int {
	held := make(map[lane]int)
	for _, c := range v.Claims {
		for i, orderKey := range c.Lanes {
			held[lane{c.Held[i].Consumer, orderKey}]++
		}
	}
	return held
}

// parked tells whether a poisoned message keeps those of a lane from running, as the rules
// have it.
func (v View) parked(of lane) bool {
	for key, p := range v.Poisoned {
		if rulesOf(of.consumer).Parks && key.Consumer == of.consumer && p.OrderKey == of.orderKey {
			return true
		}
	}
	return false
}

// firstOf is the first row of a lane, in the order of the produces.
func (v View) firstOf(of lane) (first Key) {
	found := false
	for key, row := range v.Rows {
		if key.Consumer == of.consumer && row.OrderKey == of.orderKey && (!found || key.Message < first.Message) {
			first, found = key, true
		}
	}
	return first
}

// begun tells whether a row that a claim holds may have begun: in order, of each lane only the
// first that there is.
func (v View) begun(c Claim, key Key) bool {
	if c.Lanes == nil || rulesOf(key.Consumer).PerKey > 0 {
		return true
	}
	orderKey := v.Rows[key].OrderKey
	for _, other := range c.Held {
		if row, waits := v.Rows[other]; waits && row.OrderKey == orderKey {
			return other == key
		}
	}
	return false
}
