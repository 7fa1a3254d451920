package model

import (
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Settle implements System. A result counts if its message is in the claim it
// names, and that is its owner's.
func (s *State) Settle(owner string, results []Result) Settled {
	var settled Settled
	for _, r := range results {
		if c, ok := s.view.Claims[r.Claim]; ok && c.Owner == owner && !slices.Contains(settled.Live, r.Claim) {
			settled.Live = append(settled.Live, r.Claim)
		}
	}
	slices.Sort(settled.Live)
	for _, r := range results {
		c, live := s.view.Claims[r.Claim]
		member := live && c.Owner == owner && slices.Contains(c.Held, r.Key)
		if s.flaw == NoMembership {
			member = slices.Contains(settled.Live, r.Claim)
		}
		if member {
			settled.Applied++
			s.write(r)
		}
	}
	for _, n := range settled.Live {
		s.subtract(n, results)
	}
	return settled
}

// subtract takes results out of a claim, and renews what is left of it.
func (s *State) subtract(n int, results []Result) {
	c := s.view.Claims[n]
	settled := func(key Key) bool {
		return slices.ContainsFunc(results, func(r Result) bool { return r.Claim == n && r.Key == key })
	}
	if s.flaw == FreedEarly && inOrder(c.Held[0].Consumer) && slices.ContainsFunc(c.Held, settled) {
		for _, key := range c.Held {
			s.freed[key] = true
		}
	}
	c.Held = slices.DeleteFunc(slices.Clone(c.Held), settled)
	if c.Lanes != nil {
		c.Lanes = s.lanesOf(c.Held)
	}
	c.Until = s.now + Lease
	if len(c.Held) == 0 {
		delete(s.view.Claims, n)
		return
	}
	s.view.Claims[n] = c
}

// write carries out the outcome of one message, if that is still there.
func (s *State) write(r Result) {
	row, ok := s.view.Rows[r.Key]
	if !ok {
		return
	}
	if r.Errors != "" && r.Outcome != store.Done && r.Outcome != store.Release {
		row.Errors = r.Errors
	}
	switch r.Outcome {
	case store.Done:
		delete(s.view.Rows, r.Key)
	case store.Poison:
		row.Attempts++
		s.poison(r.Key, row, r.Reason)
	case store.Failed, store.Snoozed:
		if r.Outcome == store.Failed {
			row.Attempts++
		}
		row.Crashes, row.Due = 0, s.now+r.Delay
		if rulesOf(r.Key.Consumer).PerKey > 0 {
			row.Rank = row.Due
		}
		s.put(r.Key, row)
	case store.Release:
		if s.flaw == ReleaseCounts {
			row.Attempts++
			s.view.Rows[r.Key] = row
		}
	}
}

// poison takes a message away from those that are pending.
func (s *State) poison(key Key, row Row, reason string) {
	delete(s.view.Rows, key)
	s.view.Poisoned[key] = Poisoned{
		Row: row, At: s.now, Reason: reason, Parks: rulesOf(key.Consumer).Parks || inOrder(key.Consumer) && s.flaw == SkippedParks,
	}
}

// Requeue implements System.
func (s *State) Requeue(key Key) bool {
	p := s.view.Poisoned[key]
	if s.view.pending(p.InsertID, key.Consumer) {
		return false
	}
	delete(s.view.Poisoned, key)
	rank := s.rank[key]
	s.insert(key, Row{Due: s.now, InsertID: p.InsertID, OrderKey: p.OrderKey, Payload: p.Payload, Rank: p.Rank})
	if s.flaw != RequeuedBehind {
		s.rank[key] = rank
	}
	return true
}

// Discard implements System.
func (s *State) Discard(key Key) { delete(s.view.Poisoned, key) }

// Finish implements System.
func (s *State) Finish(owner string, claims []int) map[int]int {
	finished := make(map[int]int)
	for _, n := range claims {
		c, ok := s.view.Claims[n]
		if !ok || c.Owner != owner {
			continue
		}
		finished[n] = len(c.Held)
		for _, key := range c.Held {
			delete(s.view.Rows, key)
		}
		if s.flaw == StaysHeld && c.Lanes != nil {
			s.stuck = append(s.stuck, c.Held...)
		}
		delete(s.view.Claims, n)
	}
	return finished
}

// Recover implements System: expired claims end, the oldest first, at most 20 of
// them, and what they held has crashed, unless somebody has it locked. Of a lane in order
// only the first that is there had begun.
func (s *State) Recover() (found store.Recovered) {
	before := s.View()
	for n := 1; n <= s.claims && found.Claims < 20; n++ {
		c, ok := s.view.Claims[n]
		if !ok || c.Until >= s.now || c.Solo && s.flaw == NotRecovered {
			continue
		}
		found.Claims++
		delete(s.view.Claims, n)
		for _, key := range c.Held {
			row, ok := s.view.Rows[key]
			if ok && !before.begun(c, key) {
				continue
			}
			if !ok || s.Blocked([]Key{key}) && s.flaw != LockedIsCrashed {
				continue
			}
			found.Crashed++
			if s.crash(key, row, c.Solo || s.flaw == PoisonInCompany) {
				found.Poisoned++
			}
		}
	}
	return found
}

// crash counts a crash and tells whether it was the last.
func (s *State) crash(key Key, row Row, solo bool) bool {
	limit := MaxCrashes
	if s.flaw == PoisonTooEarly {
		limit--
	}
	switch {
	case s.flaw == CrashNotCounted:
	case solo && row.Crashes+1 >= limit:
		row.Crashes++
		s.poison(key, row, reason())
		if s.flaw == RecoveryForgetsParks {
			p := s.view.Poisoned[key]
			p.Parks = false
			s.view.Poisoned[key] = p
		}
		return true
	case solo:
		row.Crashes++
	default:
		row.Crashes = min(row.Crashes+1, MaxCrashes-1)
	}
	s.view.Rows[key] = row
	return false
}
