package engine

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	// slotsIdle is how long unused slots are kept.
	slotsIdle = 250 * time.Millisecond
	// slotsAgain is the wait between attempts to get slots while other processes hold all.
	slotsAgain = 250 * time.Millisecond
	// slotsShared is how long a process keeps used slots while others have none.
	slotsShared = time.Second
)

// limiter bounds the concurrent calls of the consumers that share a limit, in all processes
// together. This process runs at most as many as it has leased slots in the database.
type limiter struct {
	name      string
	limit     int
	consumers []*consumer

	// Guarded by dispatcher.mu.
	slots    map[int]time.Time // when their leases end, on our clock
	running  int
	needless time.Time // since when some are not needed; zero: all are
	again    time.Time // no attempt before: other processes had all
	shared   time.Time // when it last asked whether other processes wait for a slot, or had none itself
	owed     int       // slots to give back once they are free, at most all
	unsure   bool      // a statement had no answer: we may hold slots that are not among these
}

// limitersOf returns the limiters of consumers and sets them in the consumers.
func limitersOf(consumers []*consumer) (all []*limiter) {
	byName := make(map[string]*limiter)
	for _, c := range consumers {
		name, n := flow.LimitOf(c.Consumer, c.settings)
		if n == 0 {
			continue
		}
		l := byName[name]
		if l == nil {
			l = &limiter{name: name, limit: n, slots: make(map[int]time.Time)}
			byName[name], all = l, append(all, l)
		}
		c.limiter, l.consumers = l, append(l.consumers, c)
	}
	return all
}

// checkLimits returns an error for each limit with two values.
func checkLimits(consumers []consumer) (errs []error) {
	numbers := make(map[string]consumer)
	for _, c := range consumers {
		name, n := flow.LimitOf(c.Consumer, c.settings)
		if other, ok := numbers[name]; ok && n > 0 && other.settings.GlobalConcurrency != n {
			errs = append(errs, fmt.Errorf("outbox: consumer %q: SharedConcurrency %q is %d, but %d for consumer %q: the same number is needed",
				c.Name(), c.settings.SharedConcurrency, n, other.settings.GlobalConcurrency, other.Name()))
		}
		if n > 0 {
			numbers[name] = c
		}
	}
	return errs
}

// valid counts the slots leased for long enough to start a call.
func (l *limiter) valid(now time.Time, lease time.Duration) (n int) {
	for _, until := range l.slots {
		if timeLeft(until, now) > lease/6 {
			n++
		}
	}
	return n
}

// limiters is the slots that this process has leased, and what its limits need.
type limiters struct {
	mu         *sync.Mutex // the dispatcher's
	work, room *sync.Cond
	config     *ProcessorConfig
	capacity   *capacity
	all        []*limiter
}

// slotNeed is what a limiter needs from the database: more slots, or to return excess ones.
type slotNeed struct {
	*limiter
	more   int
	excess []int
}

// wantedLocked reports whether a consumer of the limit could start a message if it had a slot.
func (ls *limiters) wantedLocked(l *limiter, now time.Time) bool {
	return slices.ContainsFunc(l.consumers, func(c *consumer) bool { return ls.capacity.waits(c, now) })
}

// setUnsure notes that a statement about slots had no answer.
func (ls *limiters) setUnsure(l *limiter) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.unsure = true
}

// takeOut removes and returns the slots to return at the end of a run: all that are unused, or all
// that may be ours.
func (ls *limiters) takeOut(l *limiter) []int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	slots := l.takeOutLocked(len(l.slots) - l.running)
	if l.unsure {
		return l.othersLocked()
	}
	return slots
}

// slotNeeds returns what limiters need now and when to look again; zero means when asked. It
// removes slots to be returned from use.
func (ls *limiters) slotNeeds(now time.Time) (needs []slotNeed, again time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	soon := func(wait time.Duration) {
		if again == 0 || wait < again {
			again = wait
		}
	}
	for _, l := range ls.all {
		wanted, free := ls.wantedLocked(l, now), l.valid(now, ls.config.LeaseDuration)-l.running
		room := min(l.limit, ls.config.Concurrency) - len(l.slots)
		if wanted && free > 0 || !wanted && free <= 0 {
			l.needless = time.Time{}
		}
		switch {
		case l.owed > 0 && free > 0:
			given := l.takeOutLocked(min(l.owed, free))
			l.owed -= len(given)
			needs = append(needs, slotNeed{limiter: l, excess: given})
			l.again = now.Add(jitter(2 * slotsAgain)) // the other processes ask first
			soon(slotsAgain)
		case wanted && free <= 0 && l.owed == 0 && room > 0:
			soon(slotsAgain)
			if !now.Before(l.again) { // twice as many each time, so that other processes find some
				needs = append(needs, slotNeed{limiter: l, more: min(max(len(l.slots), 1), room)})
			}
		case free > 0 && !wanted:
			soon(slotsIdle / 2)
			if l.needless.IsZero() {
				l.needless = now
			} else if now.Sub(l.needless) >= slotsIdle {
				needs = append(needs, slotNeed{limiter: l, excess: l.takeOutLocked(free)})
			}
		case len(l.slots) > 0:
			soon(slotsIdle)
		}
		if len(l.slots) > 0 {
			soon(max(l.shared.Add(slotsShared).Sub(now), time.Millisecond))
		}
	}
	return needs, again
}

