package model

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// gate is who claims for a consumer whose claims are made one after the other, and since when.
type gate struct {
	session string
	at      time.Duration
}

// Lock begins a claim of a consumer that has a gate, unless somebody else is at it.
func (s *State) Lock(consumer, session string) bool {
	if g, locked := s.gates[consumer]; locked && g.session != session && !s.ungated(consumer) {
		return false
	}
	s.gates[consumer] = gate{session, s.now}
	return true
}

// ungated tells whether a flaw leaves out what has claims of a consumer wait for each other: the
// row of its rate, or of its lanes.
func (s *State) ungated(consumer string) bool {
	rules := rulesOf(consumer)
	if !rules.Keyed {
		return s.flaw == RateNotLocked
	}
	return s.flaw == NoGate && inOrder(consumer) && rules.Rate == nil && rules.KeyRate == nil // which could be overspent first
}

// inOrder tells whether messages of a key run in order.
func inOrder(consumer string) bool {
	rules := rulesOf(consumer)
	return rules.Keyed && rules.PerKey == 0
}

// compareRanks is the order of messages in a lane.
func (s *State) compareRanks(a, b Key) int {
	return cmp.Or(cmp.Compare(s.rank[a], s.rank[b]), cmp.Compare(s.place[a], s.place[b]))
}

// put stores a row, whose rank moves with when it is due if its key has no order.
func (s *State) put(key Key, row Row) {
	if rulesOf(key.Consumer).PerKey > 0 {
		s.rank[key] = row.Rank
	}
	s.view.Rows[key] = row
}

// laneOf is the lane of a row, or of one that was there.
func (s *State) laneOf(key Key) lane { return lane{key.Consumer, s.orderKey[key]} }

// look is what a claim of lanes goes by.
type look struct {
	*State
	Request
	Rules
	held Held
	of   map[lane]int // how much of each lane is held
	rows []Key        // of the consumer, by rank
}

// pickLanes picks messages of a consumer that goes by keys, at most so many. It locks none.
func (s *State) pickLanes(r Request, held Held, limit int) []Key {
	l := look{State: s, Request: r, Rules: rulesOf(r.Consumers[0]), held: held, of: make(map[lane]int)}
	l.Limit = limit
	for key := range held {
		if !s.freed[key] && (l.PerKey == 0 || s.flaw != PerKeyNotCounted) {
			l.of[s.laneOf(key)]++
		}
	}
	l.rows = slices.DeleteFunc(
		slices.SortedFunc(maps.Keys(s.view.Rows), s.compareRanks), func(key Key) bool { return key.Consumer != r.Consumers[0] },
	)
	if r.Select != store.Clean {
		return l.bounded(l.crashed())
	}
	return l.bounded(l.heads())
}

// due tells whether a message may run now, as far as it alone is concerned.
func (l look) due(key Key) bool {
	return l.view.Rows[key].Due <= l.now && (l.PerKey == 0 || !l.held[key])
}

// busy tells whether no more of a lane may be claimed, since as much of it is held.
func (l look) busy(of lane) bool { return l.of[of] >= max(l.PerKey, 1) }

func (l look) free(of lane) bool {
	for key, p := range l.view.Poisoned {
		if p.Parks && key.Consumer == of.consumer && p.OrderKey == of.orderKey && l.flaw != ParkNotAsked {
			return false
		}
	}
	return !l.busy(of) && (l.KeyRate == nil || l.allows(l.KeyRate, of, l.now) > 0)
}

// heads are the first messages of lanes that are free, a few of each.
func (l look) heads() (picked []Key) {
	lanes := l.propose()
	if len(lanes) == 0 {
		return nil
	}
	each := min(max(l.Limit/len(lanes), 1), l.Lanes.Run)
	for _, of := range lanes {
		if !l.free(of) {
			continue
		}
		n := 0
		for _, key := range l.rows {
			runs := l.due(key) && l.view.Rows[key].Crashes == 0
			inside := l.flaw == HintInsideLane && !l.behind(key)
			if l.laneOf(key) != of || inside || !runs && (l.PerKey > 0 || l.flaw == HeadPassedOver) {
				continue
			}
			if n++; !runs || n > each {
				break
			}
			picked = append(picked, key)
		}
	}
	return picked
}

