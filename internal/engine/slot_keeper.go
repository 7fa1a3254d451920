package engine

import (
	"context"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// slotKeeper takes slots for limits and returns those not needed, until ctx ends.
func (r *run) slotKeeper(ctx context.Context) {
	if len(r.dispatcher.limiters.all) == 0 {
		return
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		r.shareSlots(ctx)
		needs, again := r.dispatcher.limiters.slotNeeds(time.Now())
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
		case <-r.dispatcher.capacity.slotsWanted:
		}
	}
}

// shareSlots asks whether other processes wait for slots that this one has used for a while.
func (r *run) shareSlots(ctx context.Context) {
	names := r.dispatcher.limiters.busyLimits(time.Now())
	if len(names) == 0 {
		return
	}
	wanted, err := ask(ctx, r, "look who waits for slots", statementTimeout, func(ctx context.Context) ([]string, error) {
		return r.store.SlotsWanted(ctx, r.db, r.owner, names)
	})
	if err == nil && len(wanted) > 0 {
		r.dispatcher.limiters.share(wanted)
	}
}

// supply takes or returns the slots that a limiter needs to.
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
	r.dispatcher.limiters.supplied(need, taken, sent.Add(r.config.LeaseDuration))
}

// unsupplied notes that the state of slots is unknown, so that all are returned at the end.
func (r *run) unsupplied(ctx context.Context, need slotNeed, what string, err error) {
	r.dispatcher.limiters.setUnsure(need.limiter)
	if ctx.Err() == nil {
		r.outage.Failed(what, err)
	}
}

// renewSlots extends the leases of all slots of this process.
func (r *run) renewSlots(ctx context.Context, db bun.IDB) error {
	before := r.dispatcher.limiters.heldSlots()
	if len(before) == 0 {
		return nil
	}
	sent := time.Now()
	held, err := r.store.ExtendSlots(ctx, db, r.owner, before, r.config.LeaseDuration)
	if err == nil {
		r.dispatcher.limiters.renewedSlots(before, held, sent.Add(r.config.LeaseDuration))
	}
	return err
}

// unslotted cancels the handlers of limits whose slots could not be renewed.
func (r *run) unslotted(now time.Time) {
	for _, l := range r.dispatcher.limiters.withoutSlots(now) {
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
	for _, l := range r.dispatcher.limiters.all {
		if slots := r.dispatcher.limiters.takeOut(l); len(slots) > 0 {
			r.supply(ctx, slotNeed{limiter: l, excess: slots})
		}
	}
}

// slotsForStep takes a slot for each limit of the wanted consumers. It returns the wants of
// consumers that got one or need none.
func (r *run) slotsForStep(wants []store.Want) (left []store.Want, err error) {
	ctx, cancel := context.WithTimeout(r.ctx, statementTimeout)
	defer cancel()
	for _, l := range r.dispatcher.limiters.all {
		if !slices.ContainsFunc(wants, func(w store.Want) bool { return r.dispatcher.catalog.byName[w.Consumer].limiter == l }) {
			continue
		}
		sent := time.Now()
		taken, err := r.store.TakeSlots(ctx, r.db, r.owner, l.name, l.limit, 1, r.config.LeaseDuration)
		if err != nil {
			return nil, err
		}
		r.dispatcher.limiters.supplied(slotNeed{limiter: l}, taken, sent.Add(r.config.LeaseDuration))
	}
	for _, want := range wants {
		if l := r.dispatcher.catalog.byName[want.Consumer].limiter; l == nil || len(l.slots) > 0 {
			left = append(left, want)
		}
	}
	return left, nil
}
