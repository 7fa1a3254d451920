package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Explanation is the reason why a message does not run. It holds no payload, headers or error texts
// except CircuitError: use [Client.Get] or poison.Store.Get for those.
type Explanation struct {
	Reason State `json:"reason"`
	// Text is a sentence to show, with names, times and counts.
	Text string `json:"text"`
	// Message is the message as [Client.List] returns it. For a poisoned message its State is
	// empty.
	Message Message `json:"message"`
	// PausedAt is when the consumer was paused, and zero if it is not paused.
	PausedAt time.Time `json:"paused_at,omitzero"`
	// PoisonedAt is when the message was poisoned, and zero if it is not poisoned.
	PoisonedAt time.Time `json:"poisoned_at,omitzero"`
	// CircuitError is the text of the error that tripped the consumer's circuit in this process.
	// Text does not repeat it.
	CircuitError string `json:"circuit_error,omitempty"`
}

// explainer explains a pending message.
type explainer struct {
	client    *Client
	db        bun.IDB
	store     *store.Store
	row       store.Pending
	now       time.Time
	elsewhere bool // other processes consume it; this one cannot see their circuits, limits and rates
	e         Explanation
}

func newExplainer(client *Client, db bun.IDB, st *store.Store, row store.Pending) *explainer {
	e := Explanation{Message: newMessage(row), PausedAt: row.PausedSince.Time}
	return &explainer{client: client, db: db, store: st, row: row, now: row.Now.Time, e: e}
}

func (x *explainer) explain(ctx context.Context) (err error) {
	x.e.Reason, x.e.Text = x.reason()
	var others fleet
	if x.e.Reason == NoConsumer || x.e.Reason == OtherPayload {
		if others, err = x.fleet(ctx); err != nil {
			return err
		}
		x.elsewhere = len(others.takers) > 0
		if x.elsewhere {
			x.e.Reason, x.e.Text = x.waits()
		}
	}
	if err := x.explainKey(ctx); err != nil {
		return err
	}
	if err := x.explainBreaker(ctx); err != nil {
		return err
	}
	if x.e.Reason == Ready && !x.elsewhere {
		if err := errors.Join(x.explainLimit(ctx), x.explainRate(ctx)); err != nil {
			return err
		}
	}
	x.e.Message.Headers = nil
	if x.e.Reason == CircuitOpen {
		x.e.CircuitError = x.circuitError(x.e.Message.Consumer)
	}
	if x.e.Reason == Ready && !x.elsewhere {
		if others, err = x.fleet(ctx); err != nil {
			return err
		}
	}
	x.explainFleet(others)
	return nil
}

func (x *explainer) reason() (State, string) {
	m, now := x.e.Message, x.now
	if c := m.Claim; c != nil && c.Expired {
		return LeaseExpired, fmt.Sprintf(
			"Owner %s claimed it at %s and has not renewed its lease, which ended %s ago. A processor takes it back once it has run for a "+
				"third of its lease, and counts a crash.",
			c.Owner, flow.Instant(c.ClaimedAt), flow.Rounded(now.Sub(c.LeasedUntil)),
		)
	} else if c != nil {
		return Leased, fmt.Sprintf("Owner %s claimed it at %s%s, and holds it until %s unless it renews its lease. It runs there, or "+
			"waits for a worker.",
			c.Owner, flow.Instant(c.ClaimedAt), besides(c.Messages-1), flow.Instant(c.LeasedUntil))
	}
	consumer, registered := x.client.registry.Consumer(m.Consumer)
	switch operates := x.client.operates(); {
	case !registered && !operates:
		return NoConsumer, fmt.Sprintf("No consumer %q is registered here. It waits for a program that has one, by name or by alias.", m.Consumer)
	case !operates && !slices.Contains(access.PayloadTypes(consumer), m.PayloadType):
		return OtherPayload, fmt.Sprintf(
			"Consumer %q takes %q here, not %q. It waits for a program whose consumer takes that, by name or by alias.", m.Consumer,
			access.PayloadTypes(consumer), m.PayloadType,
		)
	}
	return x.waits()
}