// busyLimits returns the limits whose slots this process has used for a while and still needs. For
// these it has to ask whether other processes wait for a slot.
func (ls *limiters) busyLimits(now time.Time) (names []string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.all {
		switch {
		case len(l.slots) == 0:
			l.shared = now
		case now.Sub(l.shared) >= slotsShared:
			l.shared = now
			works := func(c *consumer) bool { has, _ := c.hasWork(now); return has } // also while all workers are busy
			if l.owed == 0 && slices.ContainsFunc(l.consumers, works) {
				names = append(names, l.name)
			}
		}
	}
	return names
}

// share marks half of the slots of limits to be given to processes without any, once they are free.
func (ls *limiters) share(names []string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.all {
		if slices.Contains(names, l.name) {
			l.owed = max(len(l.slots)/2, min(len(l.slots), 1))
		}
	}
}

// takeOutLocked removes and returns n slots, those that end soonest first. It returns none where more
// calls run than there are slots.
func (l *limiter) takeOutLocked(n int) (out []int) {
	var all []int
	for slot := range l.slots {
		all = append(all, slot)
	}
	slices.SortFunc(all, func(a, b int) int { return l.slots[a].Compare(l.slots[b]) })
	for _, slot := range all[:min(max(n, 0), len(all))] {
		delete(l.slots, slot)
		out = append(out, slot)
	}
	return out
}

// supplied adds taken slots and wakes the goroutines that wait for them.
func (ls *limiters) supplied(need slotNeed, taken []store.Slot, until time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, slot := range taken {
		need.slots[slot.N] = until
	}
	if len(taken) < need.more {
		need.again = time.Now().Add(jitter(slotsAgain))
	}
	if len(taken) > 0 {
		ls.work.Broadcast()
		ls.room.Broadcast()
	}
}

// heldSlots returns the slots whose leases are to be renewed, by the names of their limits.
func (ls *limiters) heldSlots() map[string][]int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	held := make(map[string][]int)
	for _, l := range ls.all {
		if len(l.slots) > 0 {
			held[l.name] = slices.Collect(maps.Keys(l.slots))
		}
	}
	return held
}

// renewedSlots extends the slots that were renewed. Those of before that are not held are lost.
func (ls *limiters) renewedSlots(before map[string][]int, renewed, held []store.Slot, until time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.all {
		for _, n := range before[l.name] {
			slot := store.Slot{Name: l.name, N: n}
			switch _, ok := l.slots[n]; {
			case !ok: // given back meanwhile
			case slices.Contains(renewed, slot):
				l.slots[n] = later(l.slots[n], until)
			case !slices.Contains(held, slot):
				delete(l.slots, n)
			}
		}
		l.owed = min(l.owed, len(l.slots)) // a lost slot cannot be given, and no slot is taken while one is owed
	}
}

// exceeded reports whether more calls run than there are slots for.
func (l *limiter) exceeded(now time.Time, lease time.Duration) bool {
	return l.running > l.valid(now, lease)
}

// withoutSlots returns the limiters that run more calls than they have slots for.
func (ls *limiters) withoutSlots(now time.Time) (over []*limiter) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.all {
		if l.exceeded(now, ls.config.LeaseDuration) {
			over = append(over, l)
		}
	}
	return over
}

// exceeds reports whether a limiter, which may be nil, runs more calls than it has slots for.
func (ls *limiters) exceeds(l *limiter, now time.Time) bool {
	if l == nil {
		return false
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return l.exceeded(now, ls.config.LeaseDuration)
}

// othersLocked returns the numbers of all slots except those known to be ours.
func (l *limiter) othersLocked() (others []int) {
	for n := range l.limit {
		if _, ours := l.slots[n+1]; !ours {
			others = append(others, n+1)
		}
	}
	return others
}
