package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// The pairs run with these. Whatever is due and may run starts within a lease and a poll.
const (
	pairLease  = 3 * time.Second
	pairPoll   = time.Second / 2
	pairTakes  = 400 * time.Millisecond // each call, while the backlog lasts
	pairAway   = 2 * time.Second        // for so long what the consumer needs is away
	pairOpens  = 9 * time.Second        // at the latest its circuit is closed again
	pairSolo   = 8 * time.Second        // a process waits for so long with what crashed twice
	pairMargin = 2 * time.Second
)

// trait is one of the options that are paired.
type trait struct {
	name    string
	options func(*paired) []bus.ConsumerOption
	keys    bool // messages have keys
	late    bool // half of the backlog has a deadline that is over soon
	circuit bool
	batch   bool
	tx      bool
	// excludes lists traits that NewRegistry or NewProcessor refuses beside this one.
	excludes []string
}

func constant(options ...bus.ConsumerOption) func(*paired) []bus.ConsumerOption {
	return func(*paired) []bus.ConsumerOption { return options }
}

func traits() []trait {
	return []trait{
		{name: "plain", options: constant()},
		{name: "concurrency", options: constant(bus.Concurrency(1))},
		{name: "limit", options: constant(bus.GlobalConcurrency(1)), excludes: []string{"shared", "shared one"}},
		{name: "shared", options: constant(bus.SharedConcurrency("s", 2)), excludes: []string{"limit", "shared one"}},
		{name: "shared one", options: constant(bus.SharedConcurrency("s", 1)), excludes: []string{"limit", "shared"}},
		{name: "circuit", options: func(p *paired) []bus.ConsumerOption { return []bus.ConsumerOption{outbox.WithCircuit(&p.circuit)} },
			circuit: true, excludes: []string{"breaker"}},
		{name: "breaker", options: constant(bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 2, Cooldown: time.Second}),
			bus.AttemptDelay(time.Second), bus.MaxAttempts(100)), circuit: true, excludes: []string{"circuit"}},
		{name: "rate", options: constant(bus.RateLimit(40, time.Second, 5))},
		{name: "key rate", options: constant(bus.KeyRateLimit(20, time.Second, 2)), keys: true, excludes: []string{"ordered", "priorities"}},
		{name: "ordered", options: constant(bus.Ordered(bus.BlockKey)), keys: true,
			excludes: []string{"key rate", "per key", "fair", "priorities"}},
		{name: "per key", options: constant(bus.KeyConcurrency(1)), keys: true, excludes: []string{"ordered", "fair", "priorities"}},
		{name: "fair", options: constant(bus.Fair()), keys: true, excludes: []string{"ordered", "per key", "priorities"}},
		{name: "priorities", options: constant(bus.Prioritized(time.Minute)), excludes: []string{"ordered"}},
		{name: "deadline", options: constant(), late: true},
		{name: "batch", options: constant(), batch: true, excludes: []string{"tx"}},
		{name: "tx", options: constant(outbox.GroupCommit(5), bus.Timeout(5*time.Second)), tx: true, excludes: []string{"batch"}},
	}
}

// paired is a consumer with two traits, and what it has seen.
type paired struct {
	traits  []trait
	circuit outbox.Circuit
	begun   time.Time

	mu     sync.Mutex
	starts map[string]time.Duration // since begun, by message
	other  []time.Duration          // of the neighbour's
}

func (p *paired) has(name string) bool {
	return slices.ContainsFunc(p.traits, func(t trait) bool { return t.name == name })
}

// window is for how long calls last: longer than judge waits for what has crashed behind the backlog.
func (p *paired) window() time.Duration { return p.bound() + pairSolo + pairMargin }

// bound is how long what is due and may run waits at most.
func (p *paired) bound() time.Duration {
	bound := pairLease + pairPoll + pairMargin
	if p.any(func(t trait) bool { return t.circuit }) {
		bound += pairOpens
	}
	return bound
}

func (p *paired) any(is func(trait) bool) bool { return slices.ContainsFunc(p.traits, is) }

// call is one of the consumer's function.
func (p *paired) call(orders []order) error {
	since := time.Since(p.begun)
	p.mu.Lock()
	for _, o := range orders {
		if _, again := p.starts[o.ID]; !again {
			p.starts[o.ID] = since
		}
	}
	p.mu.Unlock()
	if p.any(func(t trait) bool { return t.circuit }) && since < pairAway {
		if p.has("circuit") {
			return p.circuit.Trip(errAway)
		}
		return errAway
	}
	if since < p.window() && !p.has("tx") { // SQLite has one transaction at a time
		<-time.After(pairTakes)
	}
	return nil
}

