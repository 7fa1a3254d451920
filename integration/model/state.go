package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// A Flaw is a mistake of the protocol that the model can be given, to see that
// the invariants notice.
type Flaw string

// The flaws.
const (
	Sound             Flaw = ""
	NoRecheck         Flaw = "record without a second look at the claims"
	NoMembership      Flaw = "settle without membership"
	CrashNotCounted   Flaw = "recover counts no crash"
	PoisonInCompany   Flaw = "recover poisons without solo"
	ReleaseCounts     Flaw = "release counts an attempt"
	LockedIsCrashed   Flaw = "recover takes what somebody has locked"
	FenceOnlyByOwner  Flaw = "the fence asks only whether the claim is there"
	PartOfAFanOutKept Flaw = "a rolled-back produce leaves a row"
	PoisonTooEarly    Flaw = "recover poisons at the second crash"
	NotRecovered      Flaw = "recover leaves solo claims alone"

	HeadPassedOver        Flaw = "a head that may not run is passed over"
	HintInsideLane        Flaw = "a lane begins behind the hint"
	RequeuedBehind        Flaw = "what is requeued gets a new rank"
	HandOffKept           Flaw = "a rolled-back produce leaves its claim"
	RanksSorted           Flaw = "insert ids decide the ranks of a produce"
	NoGate                Flaw = "claims of a consumer in order are made at once"
	HeldBeforeGate        Flaw = "what is held is read before the gate is locked"
	FreedEarly            Flaw = "a settle of some frees their lanes"
	ParkNotAsked          Flaw = "a claim does not ask what is parked"
	RecoveryForgetsParks  Flaw = "what recovery poisons parks nothing"
	SkippedParks          Flaw = "what is poisoned parks although it is to be skipped"
	StaysHeld             Flaw = "the lanes of a claim that is finished stay held"
	PerKeyNotCounted      Flaw = "what is held of a key is not counted"
	SlotLostUsedOn        Flaw = "renewing slots does not ask whose they are"
	SlotReturnedByAnother Flaw = "giving slots back does not ask whose they are"
	RateNotLocked         Flaw = "claims of a consumer with a rate are made at once"
	RateSavesUp           Flaw = "a rate saves up what it has not used"
	KeyRateByClaim        Flaw = "a claim uses the rate of a key once"
)

// State is the claim ledger. It is not safe for concurrent use: who does what
// when is the scheduler's choice.
type State struct {
	view     View
	now      time.Duration
	place    map[Key]int // the order in which rows were inserted, like an id
	places   int
	rank     map[Key]time.Duration // the place in a lane
	orderKey map[Key]string        // also of rows that are gone
	claims   int                   // made so far
	locked   map[Key]string
	gates    map[string]gate // by consumer
	flaw     Flaw
	freed    map[Key]bool // by a flaw
	stuck    []Key        // by another
	saved    *State       // at the savepoint
}

var _ System = (*State)(nil)

// NewState returns an empty ledger.
func NewState(flaw Flaw) *State {
	return &State{view: newView(), place: make(map[Key]int), rank: make(map[Key]time.Duration), orderKey: make(map[Key]string),
		locked: make(map[Key]string), gates: make(map[string]gate), flaw: flaw, freed: make(map[Key]bool)}
}

// AnyOrder implements System.
func (s *State) AnyOrder() bool { return true }

// HandsOff implements System.
func (s *State) HandsOff() bool { return true }

// View implements System.
func (s *State) View() View {
	v := View{
		Rows: maps.Clone(s.view.Rows), Claims: maps.Clone(s.view.Claims), Poisoned: maps.Clone(s.view.Poisoned),
		Effects: maps.Clone(s.view.Effects), Slots: maps.Clone(s.view.Slots), Rates: maps.Clone(s.view.Rates),
		Paused: maps.Clone(s.view.Paused), Schedules: maps.Clone(s.view.Schedules),
	}
	maps.DeleteFunc(v.Rates, func(_ lane, usedTo time.Duration) bool { return usedTo <= s.now })
	for n, c := range v.Claims {
		c.Held = slices.Clone(c.Held)
		v.Claims[n] = c
	}
	return v
}

