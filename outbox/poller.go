package outbox

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/alarm"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	pollFloor      = 5 * time.Millisecond // between polls for messages that become due
	strangersEvery = time.Minute
)

// newAlarm rings for the next poll. The quick polls follow a produce whose
// commit nobody announces.
func newAlarm() *alarm.Alarm {
	return alarm.New(2*time.Millisecond, 10*time.Millisecond, 50*time.Millisecond, 250*time.Millisecond)
}

// poller looks for work on behalf of all claim loops of the process, until ctx
// ends: one statement every ProcessorMaxDelay, sooner when it is known that
// something will be due.
func (r *run) poller(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	retry := outage.NewRetry()
	strangers := time.Now().Add(strangersEvery / 30)
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.alarm.Changed():
		}
		if wait := r.alarm.Next(time.Now()); wait > 0 {
			timer.Reset(wait)
			continue
		}
		// Armed before the look, so that whoever rings during it is heard.
		r.alarm.Rearm(time.Now(), time.Now().Add(jitter(r.config.ProcessorMaxDelay)))
		probe, err := r.probe(ctx)
		now := time.Now()
		if err != nil {
			r.alarm.Rearm(now, now.Add(retry.NextBackOff()))
			timer.Reset(r.alarm.Next(now))
			continue
		}
		r.dispatcher.rescan(now)
		news := r.dispatcher.found(probe, now)
		if err := r.comeBack(ctx); err != nil {
			r.alarm.Rearm(now, time.Now().Add(retry.NextBackOff()))
			timer.Reset(r.alarm.Next(time.Now()))
			continue
		}
		retry.Reset()
		if probe.Expired && r.outage.Settled() {
			r.recoverClaims(ctx)
		}
		if now.After(strangers) {
			strangers = now.Add(strangersEvery)
			r.reportStrangers(ctx)
		}
		if probe.Next > 0 {
			r.alarm.By(now.Add(max(probe.Next, pollFloor)))
		}
		if again, ok := r.remote.after(now, news, r.counters.claimed.Load()); ok {
			r.alarm.By(again)
		}
		timer.Reset(r.alarm.Next(time.Now()))
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
	if err != nil && ctx.Err() == nil {
		r.outage.Noticed("poll", err)
	}
	return probe, err
}

// comeBack ends an outage once the database takes writes again: one that is read-only
// answers a poll, too. And whoever comes back first renews what it still holds, before
// others may take it for abandoned. What the poll has found does not wait for that.
func (r *run) comeBack(ctx context.Context) error {
	if r.outage.Err() == nil {
		return nil
	}
	statement, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if _, err := r.renew(statement, r.db); err != nil {
		if ctx.Err() == nil {
			r.outage.Noticed("extend", err)
		}
		return err
	}
	r.outage.Over()
	return nil
}

// recoverClaims ends claims that have outlived their lease. Every process does
// it when it meets one; there is no leader.
func (r *run) recoverClaims(ctx context.Context) {
	statement, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	found, err := r.store.Recover(statement, r.db, maxCrashes)
	switch {
	case err != nil && ctx.Err() == nil:
		r.outage.Noticed("recover", err)
	case found.Poisoned > 0:
		r.config.Logger.Error("message poisoned", "reason", store.CrashReason(maxCrashes), "messages", found.Poisoned)
	case found.Claims > 0:
		r.recovered.add(found.Claims, found.Crashed)
	}
	if found.Claims > 0 {
		r.counters.recovered.Add(int64(found.Claims))
		r.counters.crashed.Add(int64(found.Crashed))
		r.counters.crashPoisoned.Add(int64(found.Poisoned))
		r.alarm.By(time.Now()) // there may be more, and what was recovered is due
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
			r.outage.Noticed("look for strangers", err)
		}
		return
	}
	for _, s := range found {
		r.config.Logger.Warn("messages wait that no consumer registered here takes", "consumer", s.ConsumerType, "payload_type", s.PayloadType)
	}
}

// listen passes on wake-ups: what is committed is claimed at once, what is
// expected is looked for a few times soon, and what others produced is looked for.
func (r *run) listen() (stop func()) {
	return r.registry.Wakeups().Listen(func(w bus.Wake) {
		switch {
		case w.Schedules, w.Events: // not for us
		case w.Remote:
			r.alarm.By(r.remote.next(time.Now()))
		case w.Expected:
			r.alarm.Expect(time.Now())
		default:
			r.dispatcher.activate(w.PayloadTypes...)
		}
	})
}
