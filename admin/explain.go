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
		return fmt.Sprintf("Due at %s.", flow.Instant(at))
	}
	return fmt.Sprintf("Due since %s.", flow.Instant(at))
}

func (x *explainer) explainClaim(context.Context) error {
	switch c := x.e.Message.Claim; {
	case c == nil:
		return nil
	case c.Expired:
		return x.because(LeaseExpired, "Owner %s claimed the message at %s. Its lease ended %s ago. A processor that has run for a third of "+
			"its own lease takes the message back and counts a crash.",
			c.Owner, flow.Instant(c.ClaimedAt), flow.Rounded(x.now.Sub(c.LeasedUntil)))
	default:
		return x.because(Leased, "Owner %s claimed the message at %s%s. The lease ends at %s unless renewed. The message runs there or waits "+
			"for a worker.", c.Owner, flow.Instant(c.ClaimedAt), besides(c.Messages-1), flow.Instant(c.LeasedUntil))
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
		_ = x.because(NoConsumer, "No consumer %q is registered here. The message waits for a program with it, by name or alias.", m.Consumer)
	} else {
		_ = x.because(OtherPayload, "Consumer %q handles %q here, not %q. The message waits for a program whose consumer does, by name or alias.",
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
				"the circuit.", x.due(), name, flow.Instant(since))
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
	return x.because(CircuitOpen, "%s The circuit of consumer %q is open in all processes that have it%s: %s.", x.due(), name, since,
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
		return x.because(Delayed, "Failed runs: %d. Due again in %s, at %s.", m.Attempts, wait, at)
	}
	x.e.Until = m.AvailableAt
	return x.because(Delayed, "Due in %s, at %s.", wait, at)
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
	return x.because(Limited, "%s The limit %q of %d is reached by owner %s. The message runs when an owner has a free worker or releases "+
		"a slot.",
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
	}{{"The consumer", rate, 0}, {"The key", flow.KeyRateOf(x.consumer), store.Lane(x.e.Message.OrderingKey)}} {
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
			return x.because(RateLimited, "%s %s starts at most %d in %s in all processes together. The next may start in %s.",
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
		return x.because(Suspect, "%s The last process was lost while it held the message. Each process runs at most %d such messages at "+
			"once, and more while it survives them.", x.due(), flow.FewSuspects)
	default:
		return x.because(Suspect, "%s The last %d processes were lost while they held the message. The message runs without other suspects, or "+
			"with some once many have survived, in a process that has run for a while and has seen no other lost.", x.due(), crashes)
	}
}

func (x *explainer) explainDeadline(context.Context) error {
	by, late, ok := flow.Deadline(x.e.Message.Headers)
	if !ok || !x.now.After(by) {
		return nil
	}
	return x.because(Expired, "The deadline %s passed %s ago. The message is %s once a processor claims it.",
		flow.Instant(by), flow.Rounded(x.now.Sub(by)), late)
}

// explainReady explains a message that nothing blocks by what processes report.
func (x *explainer) explainReady(ctx context.Context) error {
	others, err := x.fleet(ctx)
	if err != nil {
		return err
	}
	_ = x.because(Ready, "Due since %s. The message waits for a processor with a free worker for consumer %q. If this persists, check "+
		"that processors run and are not busy.", flow.Instant(x.e.Message.AvailableAt), x.e.Message.Consumer)
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
		Text:  fmt.Sprintf("Poisoned at %s, %s. The message waits to be requeued or discarded.", flow.Instant(row.PoisonedAt.Time), why)}
}

// besides describes the other messages of a claim.
func besides(others int) string {
	switch {
	case others <= 0:
		return ""
	case others == 1:
		return ", with 1 other unfinished message"
	}
	return fmt.Sprintf(", with %d other unfinished messages", others)
}

// counted formats a count with its noun, which gets the plural ending unless n is 1.
func counted(n int, name, plural string) string {
	if n == 1 {
		plural = ""
	}
	return fmt.Sprint(n, " ", name, plural)
}
