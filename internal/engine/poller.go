package engine

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

const (
	pollFloor         = 5 * time.Millisecond // between polls for messages that become due
	unregisteredEvery = time.Minute
	startGrace        = 2 * time.Second // no claims are recovered for this long after the start, or a third of a lease
)

// poller looks for work for all fetchers of the process, until ctx ends: every PollInterval, and
// sooner when something is known to become due.
func (r *run) poller(ctx context.Context) {
	defer r.sweeper.wg.Wait()
	r.alarm.Loop(ctx, r.config.PollInterval, func() {
		began, pause := time.Now(), pollFloor
		// A look that failed, or saw the end of an outage, waited rather than worked and has its
		// own pace.
		if ok := r.poll(ctx); ok && !r.outage.Ended().After(began) {
			pause = r.rest(began)
		}
		outage.Pause(ctx, pause)
	})
}

// rest returns the pause after a look that began then. Looks take at most a tenth of the time, but
// the pause is at most PollInterval.
func (r *run) rest(began time.Time) time.Duration {
	return max(pollFloor, min(10*time.Since(began), r.config.PollInterval))
}

// expecting looks for messages that this process produced and whose commit is not announced: a few
// times soon, and only for their consumers. When another process has reported a commit, it looks
// for messages of all consumers.
func (r *run) expecting(ctx context.Context) {
	r.soon.Loop(ctx, time.Hour, func() {
		began, woken := time.Now(), r.wakePacer.take()
		asked, news := r.lookForExpected(ctx, began, woken)
		if wants := r.dispatcher.probes.expected(began, woken); len(wants) > 0 {
			asked = true
			probe, err := ask(ctx, r, "poll", statementTimeout, func(ctx context.Context) (store.Probe, error) { return r.store.ProbeDue(ctx, r.db, wants) })
			news = err == nil && r.dispatcher.probes.appeared(wants, probe) || news
		}
		pause := r.rest(began)
		if woken {
			took := time.Since(began)
			if at, again := r.wakePacer.after(time.Now(), took, asked, news, r.counters.claimed.Load()); again {
				r.soon.By(at)
			}
			pause = min(pause, took) // wakePacer has its own pace
		}
		outage.Pause(ctx, pause)
	})
}

// poll looks for everything there may be to do and sets the alarm for the next look. It returns
// false if it failed.
func (r *run) poll(ctx context.Context) (ok bool) {
	r.report(time.Second) // the keeper of an idle process rests longer
	// Armed before the look, so that an alarm during it is not missed.
	r.alarm.Rearm(time.Now(), time.Now().Add(jitter(r.config.PollInterval)))
	probe, err := r.lookAll(ctx)
	now := time.Now()
	if err == nil {
		err = r.comeBack(ctx)
	}
	if err != nil {
		r.alarm.Rearm(now, time.Now().Add(r.pollRetry.NextBackOff()))
		return false
	}
	r.pollRetry.Reset()
	if r.store.Unprepared() && !r.toldUnprepared {
		r.toldUnprepared = true
		r.config.Logger.Info("statements are sent as text: a connection lost those that were prepared, as behind a connection pooler or after DISCARD ALL")
	}
	if r.lookForStops(ctx) {
		r.alarm.By(now.Add(stopInterval))
	}
	if probe.Expired && r.mayRecover() {
		r.recoverClaims(ctx)
	} else if grace := r.graceEnds(); probe.Expired && now.Before(grace) {
		r.alarm.By(grace)
	}
	if probe.Next > 0 {
		r.alarm.By(now.Add(max(probe.Next, pollFloor)))
	}
	if len(probe.Killers) > 0 {
		r.alarm.By(r.dispatcher.probes.nextVerdict(now))
	}
	if probe.Lease > 0 {
		r.alarm.By(now.Add(probe.Lease + pollFloor))
	}
	return true
}

// mayRecover reports whether the owners of expired claims could have renewed them. They could not
// right after an outage, or after the start, which may be the end of one.
func (r *run) mayRecover() bool {
	return r.outage.Stable() && !time.Now().Before(r.graceEnds())
}

func (r *run) graceEnds() time.Time { return r.started.Add(max(r.config.LeaseDuration/3, startGrace)) }

// jitter spreads a delay by ±20 %, so that processes do not poll in step.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// ask runs a statement of the poller and reports an error to the outage. It does not if ctx has
// ended, or if patience was short: the caller then has another way.
func ask[T any](ctx context.Context, r *run, what string, patience time.Duration, statement func(context.Context) (T, error)) (T, error) {
	inTime, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := statement(inTime)
	if hasty := patience < statementTimeout && inTime.Err() != nil; err != nil && ctx.Err() == nil && !hasty {
		r.outage.Failed(what, err)
	}
	return answer, err
}

