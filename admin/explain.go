package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/names"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Explanation is the reason why a message does not run, or why the messages of a consumer do not.
// It holds no payload, headers or error texts except CircuitError: use [Client.Get] or
// poison.Store.Get for those.
type Explanation struct {
	Reason State `json:"reason"`
	// Text is a sentence to show, with names, times and counts. In [Queue].Stops it has no times and
	// may be empty.
	Text string `json:"text"`
	// Since is when the reason began, and Until when the next message may start. A time that is not
	// known is zero.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Message is the message as [Client.List] returns it. For a poisoned message its State is
	// empty. In [Queue].Stops it is the zero value.
	Message Message `json:"message,omitzero"`
	// PausedAt is when the consumer was paused, and zero if it is not paused.
	PausedAt time.Time `json:"paused_at,omitzero"`
	// PoisonedAt is when the message was poisoned, and zero if it is not poisoned.
	PoisonedAt time.Time `json:"poisoned_at,omitzero"`
	// CircuitError is the text of the error that tripped the consumer's circuit, in this process or,
	// according to its report, in another one. Of a circuit breaker it is the consumer's last reported
	// error. Text does not repeat it.
	CircuitError string `json:"circuit_error,omitempty"`
}

type explainer struct {
	client    *Client
	db        bun.IDB
	store     *store.Store
	row       store.Pending
	now       time.Time
	first     bool         // it is known to be the first of its key
	consumer  bus.Consumer // this process's; the zero value if only others consume it
	known     bool         // this process has that consumer
	others    *fleet       // once read
	elsewhere bool         // other processes consume it; this one cannot see their circuits, limits and rates
	e         Explanation
}

func newExplainer(client *Client, db bun.IDB, st *store.Store, row store.Pending) *explainer {
	x := &explainer{client: client, db: db, store: st, row: row, now: row.Now.Time}
	x.e = Explanation{Message: newMessage(row), PausedAt: row.PausedSince.Time}
	x.consumer, x.known = client.registry.Consumer(x.e.Message.Consumer)
	return x
}

// explain sets the first reason that applies: whether it is claimed, what stops its consumer, what
// stops its key, what stops the message, and at last what processes report.
func (x *explainer) explain(ctx context.Context) error {
	for _, explain := range []func(context.Context) error{
		x.explainClaim, x.explainConsumer, x.explainPause, x.explainBreaker, x.explainCircuit, x.explainKey, x.explainDelay, x.explainLimit,
		x.explainRate, x.explainShare, x.explainSuspect, x.explainDeadline, x.explainReady,
	} {
		if err := explain(ctx); err != nil {
			return err
		}
		if x.e.Reason != "" {
			break
		}
	}
	x.e.Message.Headers = nil
	return nil
}

// because sets the reason.
func (x *explainer) because(reason State, format string, args ...any) error {
	x.e.Reason, x.e.Text = reason, fmt.Sprintf(format, args...)
	return nil
}

// due formats when the message is or was due.
func (x *explainer) due() string {
	at := x.e.Message.AvailableAt
	if at.After(x.now) {
		return fmt.Sprintf("It is due at %s.", flow.Instant(at))
	}
	return fmt.Sprintf("It has been due since %s.", flow.Instant(at))
}

func (x *explainer) explainClaim(context.Context) error {
	switch c := x.e.Message.Claim; {
	case c == nil:
		return nil
	case c.Expired:
		return x.because(LeaseExpired, "Owner %s claimed it at %s and has not renewed its lease, which ended %s ago. A processor takes it back "+
			"once it has run for a third of its lease, and counts a crash.",
			c.Owner, flow.Instant(c.ClaimedAt), flow.Rounded(x.now.Sub(c.LeasedUntil)))
	default:
		return x.because(Leased, "Owner %s claimed it at %s%s, and holds it until %s unless it renews its lease. It runs there, or waits for a "+
			"worker.", c.Owner, flow.Instant(c.ClaimedAt), besides(c.Messages-1), flow.Instant(c.LeasedUntil))
	}
}

