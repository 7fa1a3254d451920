package outbox

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	// slotsIdle is for how long slots are kept that nobody needs.
	slotsIdle = 250 * time.Millisecond
	// slotsAgain is the wait until others are asked again who have all of them.
	slotsAgain = 250 * time.Millisecond
	// slotsShared is for how long a process keeps slots that it uses while others have none.
	slotsShared = time.Second
)

// limiter bounds how many calls run, in all processes together, of the consumers that share
// a limit. This process runs at most as many as it has leased slots in the database.
type limiter struct {
	name      string
	limit     int
	consumers []*consumer

	// Guarded by dispatcher.mu.
	slots    map[int]time.Time // until when they are leased, on our clock
	running  int
	needless time.Time // since when some of them are not needed; zero: they are
	again    time.Time // others had all: not to be asked before
	shared   time.Time // when it was last asked whether others wait for one, or this process had none
	owed     int       // so many are to be given back to others, once they are free
	unsure   bool      // a statement had no answer: there may be slots of ours that are not among these
}

// limitersOf returns the limiters of consumers, which it tells of them.
func limitersOf(consumers []*consumer) (all []*limiter) {
	byName := make(map[string]*limiter)
	for _, c := range consumers {
		name, n := limitOf(c.Name(), c.settings)
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

// limitOf returns the limit of a consumer over all processes, and its name.
func limitOf(consumer string, settings bus.ConsumerConfig) (name string, n int) {
	return cmp.Or(settings.LimitName, consumer), settings.Limit
}

// checkLimits refuses two numbers for one limit.
func checkLimits(consumers []consumer) (errs []error) {
	numbers := make(map[string]consumer)
	for _, c := range consumers {
		name, n := limitOf(c.Name(), c.settings)
		if other, ok := numbers[name]; ok && n > 0 && other.settings.Limit != n {
			errs = append(errs, fmt.Errorf("outbox: consumer %q: the limit %q is %d, and %d for consumer %q: one number is allowed", c.Name(), name, n, other.settings.Limit, other.Name()))
		}
		if n > 0 {
			numbers[name] = c
		}
	}
	return errs
}

// freeSlotsLocked is how many more calls a consumer may run as far as its limit goes.
func (d *dispatcher) freeSlotsLocked(l *limiter, now time.Time) int {
	return l.valid(now, d.config.LeaseDuration) - l.running - l.owed
}

// valid counts the slots that are leased for long enough to begin something.
func (l *limiter) valid(now time.Time, lease time.Duration) (n int) {
	for _, until := range l.slots {
		if until.Sub(now) > lease/6 {
			n++
		}
	}
	return n
}

// wantedLocked tells whether a consumer of the limit could start something now, had it a slot.
func (d *dispatcher) wantedLocked(l *limiter, now time.Time) bool {
	return slices.ContainsFunc(l.consumers, func(c *consumer) bool { return d.waitsLocked(c, now) })
}

// askForSlots has the slots be looked after.
func (d *dispatcher) askForSlots() {
	select {
	case d.slotsWanted <- struct{}{}:
	default:
	}
}

// slotNeed is what a limiter needs of the database: so many more slots, or to give these back.
type slotNeed struct {
	*limiter
	more   int
	excess []int
}

// slotNeeds tells what limiters need now, and when to look again: zero is not before
// somebody asks. What is to be given back is not used any more.
func (d *dispatcher) slotNeeds(now time.Time) (needs []slotNeed, again time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	soon := func(wait time.Duration) {
		if again == 0 || wait < again {
			again = wait
		}
	}
	for _, l := range d.limiters {
		wanted, free := d.wantedLocked(l, now), l.valid(now, d.config.LeaseDuration)-l.running
		room := min(l.limit, d.config.Concurrency) - len(l.slots)
		if wanted && free > 0 || !wanted && free <= 0 {
			l.needless = time.Time{}
		}
		switch {
		case l.owed > 0 && free > 0:
			given := l.takeOutLocked(min(l.owed, free))
			l.owed -= len(given)
			needs = append(needs, slotNeed{limiter: l, excess: given})
			l.again = now.Add(jitter(2 * slotsAgain)) // the others ask first
			soon(slotsAgain)
		case wanted && free <= 0 && l.owed == 0 && room > 0:
			if soon(slotsAgain); !now.Before(l.again) { // twice as many each time, so that others find some
				needs = append(needs, slotNeed{limiter: l, more: min(max(len(l.slots), 1), room)})
			}
		case free > 0 && !wanted:
			if soon(slotsIdle / 2); l.needless.IsZero() {
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

// busyLimits are the limits of which this process has had slots for a while, and uses all: the others are to be
// asked whether they wait for one.
func (d *dispatcher) busyLimits(now time.Time) (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.limiters {
		switch {
		case len(l.slots) == 0:
			l.shared = now
		case now.Sub(l.shared) >= slotsShared:
			if l.shared = now; l.owed == 0 && d.wantedLocked(l, now) {
				names = append(names, l.name)
			}
		}
	}
	return names
}

// share has this process give half of the slots of limits to others who have none, as soon as they are free.
func (d *dispatcher) share(names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.limiters {
		if slices.Contains(names, l.name) {
			l.owed = max(len(l.slots)/2, min(len(l.slots), 1))
		}
	}
}

// takeOutLocked takes out slots, those first that end first.
func (l *limiter) takeOutLocked(n int) (out []int) {
	var all []int
	for slot := range l.slots {
		all = append(all, slot)
	}
	slices.SortFunc(all, func(a, b int) int { return l.slots[a].Compare(l.slots[b]) })
	for _, slot := range all[:min(n, len(all))] {
		delete(l.slots, slot)
		out = append(out, slot)
	}
	return out
}

// slotKeeper gets slots for limits, and gives back those that are not needed, until ctx ends.
func (r *run) slotKeeper(ctx context.Context) {
	if len(r.dispatcher.limiters) == 0 {
		return
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		r.shareSlots(ctx)
		needs, again := r.dispatcher.slotNeeds(time.Now())
		for _, need := range needs {
			r.supply(ctx, need)
		}
		if len(needs) > 0 && again == 0 {
			again = slotsAgain
		} else if again == 0 {
			again = time.Hour
		}
		timer.Reset(again)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.dispatcher.slotsWanted:
		}
	}
}

// shareSlots asks whether others wait for slots of which this process has had some for a while.
func (r *run) shareSlots(ctx context.Context) {
	names := r.dispatcher.busyLimits(time.Now())
	if len(names) == 0 {
		return
	}
	wanted, err := ask(ctx, r, "look who waits for slots", statementTimeout, func(ctx context.Context) ([]string, error) {
		return r.store.SlotsWanted(ctx, r.db, r.owner, names)
	})
	if err == nil && len(wanted) > 0 {
		r.dispatcher.share(wanted)
	}
}

// supply gives a limiter what it needs.
func (r *run) supply(ctx context.Context, need slotNeed) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if len(need.excess) > 0 {
		if err := r.store.ReturnSlots(ctx, r.db, r.owner, need.name, need.excess); err != nil {
			r.unsupplied(ctx, need, "return slots", err) // they are free when their lease is over
		}
		return
	}
	sent := time.Now()
	taken, err := r.store.TakeSlots(ctx, r.db, r.owner, need.name, need.limit, need.more, r.config.LeaseDuration)
	if err != nil {
		r.unsupplied(ctx, need, "take slots", err)
	}
	r.dispatcher.supplied(need, taken, sent.Add(r.config.LeaseDuration))
}

// unsupplied notes that nobody knows what became of slots, so that all are given back at the end.
func (r *run) unsupplied(ctx context.Context, need slotNeed, what string, err error) {
	r.dispatcher.mu.Lock()
	need.unsure = true
	r.dispatcher.mu.Unlock()
	if ctx.Err() == nil {
		r.outage.Failed(what, err)
	}
}

// supplied enters slots that were taken, and has those go on who waited for them.
func (d *dispatcher) supplied(need slotNeed, taken []store.Slot, until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, slot := range taken {
		need.slots[slot.N] = until
	}
	if len(taken) < need.more {
		need.again = time.Now().Add(jitter(slotsAgain))
	}
	if len(taken) > 0 {
		d.work.Broadcast()
		d.room.Broadcast()
	}
}

// heldSlots lists the slots whose leases are to be renewed, by their limits' names.
func (d *dispatcher) heldSlots() map[string][]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	held := make(map[string][]int)
	for _, l := range d.limiters {
		if len(l.slots) > 0 {
			held[l.name] = slices.Collect(maps.Keys(l.slots))
		}
	}
	return held
}

// renewSlots extends the leases of all slots of this process.
func (r *run) renewSlots(ctx context.Context, db bun.IDB) error {
	before := r.dispatcher.heldSlots()
	if len(before) == 0 {
		return nil
	}
	sent := time.Now()
	held, err := r.store.ExtendSlots(ctx, db, r.owner, before, r.config.LeaseDuration)
	if err == nil {
		r.dispatcher.renewedSlots(before, held, sent.Add(r.config.LeaseDuration))
	}
	return err
}

// renewedSlots enters which slots were renewed. The others of before are lost.
func (d *dispatcher) renewedSlots(before map[string][]int, held []store.Slot, until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.limiters {
		for _, n := range before[l.name] {
			if _, ok := l.slots[n]; !ok {
				continue // given back meanwhile
			}
			if slices.Contains(held, store.Slot{Name: l.name, N: n}) {
				l.slots[n] = later(l.slots[n], until)
			} else {
				delete(l.slots, n)
			}
		}
	}
}

// withoutSlots lists the limiters of which more run than there are slots for.
func (d *dispatcher) withoutSlots(now time.Time) (over []*limiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.limiters {
		if l.running > l.valid(now, d.config.LeaseDuration) {
			over = append(over, l)
		}
	}
	return over
}

// unslotted cancels what runs without a slot, since that could not be renewed.
func (r *run) unslotted(now time.Time) {
	for _, l := range r.dispatcher.withoutSlots(now) {
		var leases []*lease
		for _, w := range r.slots {
			if t := w.current.Load(); t != nil && t.consumer.limiter == l {
				leases = append(leases, t.lease)
			}
		}
		r.cancelled(&r.unrenewed, r.ledger.lose(leases))
	}
}

// returnSlots gives back all slots at the end.
func (r *run) returnSlots(ctx context.Context) {
	for _, l := range r.dispatcher.limiters {
		r.dispatcher.mu.Lock()
		slots := l.takeOutLocked(len(l.slots) - l.running)
		if l.unsure {
			slots = l.othersLocked()
		}
		r.dispatcher.mu.Unlock()
		if len(slots) > 0 {
			r.supply(ctx, slotNeed{limiter: l, excess: slots})
		}
	}
}

// othersLocked are the numbers of all slots but those that are known to be ours.
func (l *limiter) othersLocked() (others []int) {
	for n := range l.limit {
		if _, ours := l.slots[n+1]; !ours {
			others = append(others, n+1)
		}
	}
	return others
}

// slotsForStep takes a slot for each limit of the consumers that are wanted, and leaves those
// out that get none.
func (r *run) slotsForStep(wants []store.Want) (left []store.Want, err error) {
	ctx, cancel := context.WithTimeout(r.ctx, statementTimeout)
	defer cancel()
	for _, l := range r.dispatcher.limiters {
		if !slices.ContainsFunc(wants, func(w store.Want) bool { return r.dispatcher.byName[w.Consumer].limiter == l }) {
			continue
		}
		sent := time.Now()
		taken, err := r.store.TakeSlots(ctx, r.db, r.owner, l.name, l.limit, 1, r.config.LeaseDuration)
		if err != nil {
			return nil, err
		}
		r.dispatcher.supplied(slotNeed{limiter: l}, taken, sent.Add(r.config.LeaseDuration))
	}
	for _, want := range wants {
		if l := r.dispatcher.byName[want.Consumer].limiter; l == nil || len(l.slots) > 0 {
			left = append(left, want)
		}
	}
	return left, nil
}