// Pass implements System.
func (s *State) Pass(d time.Duration) { s.now += d }

// Produce implements System.
func (s *State) Produce(p Produce) (written int) {
	parts := p.parts()
	if s.flaw == RanksSorted { // as OutboxStore.Insert sorts what it writes
		slices.SortFunc(parts, func(a, b Produce) int { return cmp.Compare(a.InsertID, b.InsertID) })
	}
	for _, part := range parts {
		written += s.produce(part)
	}
	if p.HandOff != "" && (!p.RolledBack || s.flaw == HandOffKept) {
		s.claims++
		c := Claim{Owner: p.HandOff, Until: s.now + Lease, Held: p.keys()}
		slices.SortFunc(c.Held, compareKeys)
		s.view.Claims[s.claims] = c
	}
	return written
}

func (s *State) produce(p Produce) (written int) {
	for _, consumer := range p.Consumers {
		key := Key{p.Message, consumer}
		if p.RolledBack && (s.flaw != PartOfAFanOutKept || written > 0) || s.view.pending(p.InsertID, consumer) {
			continue
		}
		row := Row{Due: s.now + p.Delay, InsertID: p.InsertID, Payload: p.Payload}
		if rules := rulesOf(consumer); rules.Keyed {
			row.OrderKey = p.OrderKey
			if rules.PerKey > 0 {
				row.Rank = row.Due
			}
		}
		s.insert(key, row)
		written++
	}
	return written
}

// insert writes a row behind all others.
func (s *State) insert(key Key, row Row) {
	s.places++
	s.place[key], s.rank[key], s.orderKey[key] = s.places, time.Duration(s.places), row.OrderKey
	s.put(key, row)
}

// Held is the content of all claims at an instant.
type Held map[Key]bool

// Held returns the content of all claims.
func (s *State) Held() Held {
	held := make(Held)
	for _, c := range s.view.Claims {
		for _, key := range c.Held {
			held[key] = true
		}
	}
	for _, key := range s.stuck {
		held[key] = true
	}
	return held
}

// Claim implements System: both halves at once.
func (s *State) Claim(r Request) []Key {
	s.Lock(r.Consumers[0], r.Owner)
	return s.Record(s.Pick(r, s.Held(), r.Owner), r, r.Owner)
}

// Pick is the first half of a claim: it locks what is due and in no claim, as far
// as the snapshot knows, and nobody else has locked.
func (s *State) Pick(r Request, snapshot Held, session string) (picked []Key) {
	rules := rulesOf(r.Consumers[0])
	if rules.Rate != nil && r.Select == store.Clean {
		r.Limit = min(r.Limit, s.allows(rules.Rate, lane{consumer: r.Consumers[0]}, s.now))
	}
	if rules.Keyed {
		return s.pickLanes(r, snapshot, r.Limit)
	}
	low, high := crashes(r.Select)
	for i, consumer := range r.Consumers {
		var found []Key
		for key, row := range s.view.Rows {
			_, locked := s.locked[key]
			if key.Consumer == consumer && row.Crashes >= low && row.Crashes <= high && row.Due <= s.now && !snapshot[key] && !locked &&
				s.beyond(key, r, i) {
				found = append(found, key)
			}
		}
		slices.SortFunc(found, s.compare)
		if r.Select == store.Clean {
			found = found[:min(len(found), r.Limit)]
		}
		picked = append(picked, found...)
	}
	if r.Select != store.Clean {
		slices.SortFunc(picked, s.compare)
		picked = picked[:min(len(picked), r.Limit)]
	}
	for _, key := range picked {
		s.locked[key] = session
	}
	return picked
}

