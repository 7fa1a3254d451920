package logpoll

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

const statementTimeout = 5 * time.Second

// Config is what a [Poller] reads. All fields are required.
type Config struct {
	DB       *bun.DB
	Registry *bus.Registry // wake-ups of its database end the wait for the next poll
	Store    *store.Store
	Outage   *outage.Outage
	Assign   func(ctx context.Context, db *bun.DB) (int, error) // positions to events without one
}

// Poller polls the log for one Run. Only [Poller.By] is safe for concurrent use.
type Poller struct {
	Config
	alarm *alarm.Alarm
}

// New makes a poller.
func New(c Config) *Poller {
	return &Poller{Config: c, alarm: alarm.New(2*time.Millisecond, 10*time.Millisecond, 50*time.Millisecond)}
}

// By has the next poll begin at t at the latest.
func (p *Poller) By(t time.Time) { p.alarm.By(t) }

// Run calls poll until ctx ends: after each wake-up, at the latest after an interval, and more
// rarely while poll fails.
func (p *Poller) Run(ctx context.Context, interval time.Duration, poll func() error) {
	defer access.Wakeups(p.Registry).Listen(func(w wakeup.Wake) {
		if w.Events {
			p.alarm.Ring(w.Expected)
		}
	})()
	retry := outage.NewRetry()
	p.alarm.Loop(ctx, interval, func() {
		err := poll()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			p.Outage.Failed("look for events", err)
			now := time.Now()
			p.alarm.Rearm(now, now.Add(retry.NextBackOff()))
		default:
			p.Outage.Recovered()
			retry.Reset()
		}
	})
}

// Behind assigns positions to new events and returns the shards of the named readers that have
// events to read. If positions cannot be assigned, it returns the error and the shards that have
// events with positions. If there is nothing to do, it is one statement.
func (p *Poller) Behind(ctx context.Context, names []string) ([]store.Subscription, error) {
	rows, pending, err := p.behind(ctx, names)
	if err == nil && pending {
		if err = p.assign(ctx); err == nil {
			rows, _, err = p.behind(ctx, names)
		}
	}
	return rows, err
}

func (p *Poller) behind(ctx context.Context, names []string) ([]store.Subscription, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return p.Store.Readers.Behind(ctx, p.DB, names)
}

// assign assigns positions within a statement timeout. If more events have none, here or in another
// process, the next poll follows at once. The next statement shows whether the database still
// answers.
func (p *Poller) assign(ctx context.Context) error {
	turn, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	_, err := p.Assign(turn, p.DB)
	if turn.Err() != nil && ctx.Err() == nil {
		p.By(time.Now())
		return nil
	}
	return err
}
