package schedule

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/alarm"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

// loop polls for due schedules until ctx ends.
func (p *Processor) loop(ctx context.Context) {
	looks := alarm.New(100*time.Millisecond, 300*time.Millisecond, time.Second, 3*time.Second)
	defer access.Wakeups(p.registry).Listen(func(w wakeup.Wake) {
		if w.Schedules {
			looks.Ring(w.Expected)
		}
	})()
	retry, locked := outage.NewRetry(), outage.NewRetry()
	looks.Loop(ctx, p.config.PollInterval, func() {
		wait, err := p.look(ctx, locked)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			p.outage.Failed("fire schedules", err)
			outage.Pause(ctx, retry.NextBackOff()) // wake-ups do not shorten this wait
			wait = 0
		default:
			p.outage.Recovered()
			retry.Reset()
		}
		looks.By(time.Now().Add(wait))
	})
}

// look fires all due schedules and returns the time until the next one is due. An idle poll is one
// statement outside of a transaction.
func (p *Processor) look(ctx context.Context, locked backoff.BackOff) (time.Duration, error) {
	payloadTypes := access.AllPayloadTypes(p.registry)
	if err := p.reportUnregistered(ctx, payloadTypes); err != nil {
		return 0, err
	}
	n, wait, err := p.fireDue(ctx, payloadTypes)
	if n > 0 {
		locked.Reset()
	}
	if wait == 0 && err == nil {
		wait = locked.NextBackOff()
	}
	return min(wait, p.config.PollInterval), err
}

// fireDue fires all due schedules. It returns their number and the time until the next one is due.
// The time is 0 when another instance is firing a due schedule, or a transaction is changing it.
func (p *Processor) fireDue(ctx context.Context, payloadTypes []string) (total int, wait time.Duration, err error) {
	for len(payloadTypes) > 0 {
		wait, ok, err := p.next(ctx, payloadTypes)
		switch {
		case err != nil:
			return total, 0, err
		case !ok:
			return total, p.config.PollInterval, nil
		case wait > 0:
			return total, wait, nil
		}
		n, err := p.fire(ctx, payloadTypes)
		if total += n; err != nil || n == 0 {
			return total, 0, err
		}
	}
	return 0, p.config.PollInterval, nil
}

// next returns the time until a schedule is due; false means that there is none.
func (p *Processor) next(ctx context.Context, payloadTypes []string) (time.Duration, bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fireTimeout, errTooSlow)
	defer cancel()
	now := time.Now()
	aside, at := p.aside.waiting(now)
	wait, ok, err := p.store.Schedules.Next(ctx, p.db, payloadTypes, store.ScheduleFilter{Except: aside, Tried: p.tried.ids(now)})
	if err == nil && !at.IsZero() && (!ok || at.Sub(now) < wait) {
		return max(at.Sub(now), 1), true, nil
	}
	return wait, ok, err
}

const (
	unregisteredEvery   = time.Minute // between polls for unhandled schedules
	unregisteredOverdue = time.Minute // grace period in which another program may still fire it
)

// reportUnregistered warns of unhandled schedules: no running program has a consumer for their
// payload. Usually the consumer was removed and the schedule was not.
func (p *Processor) reportUnregistered(ctx context.Context, payloadTypes []string) error {
	now, last := time.Now().UnixNano(), p.reported.Load()
	if last != 0 && now-last < int64(unregisteredEvery) || !p.reported.CompareAndSwap(last, now) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, fireTimeout)
	defer cancel()
	rows, err := p.store.Schedules.Unregistered(ctx, p.db, payloadTypes, unregisteredOverdue)
	for _, row := range rows {
		p.config.Logger.Warn("due schedule has no registered consumer",
			"schedule", row.ID, "name", row.Name, "tag", row.Tag, "payload_type", row.PayloadType, "due", row.AvailableAfter.Time)
	}
	return err
}
