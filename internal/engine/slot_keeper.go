package engine

import (
	"context"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// slotKeeper leases the slots of limits in the database.
type slotKeeper struct {
	store    *store.Store
	db       *bun.DB
	owner    string
	config   *ProcessorConfig
	ctx      context.Context
	outage   *outage.Outage
	catalog  *catalog
	limiters *limiters
	wanted   <-chan struct{} // a message waits for a slot
}

// loop takes slots for limits and returns those not needed, until ctx ends.
func (sk *slotKeeper) loop(ctx context.Context) {
	if len(sk.limiters.all) == 0 {
		return
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		sk.share(ctx)
		needs, again := sk.limiters.slotNeeds(time.Now())
		for _, need := range needs {
			sk.supply(ctx, need)
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
		case <-sk.wanted:
		}
	}
}

// share asks whether other processes wait for slots that this one has used for a while.
func (sk *slotKeeper) share(ctx context.Context) {
	names := sk.limiters.busyLimits(time.Now())
	if len(names) == 0 {
		return
	}
	wanted, err := ask(ctx, sk.outage, "read requests for slots", statementTimeout, func(ctx context.Context) ([]string, error) {
		return sk.store.Flow.SlotsWanted(ctx, sk.db, sk.owner, names)
	})
	if err == nil && len(wanted) > 0 {
		sk.limiters.share(wanted)
	}
}

// supply takes or returns the slots that a limiter needs to.
func (sk *slotKeeper) supply(ctx context.Context, need slotNeed) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if len(need.excess) > 0 {
		if err := sk.store.Flow.ReturnSlots(ctx, sk.db, sk.owner, need.name, need.excess); err != nil {
			sk.unsupplied(ctx, need, "return slots", err) // they are free when their lease is over
		}
		return
	}
	sent := time.Now()
	taken, err := sk.store.Flow.TakeSlots(ctx, sk.db, sk.owner, need.name, need.limit, need.more, sk.config.LeaseDuration)
	if err != nil {
		sk.unsupplied(ctx, need, "take slots", err)
	}
	sk.limiters.supplied(need, taken, sent.Add(sk.config.LeaseDuration))
}

// unsupplied notes that the state of slots is unknown, so that all are returned at the end.
func (sk *slotKeeper) unsupplied(ctx context.Context, need slotNeed, what string, err error) {
	sk.limiters.setUnsure(need.limiter)
	if ctx.Err() == nil {
		sk.outage.Failed(what, err)
	}
}

// renew extends the leases of all slots of this process.
func (sk *slotKeeper) renew(ctx context.Context, db bun.IDB) error {
	before := sk.limiters.heldSlots()
	if len(before) == 0 {
		return nil
	}
	sent := time.Now()
	renewed, held, err := sk.store.Flow.ExtendSlots(ctx, db, sk.owner, before, sk.config.LeaseDuration)
	if err == nil {
		sk.limiters.renewedSlots(before, renewed, held, sent.Add(sk.config.LeaseDuration))
	}
	return err
}

// returnPatience is how long the slots of a limit may take to be returned at the end.
const returnPatience = time.Second

// returnAll returns all slots at the end. Once that takes too long, the others end with their leases.
func (sk *slotKeeper) returnAll(ctx context.Context) {
	for _, l := range sk.limiters.all {
		slots := sk.limiters.takeOut(l)
		if len(slots) == 0 {
			continue
		}
		inTime, cancel := context.WithTimeout(ctx, returnPatience)
		sk.supply(inTime, slotNeed{limiter: l, excess: slots})
		late := inTime.Err() != nil
		cancel()
		if late {
			return
		}
	}
}

// takeOneEach takes a slot for each limit of the wanted consumers. It returns the wants of
// consumers that got one or need none.
func (sk *slotKeeper) takeOneEach(wants []store.Want) (left []store.Want, err error) {
	ctx, cancel := context.WithTimeout(sk.ctx, statementTimeout)
	defer cancel()
	for _, l := range sk.limiters.all {
		if !slices.ContainsFunc(wants, func(w store.Want) bool { return sk.catalog.byName[w.Consumer].limiter == l }) {
			continue
		}
		sent := time.Now()
		taken, err := sk.store.Flow.TakeSlots(ctx, sk.db, sk.owner, l.name, l.limit, 1, sk.config.LeaseDuration)
		if err != nil {
			return nil, err
		}
		sk.limiters.supplied(slotNeed{limiter: l}, taken, sent.Add(sk.config.LeaseDuration))
	}
	for _, want := range wants {
		if l := sk.catalog.byName[want.Consumer].limiter; l == nil || len(l.slots) > 0 {
			left = append(left, want)
		}
	}
	return left, nil
}
