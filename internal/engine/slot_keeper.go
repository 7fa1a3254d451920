package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// slotKeeper takes slots for limits and returns those not needed, until ctx ends.
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

// shareSlots asks whether other processes wait for slots that this one has used for a while.
func (r *run) shareSlots(ctx context.Context) {
	names := r.dispatcher.busyLimits(time.Now())
	if len(names) == 0 {
		return
	}
	wanted, err := ask(ctx, r, "look who waits for slots", statementTimeout, func(ctx context.Context) ([]string, error) {
		return r.store.Flow.SlotsWanted(ctx, r.db, r.owner, names)
	})
	if err == nil && len(wanted) > 0 {
		r.dispatcher.share(wanted)
	}
}

// supply takes or returns the slots that a limiter needs to.
func (r *run) supply(ctx context.Context, need slotNeed) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if len(need.excess) > 0 {
		if err := r.store.Flow.ReturnSlots(ctx, r.db, r.owner, need.name, need.excess); err != nil {
			r.unsupplied(ctx, need, "return slots", err) // they are free when their lease is over
		}
		return
	}
	sent := time.Now()
	taken, err := r.store.Flow.TakeSlots(ctx, r.db, r.owner, need.name, need.limit, need.more, r.config.LeaseDuration)
	if err != nil {
		r.unsupplied(ctx, need, "take slots", err)
	}
	r.dispatcher.supplied(need, taken, sent.Add(r.config.LeaseDuration))
}

// unsupplied notes that the state of slots is unknown, so that all are returned at the end.
func (r *run) unsupplied(ctx context.Context, need slotNeed, what string, err error) {
	r.dispatcher.mu.Lock()
	need.unsure = true
	r.dispatcher.mu.Unlock()
	if ctx.Err() == nil {
		r.outage.Failed(what, err)
	}
}

// supplied adds taken slots and wakes the goroutines that wait for them.
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

// heldSlots returns the slots whose leases are to be renewed, by the names of their limits.
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
	held, err := r.store.Flow.ExtendSlots(ctx, db, r.owner, before, r.config.LeaseDuration)
	if err == nil {
		r.dispatcher.renewedSlots(before, held, sent.Add(r.config.LeaseDuration))
	}
	return err
}

// renewedSlots extends the slots that were renewed. The others of before are lost.
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

// withoutSlots returns the limiters that run more calls than they have slots for.
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

// unslotted cancels the handlers of limits whose slots could not be renewed.
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

// returnSlots returns all slots at the end.
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

// othersLocked returns the numbers of all slots except those known to be ours.
func (l *limiter) othersLocked() (others []int) {
	for n := range l.limit {
		if _, ours := l.slots[n+1]; !ours {
			others = append(others, n+1)
		}
	}
	return others
}

// slotsForStep takes a slot for each limit of the wanted consumers. It returns the wants of
// consumers that got one or need none.
func (r *run) slotsForStep(wants []store.Want) (left []store.Want, err error) {
	ctx, cancel := context.WithTimeout(r.ctx, statementTimeout)
	defer cancel()
	for _, l := range r.dispatcher.limiters {
		if !slices.ContainsFunc(wants, func(w store.Want) bool { return r.dispatcher.byName[w.Consumer].limiter == l }) {
			continue
		}
		sent := time.Now()
		taken, err := r.store.Flow.TakeSlots(ctx, r.db, r.owner, l.name, l.limit, 1, r.config.LeaseDuration)
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
