package outbox

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	pollFloor      = 5 * time.Millisecond // between polls for messages that become due
	strangersEvery = time.Minute
)

// quickPolls are the polls after a produce whose commit nobody announces.
var quickPolls = [...]time.Duration{2 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 250 * time.Millisecond} // immutable

// poller looks for work on behalf of all claim loops of the process, until ctx
// ends: one statement every ProcessorMaxDelay, sooner when it is known that
// something will be due.
func (r *run) poller(ctx context.Context, expected <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	retry := newRetry()
	quick := len(quickPolls) // the next quick poll
	strangers := time.Now().Add(strangersEvery / 30)
	for {
		select {
		case <-ctx.Done():
			return
		case <-expected:
			quick = 0
			timer.Reset(quickPolls[0])
			continue
		case <-timer.C:
		}
		probe, err := r.probe(ctx)
		if err != nil {
			timer.Reset(retry.NextBackOff())
			continue
		}
		retry.Reset()
		now := time.Now()
		r.dispatcher.rescan(now)
		r.dispatcher.found(probe, now)
		if probe.Expired && r.outage.mayRecover() {
			r.recoverClaims(ctx)
		}
		if now.After(strangers) {
			strangers = now.Add(strangersEvery)
			r.reportStrangers(ctx)
		}
		wait := jitter(r.config.ProcessorMaxDelay)
		if probe.Next > 0 {
			wait = min(wait, max(probe.Next, pollFloor))
		}
		if quick++; quick < len(quickPolls) {
			wait = min(wait, quickPolls[quick]-quickPolls[quick-1])
		}
		timer.Reset(wait)
	}
}

// jitter spreads a delay by ±20 %, so that processes do not poll in step.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

func (r *run) probe(ctx context.Context) (store.Probe, error) {
	statement, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	probe, err := r.store.Probe(statement, r.db, r.dispatcher.wants)
	if err != nil {
		if ctx.Err() == nil {
			r.outage.noticed("poll", err)
		}
		return probe, err
	}
	r.outage.over(r.config.LeaseDuration)
	return probe, nil
}

// recoverClaims ends claims that have outlived their lease. Every process does
// it when it meets one; there is no leader.
func (r *run) recoverClaims(ctx context.Context) {
	statement, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	found, err := r.store.Recover(statement, r.db, maxCrashes)
	switch {
	case err != nil && ctx.Err() == nil:
		r.outage.noticed("recover", err)
	case found.Poisoned > 0:
		r.config.Logger.Error("message poisoned", "reason", store.CrashReason(maxCrashes), "messages", found.Poisoned)
	case found.Claims > 0:
		r.config.Logger.Warn("claims of vanished owners recovered", "claims", found.Claims, "messages", found.Crashed)
	}
	if found.Claims > 0 {
		r.dispatcher.activate(nil, r.registry)
	}
}

// reportStrangers warns of messages that wait for consumers or payload types
// that are not registered here. They are left in place: another binary may know them.
func (r *run) reportStrangers(ctx context.Context) {
	statement, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	found, err := r.store.Strangers(statement, r.db, r.dispatcher.wants)
	if err != nil {
		if ctx.Err() == nil {
			r.outage.noticed("look for strangers", err)
		}
		return
	}
	for _, s := range found {
		r.config.Logger.Warn("messages wait that no consumer registered here takes", "consumer", s.ConsumerType, "payload_type", s.PayloadType)
	}
}

// listen passes on wake-ups: what is committed is claimed at once, what is
// expected is looked for a few times soon.
func (r *run) listen(expected chan<- struct{}) (stop func()) {
	return r.registry.Wakeups().Listen(func(w bus.Wake) {
		if !w.Expected {
			r.dispatcher.activate(w.PayloadTypes, r.registry)
			return
		}
		select {
		case expected <- struct{}{}:
		default: // told already
		}
	})
}
