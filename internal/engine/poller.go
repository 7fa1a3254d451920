package engine

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/alarm"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// pollFloor is the least pause between polls for messages that become due.
const pollFloor = 5 * time.Millisecond

// poller looks for work for all fetchers of the process: every PollInterval, and sooner when
// something is known to become due.
type poller struct {
	store       *store.Store
	db          *bun.DB
	config      *ProcessorConfig
	outage      *outage.Outage
	alarm       *alarm.Alarm
	pollQueries *pollQueries
	pollState   *pollState
	sweeper     sweeper
	recoverer   *recoverer
	renewer     *renewer
	stopper     *stopper
	warnings    *warnings

	// Used by the loop only.
	retry            backoff.BackOff
	nextFrom         time.Time // before this, no look asks for the next due time
	unpreparedLogged bool
}

// loop polls until ctx ends.
func (p *poller) loop(ctx context.Context) {
	defer p.sweeper.wg.Wait()
	p.alarm.Loop(ctx, p.config.PollInterval, func() {
		began, pause := time.Now(), pollFloor
		// A look that failed, or saw the end of an outage, waited rather than worked and has its
		// own pace.
		if ok := p.poll(ctx); ok && !p.outage.Ended().After(began) {
			pause = pauseAfter(began, p.config.PollInterval)
		}
		outage.Pause(ctx, pause)
	})
}

// pauseAfter returns the pause after a look that began then. Looks take at most a tenth of the
// time, but the pause is at most PollInterval.
func pauseAfter(began time.Time, interval time.Duration) time.Duration {
	return max(pollFloor, min(10*time.Since(began), interval))
}

// poll looks for everything there may be to do and sets the alarm for the next look. It returns
// false if it failed.
func (p *poller) poll(ctx context.Context) (ok bool) {
	p.warnings.flush(time.Second) // the keeper of an idle process rests longer
	// Armed before the look, so that an alarm during it is not missed.
	p.alarm.Rearm(time.Now(), time.Now().Add(jitter(p.config.PollInterval)))
	poll, err := p.lookAll(ctx)
	now := time.Now()
	if err == nil {
		err = p.endOutage(ctx)
	}
	if err != nil {
		p.alarm.Rearm(now, time.Now().Add(p.retry.NextBackOff()))
		if p.outage.Err() == nil {
			p.act(ctx, poll, now)
		}
		return false
	}
	p.retry.Reset()
	if p.store.Unprepared() && !p.unpreparedLogged {
		p.unpreparedLogged = true
		p.config.Logger.Info("a connection lost its prepared statements, statements are now sent as text: " +
			"a connection pooler or DISCARD ALL is the usual cause")
	}
	p.act(ctx, poll, now)
	if poll.Next > 0 {
		p.alarm.By(now.Add(max(poll.Next, pollFloor)))
	}
	if len(poll.Killers) > 0 {
		p.alarm.By(p.pollState.nextSoloCheck(now))
	}
	if poll.Lease > 0 {
		p.alarm.By(now.Add(poll.Lease + pollFloor))
	}
	return true
}

// act handles stop requests and expired claims. The part of a failed poll that was answered counts.
func (p *poller) act(ctx context.Context, poll store.Poll, now time.Time) {
	if p.stopper.look(ctx) {
		p.alarm.By(now.Add(stopInterval))
	}
	if poll.Expired && p.recoverer.mayRecover() {
		p.recoverer.recoverClaims(ctx)
	} else if grace := p.recoverer.graceEnds(); poll.Expired && now.Before(grace) {
		p.alarm.By(grace)
	}
}

// jitter spreads a delay by ±20 %, so that processes do not poll in step.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// endOutage ends an outage once the database accepts writes again: a read-only one answers polls,
// too. The process first renews what it holds, before others recover it. What the poll has found
// does not wait for that.
func (p *poller) endOutage(ctx context.Context) error {
	if p.outage.Err() == nil {
		return nil
	}
	_, err := ask(ctx, p.outage, "extend", statementTimeout, func(ctx context.Context) ([]int64, error) { return p.renewer.renew(ctx, p.db) })
	if err == nil {
		p.outage.Recovered()
	}
	return err
}