// behind tells whether a message comes after the hint.
func (l look) behind(key Key) bool {
	return len(l.After) == 0 || l.After[0] == (Place{}) || l.rank[key] > l.rank[l.After[0].Key]
}

// propose lists lanes to look at, each once.
func (l look) propose() (lanes []lane) {
	for _, orderKey := range l.Lanes.Sticky[:min(len(l.Lanes.Sticky), l.Limit)] {
		lanes = append(lanes, lane{l.Consumers[0], orderKey})
	}
	var near []lane
	for _, key := range l.rows {
		if of := l.laneOf(key); l.behind(key) && l.due(key) && l.free(of) && !slices.Contains(near, of) {
			near = append(near, of)
		}
	}
	hinted := len(l.After) > 0 && l.After[0] != (Place{})
	turns := l.PerKey > 0
	if l.Lanes.Walk || turns && len(near) > l.Limit || hinted && (turns || len(near)*10 < l.Limit) {
		if turns {
			lanes = append(l.walk(), lanes...)
		} else {
			lanes = append(lanes, l.walk()...)
		}
	}
	seen := make(map[lane]bool)
	return slices.DeleteFunc(append(lanes, near...), func(of lane) bool {
		again := seen[of]
		seen[of] = true
		return again
	})
}

// walk lists the next lanes behind the cursor that are not held, in the order of their numbers.
func (l look) walk() (free []lane) {
	cursor := int64(0)
	if l.Lanes.Cursor != "" {
		cursor = store.Lane(l.Lanes.Cursor)
	}
	for _, key := range l.rows {
		if of := l.laneOf(key); store.Lane(of.orderKey) > cursor && !slices.Contains(free, of) && !l.busy(of) {
			free = append(free, of)
		}
	}
	slices.SortFunc(free, func(a, b lane) int { return cmp.Compare(store.Lane(a.orderKey), store.Lane(b.orderKey)) })
	if l.PerKey > 0 { // the next claim begins behind them
		free = free[:min(len(free), l.Limit)]
	}
	return free
}

// crashed are messages that have crashed, and in order are the first of their lane.
func (l look) crashed() (picked []Key) {
	low, high := crashes(l.Select)
	first := make(map[lane]bool)
	for _, key := range l.rows {
		of, row := l.laneOf(key), l.view.Rows[key]
		behind := first[of] && l.PerKey == 0
		first[of] = true
		if !behind && row.Crashes >= low && row.Crashes <= high && l.due(key) && l.free(of) {
			picked = append(picked, key)
		}
	}
	return picked[:min(len(picked), l.Limit)]
}

// bounded leaves out what exceeds the bounds of the keys, and the limit.
func (l look) bounded(picked []Key) (kept []Key) {
	taken := make(map[lane]int)
	for _, key := range picked {
		of, most := l.laneOf(key), math.MaxInt
		if l.PerKey > 0 {
			most = l.PerKey - l.of[of]
		}
		if l.KeyRate != nil {
			most = min(most, l.allows(l.KeyRate, of, l.now))
		}
		if l.Select == store.Clean && l.PerKey > 0 && (l.PerKey < store.Unbounded || l.KeyRate != nil) {
			most -= l.waiting(of)
		}
		if taken[of]++; taken[of] <= most && len(kept) < l.Limit {
			kept = append(kept, key)
		}
	}
	return kept
}

// waiting counts the crashed messages of a lane that could run: each keeps a place of its key.
func (l look) waiting(of lane) (n int) {
	for _, key := range l.rows {
		if l.laneOf(key) == of && l.view.Rows[key].Crashes > 0 && l.due(key) {
			n++
		}
	}
	return n
}

// crashes are how often what a selection takes has crashed, at least and at most.
func crashes(s store.Selection) (low, high int) {
	switch s {
	case store.Suspects:
		return 1, 1
	case store.Killers:
		return 2, math.MaxInt16
	}
	return 0, 0
}
