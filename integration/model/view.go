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

// Row is a pending message. Instants are spans since the start of the run.
type Row struct {
	Due      time.Duration
	Attempts int
	Crashes  int
	Errors   string
	InsertID string
}

// Claim is a claim and what it still holds, in the order of keys.
type Claim struct {
	Owner string
	Solo  bool
	Until time.Duration
	Held  []Key
}

// Poisoned is a poisoned message.
type Poisoned struct {
	Row
	At     time.Duration
	Reason string
}

// View is everything that a database stores. Claims have the numbers in which
// they were made.
type View struct {
	Rows     map[Key]Row
	Claims   map[int]Claim
	Poisoned map[Key]Poisoned
	Effects  map[Key]int // of transactional consumers
}

func newView() View {
	return View{Rows: make(map[Key]Row), Claims: make(map[int]Claim), Poisoned: make(map[Key]Poisoned), Effects: make(map[Key]int)}
}

// String lists the view, a line each, in order: equal views have equal texts.
func (v View) String() string {
	var lines []string
	for _, key := range slices.SortedFunc(maps.Keys(v.Rows), compareKeys) {
		lines = append(lines, fmt.Sprintf("row %v %+v", key, v.Rows[key]))
	}
	for _, n := range slices.Sorted(maps.Keys(v.Claims)) {
		lines = append(lines, fmt.Sprintf("claim %d %+v", n, v.Claims[n]))
	}
	for _, key := range slices.SortedFunc(maps.Keys(v.Poisoned), compareKeys) {
		lines = append(lines, fmt.Sprintf("poisoned %v %+v", key, v.Poisoned[key]))
	}
	for _, key := range slices.SortedFunc(maps.Keys(v.Effects), compareKeys) {
		lines = append(lines, fmt.Sprintf("effects %v %d", key, v.Effects[key]))
	}
	return strings.Join(lines, "\n")
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

// holder returns the claim of the owner that holds the key.
func (v View) holder(owner string, key Key) (Claim, bool) {
	for _, c := range v.Claims {
		if c.Owner == owner && slices.Contains(c.Held, key) {
			return c, true
		}
	}
	return Claim{}, false
}
