package engine

import (
	"context"
	"slices"
	"time"

	"github.com/uptrace/bun"
)

// keeper looks after what the process holds, until ctx ends. It renews leases, cancels handlers
// whose lease cannot be renewed, releases messages that no worker has started, and has workers
// abandon handlers that ignore their timeout. It logs warnings once a second.
func (r *run) keeper(ctx context.Context) {
	lease := r.config.LeaseDuration
	busy := min(max(lease/20, 50*time.Millisecond), 250*time.Millisecond)
	timer := time.NewTimer(busy)
	defer timer.Stop()
	idle := false
	renewals := make(chan struct{}, 1)
	renewer := background(func() { r.renewer(ctx, renewals) })
	defer func() { <-renewer }()
	next := time.Now().Add(lease / 4)
	defer r.report(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.dispatcher.queue.busy:
			if idle { // else the next look is near and must not be delayed
				timer.Reset(busy)
				idle = false
			}
		case now := <-timer.C:
			if r.keep(now); !now.Before(next) {
				next = now.Add(lease / 4)
				select {
				case renewals <- struct{}{}:
				default: // the last renewal is still under way
				}
			}
			running, queued := r.dispatcher.queue.load()
			if idle = running+queued+len(r.ledger.held())+len(r.dispatcher.limiters.heldSlots()) == 0; idle {
				timer.Reset(lease / 4) // when idle, waking up costs more than a poll
			} else {
				timer.Reset(busy)
			}
		}
	}
}

// returnedLook is the wait until a process looks for messages that it has released itself.
const returnedLook = 250 * time.Millisecond

// keep is one look of the keeper.
func (r *run) keep(now time.Time) {
	for _, w := range r.slots {
		w.overdue(now)
	}
	stale := r.dispatcher.queue.stale(now.Add(-time.Second))
	for _, t := range stale {
		r.notStarted(t)
	}
	if len(stale) > 0 { // other processes may have no room either, and we soon may
		r.alarm.By(now.Add(returnedLook))
	}
	// A sixth of a lease before it could run out.
	r.cancelled(&r.unrenewed, r.ledger.expire(now.Add(r.config.LeaseDuration/6)))
	r.unslotted(now)
	r.report(time.Second)
}

// report logs kept warnings if the last one is older than pause.
func (r *run) report(pause time.Duration) {
	r.unrenewed.flush(pause)
	r.takenAway.flush(pause)
	r.recovered.flush(pause)
}

// cancelled reports claims whose handlers the ledger has cancelled and releases their unstarted
// messages.
func (r *run) cancelled(why *rateLimitedLog, leases []*lease) {
	if len(leases) == 0 {
		return
	}
	why.add(len(leases), 0)
	for _, t := range r.dispatcher.queue.withdraw(func(t *task) bool { return slices.Contains(leases, t.lease) }) {
		r.settled(t, errUnstarted)
	}
}

// renewer extends all claims of this process at each signal. A claim that only the database holds
// comes from a commit whose answer was lost. It is released once it is seen twice and no claim in
// flight can be its source.
func (r *run) renewer(ctx context.Context, renewals <-chan struct{}) {
	conn := &renewalConn{db: r.db, keep: r.store.RowLocks()}
	defer conn.close()
	if err := conn.open(ctx); err != nil && ctx.Err() == nil {
		r.outage.Failed("connect", err)
	}
	unknownSince := make(map[int64]time.Time)
	for {
		select {
		case <-ctx.Done():
			return
		case <-renewals:
		}
		if len(r.ledger.held()) == 0 && len(unknownSince) == 0 && len(r.dispatcher.limiters.heldSlots()) == 0 && !r.unknownClaims.Swap(false) {
			continue
		}
		var unknown []int64
		err := conn.use(ctx, func(ctx context.Context, db bun.IDB) (err error) {
			unknown, err = r.renew(ctx, db)
			return err
		})
		if err != nil {
			r.unknownClaims.Store(true)
			if ctx.Err() == nil {
				r.outage.Failed("extend", err)
			}
			continue
		}
		r.outage.Recovered()
		r.giveBack(ctx, conn, unknownSince, unknown)
	}
}

// renew extends all claims of this process once, closes those that it has lost, and returns those
// unknown to it.
func (r *run) renew(ctx context.Context, db bun.IDB) (unknown []int64, err error) {
	slotsErr := r.renewSlots(ctx, db) // a run without a slot is cancelled elsewhere
	before, sent := r.ledger.held(), time.Now()
	held, err := r.store.Extend(ctx, db, r.owner, r.config.LeaseDuration)
	if err != nil {
		return nil, err
	}
	lost, unknown := r.ledger.renewed(before, held, sent.Add(r.config.LeaseDuration))
	r.cancelled(&r.takenAway, lost)
	return unknown, slotsErr
}

// giveBack ends claims that were already unknown before, and notes when the others were first seen.
func (r *run) giveBack(ctx context.Context, conn *renewalConn, seen map[int64]time.Time, unknown []int64) {
	var again []int64
	now := time.Now()
	for id := range seen {
		if !slices.Contains(unknown, id) {
			delete(seen, id)
		}
	}
	for _, id := range unknown {
		if since, ok := seen[id]; !ok {
			seen[id] = now
		} else if !r.inFlight.startedBefore(since) {
			again = append(again, id)
		}
	}
	if len(seen) > len(again) {
		r.unknownClaims.Store(true)
	}
	if len(again) == 0 {
		return
	}
	err := conn.use(ctx, func(ctx context.Context, db bun.IDB) error { return r.store.Disclaim(ctx, db, r.owner, again) })
	if err != nil {
		r.outage.Failed("disclaim", err)
		return
	}
	for _, id := range again {
		delete(seen, id)
	}
	r.config.Logger.Warn("gave back claims whose commit was never confirmed", "claims", len(again))
}