func (p *paired) consumers() []bus.Consumer {
	var options []bus.ConsumerOption
	for _, t := range p.traits {
		options = append(options, t.options(p)...)
	}
	one := func(_ context.Context, o order) error { return p.call([]order{o}) }
	var c bus.Consumer
	switch {
	case p.has("batch"):
		c = bus.ConsumeBatch("c", func(_ context.Context, orders []order) error { return p.call(orders) }, append(options, bus.BatchSize(3))...)
	case p.has("tx"):
		c = outbox.ConsumeTx("c", func(ctx context.Context, _ bun.Tx, o order) error { return one(ctx, o) }, options...)
	default:
		c = bus.Consume("c", one, options...)
	}
	var limit []bus.ConsumerOption
	if p.has("shared") {
		limit = append(limit, bus.SharedConcurrency("s", 2))
	}
	if p.has("shared one") { // both are in one process
		limit = append(limit, bus.SharedConcurrency("s", 1))
	}
	neighbour := bus.Consume("neighbour", func(context.Context, refund) error {
		p.mu.Lock()
		p.other = append(p.other, time.Since(p.begun))
		p.mu.Unlock()
		if time.Since(p.begun) < p.window() {
			<-time.After(pairTakes)
		}
		return nil
	}, limit...)
	return []bus.Consumer{c, neighbour, bus.Consume("idle", func(context.Context, step) error { return nil })}
}

// produce writes a backlog of both consumers, and what has crashed behind it.
func (p *paired) produce(ctx context.Context, a *app) {
	var items []outbox.Item
	add := func(id, key string, late bool) {
		item := outbox.Item{Payload: order{ID: id}}
		if p.any(func(t trait) bool { return t.keys }) {
			item.Options = append(item.Options, outbox.OrderingKey(key))
		}
		if late {
			item.Options = append(item.Options, outbox.DeliverBy(time.Now().Add(time.Second), bus.Discarded))
		}
		items = append(items, item)
	}
	for i := range 150 {
		add(fmt.Sprint("clean-", i), fmt.Sprint("k", i%10), i%2 == 0 && p.any(func(t trait) bool { return t.late }))
		items = append(items, outbox.Item{Payload: refund{ID: fmt.Sprint(i)}})
	}
	for i := range 3 {
		key := fmt.Sprint("k", i) // of the backlog
		if p.has("ordered") {
			key = fmt.Sprint("o", i)
		}
		add(fmt.Sprint("once-", i), key, false)
	}
	add("twice", "t", false)
	testapp.OK(a, testapp.Second(a.Producer.ProduceMany(ctx, a.DB, items...)))
	a.Exec("UPDATE consumer_messages SET crashes = crashes + 1 WHERE payload LIKE '%once-%'")
	a.Exec("UPDATE consumer_messages SET crashes = crashes + 2 WHERE payload LIKE '%twice%'")
}

// start starts two processes that have all consumers, or where a limit is shared one for each of those that share it.
func (p *paired) start(ctx context.Context, a *app, config outbox.ProcessorConfig) (first, second *testapp.Running) {
	only := func(consumers ...bus.Consumer) *testapp.Running {
		part := *a
		part.Registry = testapp.Must[*bus.Registry](a.T)(bus.NewRegistry(consumers...))
		return part.StartWith(ctx, config)
	}
	if all := p.consumers(); p.has("shared") {
		return only(all[0], all[2]), only(all[1], all[2])
	}
	return a.StartWith(ctx, config), a.StartWith(ctx, config)
}

// judge compares what has started with what must have.
func (p *paired) judge(t *testing.T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	bound := p.bound()
	for id, most := range map[string]time.Duration{"once-0": bound, "once-1": bound, "once-2": bound, "twice": bound + pairSolo} {
		if at, ok := p.starts[id]; !ok || at > most {
			t.Errorf("%s: started %t, after %s, want it within %s", id, ok, at, most)
		}
	}
	last := time.Duration(0)
	for _, at := range p.other {
		if last < p.window() && at-last > pairLease+pairPoll+pairMargin {
			t.Errorf("the neighbour: nothing started between %s and %s", last, at)
		}
		last = at
	}
}

// TestDueMessagesStartSoon: with each pair of options, two processes, a backlog of the consumer and of another one,
// and messages that have crashed behind it.
// Promise: due-starts
func TestDueMessagesStartSoon(t *testing.T) {
	all := traits()
	for i, one := range all {
		for _, other := range all[i+1:] { // beside "plain", each is alone
			if slices.Contains(one.excludes, other.name) {
				continue
			}
			t.Run(strings.ReplaceAll(one.name+"+"+other.name, " ", "-"), func(t *testing.T) {
				testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
					p := &paired{traits: []trait{one, other}, starts: make(map[string]time.Duration)}
					a := newApp(p.consumers()...)
					p.produce(ctx, a)
					p.begun = time.Now()
					config := outbox.ProcessorConfig{LeaseDuration: pairLease, PollInterval: pairPoll, Concurrency: 4}
					first, second := p.start(ctx, a, config)
					testapp.Sooner(t, "everything is done", a.Empty)
					if took := time.Since(p.begun); took > p.window()+time.Minute {
						t.Errorf("everything was done after %s, want it within %s", took, p.window()+time.Minute)
					}
					first.MustStop()
					second.MustStop()
					p.judge(t)
				})
			})
		}
	}
}