// waits explains why an unclaimed message does not run although it has a consumer.
func (x *explainer) waits() (State, string) {
	m, now, pausedAt := x.e.Message, x.now, x.e.PausedAt
	switch {
	case !pausedAt.IsZero():
		return Paused, fmt.Sprintf("Consumer %q has been paused since %s.", m.Consumer, flow.Instant(pausedAt))
	case m.State == Delayed && m.Attempts > 0:
		return Delayed, fmt.Sprintf(
			"%d of its runs failed; it is due again in %s, at %s.", m.Attempts, flow.Rounded(m.AvailableAt.Sub(now)),
			flow.Instant(m.AvailableAt),
		)
	case m.State == Delayed:
		return Delayed, fmt.Sprintf("It is due in %s, at %s.", flow.Rounded(m.AvailableAt.Sub(now)), flow.Instant(m.AvailableAt))
	case m.Crashes == 1:
		return Suspect, fmt.Sprintf(
			"It has been due since %s. Its last process was lost while it held the message, so a process runs at most %d like it at a time, "+
				"and more and more while they survive.",
			flow.Instant(m.AvailableAt), flow.FewSuspects,
		)
	case m.Crashes > 1:
		return Suspect, fmt.Sprintf(
			"It has been due since %s. Its last %d processes were lost while they held the message, so it runs alone among suspects, or "+
				"beside others like it once many have survived that, in a process that has lived for a while and has seen no other lost.",
			flow.Instant(m.AvailableAt), m.Crashes,
		)
	}
	if by, late, ok := flow.Deadline(m.Headers); ok && now.After(by) {
		return Expired, fmt.Sprintf(
			"It was to start by %s, %s ago. The process that claims it has it %s.", flow.Instant(by), flow.Rounded(now.Sub(by)), late,
		)
	}
	consumer, _ := x.client.registry.Consumer(m.Consumer)
	if circuit, _ := flow.CircuitOf(m.Consumer, consumer.Config()); circuit != nil {
		if since, _, open := circuit.Tripped(); open {
			return CircuitOpen, fmt.Sprintf(
				"It has been due since %s. The circuit of consumer %q has been open in this process since %s. One message at a time probes "+
					"whether that is over.",
				flow.Instant(m.AvailableAt), m.Consumer, flow.Instant(since),
			)
		}
	}
	return Ready, fmt.Sprintf(
		"It has been due since %s and waits for a processor with room for consumer %q. If it stays, see whether processors run, and what "+
			"they are at.",
		flow.Instant(m.AvailableAt), m.Consumer,
	)
}

// circuitError returns why the circuit of a consumer is open in this process.
func (x *explainer) circuitError(name string) string {
	consumer, _ := x.client.registry.Consumer(name)
	if circuit, _ := flow.CircuitOf(name, consumer.Config()); circuit != nil {
		if _, reason, open := circuit.Tripped(); open {
			return errorlog.Text(reason)
		}
	}
	return ""
}

// explainBreaker checks whether the circuit breaker of the message's consumer is open in the
// database.
func (x *explainer) explainBreaker(ctx context.Context) error {
	if x.e.Reason != Ready {
		return nil
	}
	open, err := x.client.openBreakers(ctx, x.db, x.store)
	if b := open[x.e.Message.Consumer]; err == nil && b != nil {
		x.e.Reason, x.e.Text = CircuitBreakerOpen, fmt.Sprintf(
			"It has been due since %s. Consumer %q: %s.", flow.Instant(x.e.Message.AvailableAt), x.e.Message.Consumer, b,
		)
	}
	return err
}

// explainLimit checks whether the consumer's concurrency limit is reached.
func (x *explainer) explainLimit(ctx context.Context) error {
	consumer, _ := x.client.registry.Consumer(x.e.Message.Consumer)
	name, limit := flow.LimitOf(consumer.Name(), consumer.Config())
	if limit == 0 || x.e.Reason != Ready {
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
	x.e.Reason = Limited
	x.e.Text = fmt.Sprintf(
		"It has been due since %s. Its consumer is at the limit %q of %d, which is taken by owner %s. It runs when one of them has a "+
			"worker for it, or gives up its place.",
		flow.Instant(x.e.Message.AvailableAt), cmp.Or(consumer.Config().SharedConcurrency, consumer.Name()), limit,
		strings.Join(by, ", "),
	)
	return nil
}

// explainRate checks whether the rate limit of the consumer or of the key is used up.
func (x *explainer) explainRate(ctx context.Context) error {
	consumer, _ := x.client.registry.Consumer(x.e.Message.Consumer)
	for _, of := range []struct {
		who  string
		rate *store.Rate
		lane int64
	}{{"Its consumer", flow.RateOf(consumer), 0}, {"Its key", flow.KeyRateOf(consumer), store.Lane(x.e.Message.OrderingKey)}} {
		rate := of.rate
		if rate == nil || x.e.Reason != Ready {
			continue
		}
		wait, err := x.store.Flow.RateWait(ctx, x.db, *rate, of.lane)
		if err != nil {
			return err
		}
		if wait > 0 {
			x.e.Reason = RateLimited
			x.e.Text = fmt.Sprintf(
				"It has been due since %s. %s starts %d in %s, in all processes together, and that is used up: the next may start in %s.",
				flow.Instant(x.e.Message.AvailableAt), of.who, rate.N, rate.Per, flow.Rounded(wait),
			)
		}
	}
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
		Text: fmt.Sprintf("It was poisoned at %s, %s. poison.Store shows why, and requeues it.", flow.Instant(row.PoisonedAt.Time), why)}
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