// explainConsumer checks whether this process or, according to their reports, another one consumes
// the message.
func (x *explainer) explainConsumer(ctx context.Context) error {
	m := x.e.Message
	if x.client.operates() || x.known && slices.Contains(access.PayloadTypes(x.consumer), m.PayloadType) {
		return nil
	}
	others, err := x.fleet(ctx)
	if err != nil {
		return err
	}
	x.elsewhere = len(others.takers) > 0
	if x.elsewhere {
		x.consumer, x.known = bus.Consumer{}, false
		return nil
	}
	if !x.known {
		_ = x.because(NoConsumer, "No consumer %q is registered here. It waits for a program that has one, by name or by alias.", m.Consumer)
	} else {
		_ = x.because(OtherPayload, "Consumer %q handles %q here, not %q. It waits for a program whose consumer handles that, by name or alias.",
			m.Consumer, access.PayloadTypes(x.consumer), m.PayloadType)
	}
	x.explainFleet(others)
	return nil
}

func (x *explainer) explainPause(ctx context.Context) error {
	if x.e.PausedAt.IsZero() {
		return nil
	}
	paused, err := x.store.Flow.PausedConsumers(ctx, x.db)
	if err != nil {
		return err
	}
	by := ""
	for _, p := range paused {
		if p.ConsumerType == x.e.Message.Consumer {
			by = flow.PausedBy(p.PausedBy, p.Note)
		}
	}
	if by != "" {
		by = ", " + by
	}
	x.e.Since = x.e.PausedAt
	return x.because(Paused, "Consumer %q has been paused since %s%s.", x.e.Message.Consumer, flow.Instant(x.e.PausedAt), by)
}

// explainBreaker checks whether the circuit breaker of the message's consumer is open in the
// database.
func (x *explainer) explainBreaker(ctx context.Context) error {
	open, err := x.client.openBreakers(ctx, x.db, x.store, names.Read)
	if b := open[x.e.Message.Consumer]; err == nil && b != nil {
		x.e.Since, x.e.Until = b.OpenedAt, b.NextProbeAt
		if x.e.CircuitError, err = lastError(ctx, x.db, x.store, x.e.Message.Consumer); err != nil {
			return err
		}
		return x.because(CircuitBreakerOpen, "%s Consumer %q: %s.", x.due(), x.e.Message.Consumer, b)
	}
	return err
}

// explainCircuit checks whether the consumer's circuit is open in this process, or in every process
// that consumes the message.
func (x *explainer) explainCircuit(ctx context.Context) error {
	name := x.e.Message.Consumer
	if circuit, _ := flow.CircuitOf(x.consumer.Name(), x.consumer.Config()); circuit != nil {
		if since, reason, open := circuit.Tripped(); open {
			x.e.CircuitError, x.e.Since = errorlog.Text(reason), since
			return x.because(CircuitOpen, "%s The circuit of consumer %q has been open in this process since %s. One message at a time probes "+
				"whether that is over.", x.due(), name, flow.Instant(since))
		}
	}
	others, err := x.fleet(ctx)
	if err != nil || len(others.takers) == 0 {
		return err
	}
	for _, p := range others.takers {
		consumer, _ := p.consumer(name)
		circuit, open := p.openCircuit(consumer.Name)
		if !open {
			x.e.CircuitError, x.e.Since = "", time.Time{}
			return nil
		}
		x.e.CircuitError = cmp.Or(circuit.Reason, x.e.CircuitError)
		if x.e.Since.IsZero() || circuit.Since.Before(x.e.Since) {
			x.e.Since = circuit.Since
		}
	}
	since := ""
	if !x.e.Since.IsZero() {
		since = " since " + flow.Instant(x.e.Since)
	}
	return x.because(CircuitOpen, "%s The circuit of consumer %q is open in every process that consumes it%s: %s.", x.due(), name, since,
		said(others.takers))
}

func (x *explainer) explainDelay(context.Context) error {
	m := x.e.Message
	if m.State != Delayed {
		return nil
	}
	wait, at := flow.Rounded(m.AvailableAt.Sub(x.now)), flow.Instant(m.AvailableAt)
	if m.Attempts > 0 {
		x.e.Until = m.AvailableAt
		return x.because(Delayed, "%d of its runs failed; it is due again in %s, at %s.", m.Attempts, wait, at)
	}
	x.e.Until = m.AvailableAt
	return x.because(Delayed, "It is due in %s, at %s.", wait, at)
}

