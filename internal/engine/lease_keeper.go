package engine

import (
	"context"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/alarm"
)

// leaseKeeper maintains the claims and slots that the process holds. It has leases renewed, cancels
// handlers whose lease cannot be renewed, releases messages that no worker has started, and has
// workers abandon handlers that ignore their timeout. It logs warnings once a second.
type leaseKeeper struct {
	config   *ProcessorConfig
	ledger   *ledger
	queue    *queue
	limiters *limiters
	workers  *workerPool
	recorder *recorder
	renewer  *renewer
	alarm    *alarm.Alarm // of the poller
	warnings *warnings
}

// loop maintains what the process holds until ctx ends.
func (k *leaseKeeper) loop(ctx context.Context) {
	lease := k.config.LeaseDuration
	busy := min(max(lease/20, 50*time.Millisecond), 250*time.Millisecond)
	timer := time.NewTimer(busy)
	defer timer.Stop()
	idle := false
	renewals := make(chan struct{}, 1)
	renewer := background(func() { k.renewer.loop(ctx, renewals) })
	defer func() { <-renewer }()
	next := time.Now().Add(lease / 4)
	defer k.warnings.flush(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.queue.busy:
			if idle { // else the next look is near and must not be delayed
				timer.Reset(busy)
				idle = false
			}
		case now := <-timer.C:
			k.keep(now)
			if !now.Before(next) {
				next = now.Add(lease / 4)
				select {
				case renewals <- struct{}{}:
				default: // the last renewal is still under way
				}
			}
			running, queued := k.queue.load()
			if idle = running+queued+len(k.ledger.held())+len(k.limiters.heldSlots()) == 0; idle {
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
func (k *leaseKeeper) keep(now time.Time) {
	for _, w := range k.workers.all {
		w.overdue(now)
		w.watchLayers(now)
	}
	stale := k.queue.stale(now.Add(-time.Second))
	for _, t := range stale {
		k.recorder.notStarted(t)
	}
	if len(stale) > 0 { // other processes may have no capacity either, and this one may soon
		k.alarm.By(now.Add(returnedLook))
	}
	// A sixth of a lease before it could run out.
	k.recorder.withdraw(&k.warnings.unrenewed, k.ledger.expire(now.Add(k.config.LeaseDuration/6)))
	k.cancelWithoutSlots(now)
	k.warnings.flush(time.Second)
}

// timeLeft returns how long a lease holds: what is left by the monotonic clock, which stops while a
// virtual machine is suspended, or by the wall clock if that is less.
func timeLeft(until, now time.Time) time.Duration {
	return min(until.Sub(now), until.Round(0).Sub(now.Round(0)))
}

// cancelWithoutSlots cancels the handlers of limits whose slots could not be renewed.
func (k *leaseKeeper) cancelWithoutSlots(now time.Time) {
	for _, l := range k.limiters.withoutSlots(now) {
		var leases []*lease
		for _, w := range k.workers.all {
			if t := w.current.Load(); t != nil && t.consumer.limiter == l {
				for _, member := range append([]*task{t}, t.others...) { // they may be of other claims
					leases = append(leases, member.lease)
				}
			}
		}
		k.recorder.withdraw(&k.warnings.unrenewed, k.ledger.lose(leases))
	}
}
