package engine

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/alarm"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

// listener reacts to wake-ups.
type listener struct {
	store       *store.Store
	db          *bun.DB
	registry    *bus.Registry
	config      *ProcessorConfig
	counters    *counters
	dispatcher  *dispatcher
	pollQueries *pollQueries
	outage      *outage.Outage
	alarm       *alarm.Alarm // of the poller
	soon        *alarm.Alarm // of looks for expected messages
	groups      *groupSweeper
	pacer       wakePacer
}

// listen handles wake-ups. Committed messages are claimed at once, expected ones are looked for a
// few times soon, and other processes' messages are looked for.
func (ln *listener) listen() (stop func()) {
	return access.Wakeups(ln.registry).Listen(func(w wakeup.Wake) {
		switch {
		case w.Schedules, w.Events: // not for us
		case len(w.Groups) > 0 && w.Expected:
			ln.groups.expect(w.Groups)
		case len(w.Groups) > 0:
			ln.groups.hint(w.Groups...)
		case w.Remote:
			now := time.Now()
			if at, ok := ln.pacer.next(now); ok {
				ln.soon.By(at)
			}
			ln.alarm.By(now.Add(remoteMax)) // there may be something that becomes due soon
		case w.Expected:
			now := time.Now()
			ln.dispatcher.expect(now, w.PayloadTypes)
			ln.soon.Expect(now)
		default:
			ln.dispatcher.activate(w.PayloadTypes...)
		}
	})
}

// loop looks for messages that this process produced and whose commit is not announced: a few
// times soon, and only for their consumers. When another process has reported a commit, it looks
// for messages of all consumers.
func (ln *listener) loop(ctx context.Context) {
	ln.soon.Loop(ctx, time.Hour, func() {
		began, woken := time.Now(), ln.pacer.take()
		asked, news := ln.lookForExpected(ctx, began, woken)
		if wants := ln.dispatcher.pollState.expected(began, woken); len(wants) > 0 {
			asked = true
			poll, err := ask(ctx, ln.outage, "poll", statementTimeout,
				func(ctx context.Context) (store.Poll, error) { return ln.store.Claims.PollDue(ctx, ln.db, wants) })
			news = err == nil && ln.dispatcher.pollState.appeared(wants, poll) || news
		}
		pause := pauseAfter(began, ln.config.PollInterval)
		if woken {
			took := time.Since(began)
			if at, again := ln.pacer.after(time.Now(), took, asked, news, ln.counters.claimed.Load()); again {
				ln.soon.By(at)
			}
			pause = min(pause, took) // wakePacer has its own pace
		}
		outage.Pause(ctx, pause)
	})
}

// lookForExpected looks for keyed messages that are about to be committed, for all consumers if all
// is set. asked reports whether there was anything to look for, news whether idle consumers got
// work.
func (ln *listener) lookForExpected(ctx context.Context, now time.Time, all bool) (asked, news bool) {
	looks, of := ln.dispatcher.pollState.laneLooks(now, false, func(l *lanes) bool { return all || now.Before(l.of.expected) })
	if len(looks) == 0 {
		return false, false
	}
	_, _ = ask(ctx, ln.outage, "poll", statementTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, ln.pollQueries.inParts(ctx, looks, func(from, _ int, states []store.LaneState) {
			news = ln.dispatcher.pollState.lanesAppeared(of[from:], states) || news
		}, false)
	})
	return true, news
}