// explainLimit checks whether the consumer's concurrency limit is reached.
func (x *explainer) explainLimit(ctx context.Context) error {
	name, limit := flow.LimitOf(x.consumer, x.consumer.Config())
	shown := cmp.Or(x.consumer.Config().SharedConcurrency, x.consumer.Name())
	if !x.known { // then another process reports it
		c, err := x.elsewhereAs(ctx)
		if err != nil {
			return err
		}
		name, limit, shown = c.limitName(), c.Limit, cmp.Or(c.LimitName, c.Name)
	}
	if limit == 0 {
		return nil
	}
	owners, err := x.store.Flow.SlotOwners(ctx, x.db, name)
	if err != nil {
		return err
	}
	taken := 0
	var by []string
	for _, o := range owners {
		taken, by = taken+o.Slots, append(by, fmt.Sprintf("%s (%d)", o.Owner, o.Slots))
	}
	if taken < limit {
		return nil
	}
	return x.because(Limited, "%s Its consumer is at the limit %q of %d, which is taken by owner %s. It runs when one of them has a worker "+
		"for it, or gives up its place.",
		x.due(), shown, limit, strings.Join(by, ", "))
}

// explainRate checks whether the rate limit of the consumer or of the key is used up.
func (x *explainer) explainRate(ctx context.Context) error {
	rate := flow.RateOf(x.consumer)
	if !x.known { // then another process reports it
		c, err := x.elsewhereAs(ctx)
		if err != nil {
			return err
		}
		if c.Rate > 0 {
			reported := c.rate()
			rate = &reported
		}
	}
	for _, of := range []struct {
		who  string
		rate *store.Rate
		lane int64
	}{{"Its consumer", rate, 0}, {"Its key", flow.KeyRateOf(x.consumer), store.Lane(x.e.Message.OrderingKey)}} {
		rate := of.rate
		if rate == nil {
			continue
		}
		wait, err := x.store.Flow.RateWait(ctx, x.db, *rate, of.lane)
		if err != nil {
			return err
		}
		if wait > 0 {
			x.e.Until = x.now.Add(wait)
			return x.because(RateLimited, "%s %s starts %d in %s, in all processes together, and that is used up: the next may start in %s.",
				x.due(), of.who, rate.N, rate.Per, flow.Rounded(wait))
		}
	}
	return nil
}

func (x *explainer) explainSuspect(context.Context) error {
	switch crashes := x.e.Message.Crashes; crashes {
	case 0:
		return nil
	case 1:
		return x.because(Suspect, "%s Its last process was lost while it held the message, so a process runs at most %d like it at a time, and "+
			"more and more while they survive.", x.due(), flow.FewSuspects)
	default:
		return x.because(Suspect, "%s Its last %d processes were lost while they held the message, so it runs alone among suspects, or beside "+
			"others like it once many have survived that, in a process that has lived for a while and has seen no other lost.", x.due(), crashes)
	}
}

func (x *explainer) explainDeadline(context.Context) error {
	by, late, ok := flow.Deadline(x.e.Message.Headers)
	if !ok || !x.now.After(by) {
		return nil
	}
	return x.because(Expired, "It was to start by %s, %s ago. The process that claims it has it %s.",
		flow.Instant(by), flow.Rounded(x.now.Sub(by)), late)
}

// explainReady explains a message that nothing blocks by what processes report.
func (x *explainer) explainReady(ctx context.Context) error {
	others, err := x.fleet(ctx)
	if err != nil {
		return err
	}
	_ = x.because(Ready, "It has been due since %s and waits for a processor with room for consumer %q. If it stays, see whether "+
		"processors run, and what they are at.", flow.Instant(x.e.Message.AvailableAt), x.e.Message.Consumer)
	x.explainFleet(others)
	return nil
}

func explainPoisoned(row store.Poisoned) Explanation {
	m := newMessage(store.Pending{Message: row.Message})
	m.State, m.Payload, m.Headers, m.Errors = "", nil, nil, nil
	why := fmt.Sprintf("after %s and %s", counted(m.Attempts, "failed run", "s"), counted(m.Crashes, "crash", "es"))
	if row.Reason == flow.DeadlinePassed {
		why = "because its deadline had passed"
	}
	return Explanation{Reason: Poisoned, Message: m, PoisonedAt: row.PoisonedAt.Time,
		Since: row.PoisonedAt.Time,
		Text:  fmt.Sprintf("It was poisoned at %s, %s. It waits until it is requeued or discarded.", flow.Instant(row.PoisonedAt.Time), why)}
}

// besides describes the other messages of a claim.
func besides(others int) string {
	switch {
	case others <= 0:
		return ""
	case others == 1:
		return ", together with 1 other that is not done yet"
	}
	return fmt.Sprintf(", together with %d others that are not done yet", others)
}

// counted formats a count with its noun, which gets the plural ending unless n is 1.
func counted(n int, name, plural string) string {
	if n == 1 {
		plural = ""
	}
	return fmt.Sprint(n, " ", name, plural)
}
