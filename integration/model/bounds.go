package model

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// each is the time that one message uses of a rate.
func each(r *store.Rate) time.Duration { return r.Per / time.Duration(r.N) }

// allows is how many may start at an instant, of all messages or of one lane.
func (s *State) allows(r *store.Rate, of lane, at time.Duration) int {
	return int(max(at+time.Duration(r.Burst)*each(r)-max(at, s.view.Rates[of]), 0) / each(r))
}

// spend uses up of the rates what a claim has taken, as of the instant at which it read them.
func (s *State) spend(r Request, claimed []Key, at time.Duration) {
	rules, taken := rulesOf(r.Consumers[0]), make(map[lane]int)
	for _, key := range claimed {
		if rules.Rate != nil && r.Select == store.Clean { // what has crashed does not count
			taken[lane{consumer: key.Consumer}]++
		}
		if rules.KeyRate != nil {
			taken[s.laneOf(key)]++
		}
	}
	for of, n := range taken {
		rate := rules.Rate
		if of.orderKey != "" {
			rate = rules.KeyRate
		}
		from := max(at, s.view.Rates[of])
		switch {
		case s.flaw == RateSavesUp:
			from = s.view.Rates[of]
		case s.flaw == KeyRateByClaim && of.orderKey != "":
			n = 1
		}
		s.view.Rates[of] = from + time.Duration(n)*each(rate)
	}
}

// TakeSlots implements System.
func (s *State) TakeSlots(owner string, wanted int) (taken []int) {
	for n := 1; n <= Slots && len(taken) < wanted; n++ {
		if slot, had := s.view.Slots[n]; !had || slot.Until <= s.now {
			s.view.Slots[n] = Slot{Owner: owner, Until: s.now + Lease}
			taken = append(taken, n)
		}
	}
	return taken
}

// ExtendSlots implements System.
func (s *State) ExtendSlots(owner string, slots []int) (held []int) {
	for n := 1; n <= Slots; n++ {
		slot, had := s.view.Slots[n]
		mine := had && slot.Owner == owner
		if mine && slices.Contains(slots, n) {
			s.view.Slots[n] = Slot{Owner: owner, Until: s.now + Lease}
		}
		if mine || s.flaw == SlotLostUsedOn && slices.Contains(slots, n) {
			held = append(held, n)
		}
	}
	return held
}

// ReturnSlots implements System.
func (s *State) ReturnSlots(owner string, slots []int) {
	for _, n := range slots {
		if s.view.Slots[n].Owner == owner || s.flaw == SlotReturnedByAnother {
			delete(s.view.Slots, n)
		}
	}
}
