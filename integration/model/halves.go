package model

import (
	"maps"
	"time"

	"pgregory.net/rapid"
)

// halves is a world in which claims and transactions are taken apart: between
// their halves anything may happen. Only the model can be stopped there.
type halves struct {
	*world
	state  *State
	picks  map[string]*halfClaim // by session
	fences map[string]Transaction
}

// halfClaim is a claim under way.
type halfClaim struct {
	request  Request
	snapshot Held // of the pick, taken before it locks
	locked   bool
	picked   []Key
	seen     View // when it was picked, at an instant
	at       time.Duration
}

// Halves draws steps like Lockstep, on the model alone, and stops claims and
// transactions anywhere.
func Halves(t *rapid.T, tally Tally, flaw Flaw) {
	state := NewState(flaw)
	h := &halves{world: newWorld(t, tally, state), state: state, picks: make(map[string]*halfClaim), fences: make(map[string]Transaction)}
	actions := h.actions()
	actions["pick"] = func(*rapid.T) { h.pick() }
	actions["pick 2"] = actions["pick"]
	actions["pick 3"] = actions["pick"]
	actions["pick 4"] = actions["pick"]
	actions["pick 5"] = actions["pick"]
	actions["fence"] = func(*rapid.T) { h.fence() }
	actions["fence 2"] = actions["fence"]
	h.begin()
	h.Repeat(actions)
	for session := range h.picks {
		h.state.Unlock(session)
	}
	for session := range h.fences {
		h.state.Unlock(session)
	}
	h.relock()
	h.drain()
}

func sessions() []string { return []string{"p", "q", "r"} }

// pick takes a session's claim one step further: its snapshot, its locks, its
// record and commit.
func (h *halves) pick() {
	session := draw(h.world, "session", sessions()...)
	c, under := h.picks[session]
	switch {
	case !under:
		h.picks[session] = &halfClaim{request: h.request(h.group()), snapshot: h.state.Held()}
	case !c.locked && c.request.gated():
		if !h.state.Lock(c.request.Consumers[0], session) {
			h.tally["waited at a gate"]++
			return
		}
		if h.state.flaw != HeldBeforeGate || !inOrder(c.request.Consumers[0]) {
			c.snapshot = h.state.Held()
		}
		fallthrough
	case !c.locked:
		c.locked, c.picked = true, h.state.Pick(c.request, c.snapshot, session)
		c.seen, c.at = h.view, h.now
		h.relock()
	case h.chance("the client vanishes", 10):
		delete(h.picks, session)
		h.state.Unlock(session)
		h.relock()
	default:
		delete(h.picks, session)
		keys := h.state.Record(c.picked, c.request, session)
		h.tally["dropped at record"] += len(c.picked) - len(keys)
		h.relock()
		h.look(Step{Kind: "claim", Owner: c.request.Owner, Seen: &c.seen})
		h.remember(c.request, c.seen, c.at, keys)
	}
}

// fence takes a session's transaction one step further: its fence, its commit.
func (h *halves) fence() {
	session := "tx-" + draw(h.world, "session", sessions()...)
	t, under := h.fences[session]
	if under {
		delete(h.fences, session)
		if t.RolledBack {
			h.state.Unlock(session)
			h.relock()
			return
		}
		h.state.Commit(t, session)
		h.relock()
		h.look(Step{Kind: "commit", Owner: t.Owner, Key: t.Key})
		h.tally["effects"]++
		return
	}
	t = h.transaction()
	if h.blocked([]Key{t.Key}) || !h.state.Fence(t, session) {
		return
	}
	h.fences[session] = t
	h.relock()
	h.look(Step{Kind: "fence", Owner: t.Owner, Key: t.Key})
}

// relock tells the world what is locked, which settles wait for, or claims.
func (h *halves) relock() {
	clear(h.locked)
	clear(h.shut)
	for consumer := range maps.Keys(h.state.gates) {
		h.shut[consumer] = !h.state.ungated(consumer)
	}
	for key := range maps.Keys(h.state.locked) {
		h.locked[key] = true
	}
}