// comeBack ends an outage once the database accepts writes again: a read-only one answers polls,
// too. The process first renews what it holds, before others recover it. What the poll has found
// does not wait for that.
func (r *run) comeBack(ctx context.Context) error {
	if r.outage.Err() == nil {
		return nil
	}
	_, err := ask(ctx, r, "extend", statementTimeout, func(ctx context.Context) ([]int64, error) { return r.renew(ctx, r.db) })
	if err == nil {
		r.outage.Recovered()
	}
	return err
}

// recoverClaims ends claims that have outlived their lease. Every process does so when it finds
// one; there is no leader.
func (r *run) recoverClaims(ctx context.Context) {
	found, err := ask(ctx, r, "recover", statementTimeout, func(ctx context.Context) (store.Recovered, error) { return r.store.Recover(ctx, r.db, maxCrashes) })
	if err != nil || found.Claims == 0 {
		return
	}
	if found.Poisoned > 0 {
		r.reportKillers(ctx, found.Poisoned)
	} else {
		r.recovered.add(found.Claims, found.Crashed)
	}
	r.counters.recovered.Add(int64(found.Claims))
	r.counters.crashed.Add(int64(found.Crashed))
	r.counters.crashPoisoned.Add(int64(found.Poisoned))
	r.alarm.By(time.Now()) // there may be more, and recovered messages are due
}

// reportKillers logs the n messages last poisoned because processes were lost while running them.
func (r *run) reportKillers(ctx context.Context, n int) {
	killers := store.PoisonFilter{Error: store.CrashReason(maxCrashes)}
	found, _ := ask(ctx, r, "look for what was poisoned", statementTimeout, func(ctx context.Context) ([]store.Poisoned, error) {
		return r.store.PoisonedMessages(ctx, r.db, killers, n)
	})
	for _, m := range found {
		r.config.Logger.Error("message poisoned", "consumer", m.ConsumerType, "payload_type", m.PayloadType, "message_id", m.MessageID, "reason", killers.Error)
	}
}

// unregistered looks for messages whose consumer or payload type is not registered here. It is
// separate from the polls because it may be slow.
func (r *run) unregistered(ctx context.Context) {
	for wait := unregisteredEvery / 30; outage.Pause(ctx, wait); wait = unregisteredEvery {
		if r.outage.Err() == nil {
			r.reportUnregistered(ctx)
		}
	}
}

// reportUnregistered warns once of each kind. The messages stay in place: another program may
// consume them.
func (r *run) reportUnregistered(ctx context.Context) {
	found, _ := ask(ctx, r, "look for unregistered messages", statementTimeout, func(ctx context.Context) ([]store.Unhandled, error) {
		return r.store.Unhandled(ctx, r.db, r.dispatcher.catalog.wants)
	})
	for _, s := range found {
		r.warnOf(s)
	}
	names, _ := ask(ctx, r, "look for messages with keys", statementTimeout, func(ctx context.Context) ([]string, error) { return r.store.KeyedConsumers(ctx, r.db) })
	for _, name := range r.dispatcher.catalog.adopt(names) {
		r.warnOf(store.Unhandled{ConsumerType: name, PayloadType: "any with a key"})
	}
}

func (r *run) warnOf(s store.Unhandled) {
	if _, before := r.warned.LoadOrStore(s, true); !before && !r.declared(s) {
		r.config.Logger.Warn("messages wait that no consumer registered here takes", "consumer", s.ConsumerType, "payload_type", s.PayloadType)
	}
}

// declared reports whether this program knows that another one runs the consumer.
func (r *run) declared(s store.Unhandled) bool {
	return slices.ContainsFunc(r.registry.ConsumersOf(s.PayloadType), func(c bus.Consumer) bool { return slices.Contains(c.Names(), s.ConsumerType) })
}

// listen handles wake-ups. Committed messages are claimed at once, expected ones are looked for a
// few times soon, and other processes' messages are looked for.
func (r *run) listen() (stop func()) {
	return r.registry.Wakeups().Listen(func(w wakeup.Wake) {
		switch {
		case w.Schedules, w.Events: // not for us
		case w.Remote:
			now := time.Now()
			if at, ok := r.wakePacer.next(now); ok {
				r.soon.By(at)
			}
			r.alarm.By(now.Add(remoteMax)) // there may be something that becomes due soon
		case w.Expected:
			now := time.Now()
			r.dispatcher.expect(now, w.PayloadTypes)
			r.soon.Expect(now)
		default:
			r.dispatcher.activate(w.PayloadTypes...)
		}
	})
}