// beyond tells whether a row comes after the hint of the request's consumer i.
func (s *State) beyond(key Key, r Request, i int) bool {
	if r.Select != store.Clean || len(r.After) == 0 || r.After[i] == (Place{}) {
		return true
	}
	after := r.After[i]
	return cmp.Or(cmp.Compare(s.view.Rows[key].Due, after.Due), cmp.Compare(s.place[key], s.place[after.Key])) > 0
}

// compare is the order of claims.
func (s *State) compare(a, b Key) int {
	return cmp.Or(cmp.Compare(s.view.Rows[a].Due, s.view.Rows[b].Due), cmp.Compare(s.place[a], s.place[b]))
}

// Record is the second half: it claims what was picked and is in no claim now.
func (s *State) Record(picked []Key, r Request, session string) (claimed []Key) {
	held, keyed, at := s.Held(), rulesOf(r.Consumers[0]).Keyed, s.gates[r.Consumers[0]].at
	for _, key := range picked {
		if keyed || !held[key] || s.flaw == NoRecheck {
			claimed = append(claimed, key)
		}
	}
	s.Unlock(session)
	if len(claimed) == 0 {
		return nil
	}
	s.spend(r, claimed, at)
	s.claims++
	c := Claim{Owner: r.Owner, Solo: r.Solo, Until: s.now + Lease, Held: slices.Clone(claimed)}
	slices.SortFunc(c.Held, compareKeys)
	if keyed {
		c.Lanes = s.lanesOf(c.Held)
	} else {
		slices.SortFunc(claimed, s.compare)
	}
	s.view.Claims[s.claims] = c
	return claimed
}

// lanesOf are the order keys of messages.
func (s *State) lanesOf(held []Key) []string {
	return store.Each(held, func(key Key) string { return s.orderKey[key] })
}

// Unlock ends a session's transaction.
func (s *State) Unlock(session string) {
	maps.DeleteFunc(s.locked, func(_ Key, by string) bool { return by == session })
	maps.DeleteFunc(s.gates, func(_ string, g gate) bool { return g.session == session })
}

// Blocked tells whether writing these messages would have to wait for somebody.
func (s *State) Blocked(keys []Key) bool {
	return slices.ContainsFunc(keys, func(key Key) bool { _, locked := s.locked[key]; return locked })
}

// Extend implements System.
func (s *State) Extend(owner string) (held []int) {
	for n, c := range s.view.Claims {
		if c.Owner == owner {
			c.Until = s.now + Lease
			s.view.Claims[n] = c
			held = append(held, n)
		}
	}
	slices.Sort(held)
	return held
}

// Disclaim implements System.
func (s *State) Disclaim(owner string, claims []int) {
	for _, n := range claims {
		if c, ok := s.view.Claims[n]; ok && c.Owner == owner {
			delete(s.view.Claims, n)
		}
	}
}

// Fence is the start of a transactional consumer: it locks the message if that is
// still in the state, and in the claim, in which it was claimed.
func (s *State) Fence(t Transaction, session string) bool {
	row, ok := s.view.Rows[t.Key]
	c, live := s.view.Claims[t.Claim]
	if !ok || !live || c.Owner != t.Owner {
		return false
	}
	if s.flaw != FenceOnlyByOwner && (row.Attempts != t.Attempts || row.Crashes != t.Crashes || !slices.Contains(c.Held, t.Key)) {
		return false
	}
	s.locked[t.Key] = session
	return true
}

// Commit removes a fenced message together with its consumer's effect.
func (s *State) Commit(t Transaction, session string) {
	delete(s.view.Rows, t.Key)
	s.view.Effects[t.Key]++
	s.Unlock(session)
}

// Transact implements System: all of a transaction at once.
func (s *State) Transact(t Transaction) bool {
	held := s.Fence(t, t.Owner)
	if held && !t.RolledBack {
		s.Commit(t, t.Owner)
		return true
	}
	s.Unlock(t.Owner)
	return false
}

// reason is why recovery poisons.
func reason() string { return fmt.Sprintf("process lost %d times", MaxCrashes) }
