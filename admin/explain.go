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

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
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

// Explain returns why a message does not run yet, judged from the database and the registry. With a
// registry without consumers it relies on the reports of other processes alone. It returns
// [ErrNotFound] when no pending or poisoned message has the id.
//
// Explain takes no locks, so it cannot see that another transaction has locked the row and claims
// skip it: [Client.RunNow] reports that.
func (a *Client) Explain(ctx context.Context, db bun.IDB, id int64) (Explanation, error) {
	st, db, err := a.stores.Of(db, errNotMade)
	if err != nil {
		return Explanation{}, dberr.Wrap(err, "admin: explain %d", id)
	}
	row, found, err := st.Pending.Get(ctx, db, id, false)
	if err != nil {
		return Explanation{}, dberr.Wrap(err, "admin: explain %d", id)
	}
	if found {
		e, err := a.explainPending(ctx, db, st, row)
		if err != nil {
			return Explanation{}, dberr.Wrap(err, "admin: explain %d", id)
		}
		return e, nil
	}
	poisoned, err := st.Poison.List(ctx, db, store.PoisonFilter{IDs: []int64{id}}, 1)
	if err == nil && len(poisoned) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Explanation{}, dberr.Wrap(err, "admin: explain %d", id)
	}
	return explainPoisoned(poisoned[0]), nil
}

func (a *Client) explainPending(ctx context.Context, db bun.IDB, st *store.Store, row store.Pending) (Explanation, error) {
	e := Explanation{Message: newMessage(row), PausedAt: row.PausedSince.Time}
	now := row.Now.Time
	e.Reason, e.Text = a.reason(e.Message, e.PausedAt, now)
	var others fleet
	elsewhere := false // other processes consume it; this one cannot see their circuits, limits and rates
	if e.Reason == NoConsumer || e.Reason == OtherPayload {
		var err error
		if others, err = a.fleet(ctx, db, st, e.Message); err != nil {
			return e, err
		}
		if elsewhere = len(others.takers) > 0; elsewhere {
			e.Reason, e.Text = a.waits(e.Message, e.PausedAt, now)
		}
	}
	if err := a.explainKey(ctx, db, st, row, elsewhere, &e); err != nil {
		return e, err
	}
	if err := a.explainBreaker(ctx, db, st, &e); err != nil {
		return e, err
	}
	if e.Reason == Ready && !elsewhere {
		if err := errors.Join(a.explainLimit(ctx, db, st, &e), a.explainRate(ctx, db, st, &e)); err != nil {
			return e, err
		}
	}
	e.Message.Headers = nil
	if e.Reason == CircuitOpen {
		e.CircuitError = a.circuitError(e.Message.Consumer)
	}
	if e.Reason == Ready && !elsewhere {
		var err error
		if others, err = a.fleet(ctx, db, st, e.Message); err != nil {
			return e, err
		}
	}
	a.explainFleet(others, elsewhere, now, &e)
	return e, nil
}

// operates reports whether the registry has no consumers. Such a program only operates: the reports
// of other processes decide.
func (a *Client) operates() bool { return len(a.registry.Consumers()) == 0 }

func (a *Client) reason(m Message, pausedAt, now time.Time) (State, string) {
	if c := m.Claim; c != nil && c.Expired {
		return LeaseExpired, fmt.Sprintf("Owner %s claimed it at %s and has not renewed its lease, which ended %s ago. A processor takes it back once it has run for a third of its lease, and counts a crash.",
			c.Owner, flow.Instant(c.ClaimedAt), flow.Rounded(now.Sub(c.LeasedUntil)))
	} else if c != nil {
		return Leased, fmt.Sprintf("Owner %s claimed it at %s%s, and holds it until %s unless it renews its lease. It runs there, or waits for a worker.",
			c.Owner, flow.Instant(c.ClaimedAt), besides(c.Messages-1), flow.Instant(c.LeasedUntil))
	}
	consumer, registered := a.registry.Consumer(m.Consumer)
	switch operates := a.operates(); {
	case !registered && !operates:
		return NoConsumer, fmt.Sprintf("No consumer %q is registered here. It waits for a program that has one, by name or by alias.", m.Consumer)
	case !operates && !slices.Contains(consumer.PayloadTypes(), m.PayloadType):
		return OtherPayload, fmt.Sprintf("Consumer %q takes %q here, not %q. It waits for a program whose consumer takes that, by name or by alias.",
			m.Consumer, consumer.PayloadTypes(), m.PayloadType)
	}
	return a.waits(m, pausedAt, now)
}

// waits explains why an unclaimed message does not run although it has a consumer.
func (a *Client) waits(m Message, pausedAt, now time.Time) (State, string) {
	switch {
	case !pausedAt.IsZero():
		return Paused, fmt.Sprintf("Consumer %q has been paused since %s.", m.Consumer, flow.Instant(pausedAt))
	case m.State == Delayed && m.Attempts > 0:
		return Delayed, fmt.Sprintf("%d of its runs failed; it is due again in %s, at %s.", m.Attempts, flow.Rounded(m.AvailableAt.Sub(now)), flow.Instant(m.AvailableAt))
	case m.State == Delayed:
		return Delayed, fmt.Sprintf("It is due in %s, at %s.", flow.Rounded(m.AvailableAt.Sub(now)), flow.Instant(m.AvailableAt))
	case m.Crashes == 1:
		return Suspect, fmt.Sprintf("It has been due since %s. Its last process was lost while it held the message, so a process runs at most %d like it at a time, and more and more while they survive.", flow.Instant(m.AvailableAt), flow.FewSuspects)
	case m.Crashes > 1:
		return Suspect, fmt.Sprintf("It has been due since %s. Its last %d processes were lost while they held the message, so it runs alone among suspects, or beside others like it once many have survived that, in a process that has lived for a while and has seen no other lost.", flow.Instant(m.AvailableAt), m.Crashes)
	}
	if by, late, ok := flow.Deadline(m.Headers); ok && now.After(by) {
		return Expired, fmt.Sprintf("It was to start by %s, %s ago. The process that claims it has it %s.", flow.Instant(by), flow.Rounded(now.Sub(by)), late)
	}
	consumer, _ := a.registry.Consumer(m.Consumer)
	if circuit, _ := flow.CircuitOf(m.Consumer, consumer.Config()); circuit != nil {
		if since, _, open := circuit.Tripped(); open {
			return CircuitOpen, fmt.Sprintf("It has been due since %s. The circuit of consumer %q has been open in this process since %s. One message at a time probes whether that is over.",
				flow.Instant(m.AvailableAt), m.Consumer, flow.Instant(since))
		}
	}
	return Ready, fmt.Sprintf("It has been due since %s and waits for a processor with room for consumer %q. If it stays, see whether processors run, and what they are at.", flow.Instant(m.AvailableAt), m.Consumer)
}

// circuitError returns why the circuit of a consumer is open in this process.
func (a *Client) circuitError(name string) string {
	consumer, _ := a.registry.Consumer(name)
	if circuit, _ := flow.CircuitOf(name, consumer.Config()); circuit != nil {
		if _, reason, open := circuit.Tripped(); open {
			return errorlog.Text(reason)
		}
	}
	return ""
}

// explainBreaker checks whether the circuit breaker of the message's consumer is open in the
// database.
func (a *Client) explainBreaker(ctx context.Context, db bun.IDB, st *store.Store, e *Explanation) error {
	if e.Reason != Ready {
		return nil
	}
	open, err := a.openBreakers(ctx, db, st)
	if b := open[e.Message.Consumer]; err == nil && b != nil {
		e.Reason, e.Text = CircuitBreakerOpen, fmt.Sprintf("It has been due since %s. Consumer %q: %s.", flow.Instant(e.Message.AvailableAt), e.Message.Consumer, b)
	}
	return err
}

// explainLimit checks whether the consumer's concurrency limit is reached.
func (a *Client) explainLimit(ctx context.Context, db bun.IDB, st *store.Store, e *Explanation) error {
	consumer, _ := a.registry.Consumer(e.Message.Consumer)
	name, limit := flow.LimitOf(consumer.Name(), consumer.Config())
	if limit == 0 || e.Reason != Ready {
		return nil
	}
	owners, err := st.Flow.SlotOwners(ctx, db, name)
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
	e.Reason = Limited
	e.Text = fmt.Sprintf("It has been due since %s. Its consumer is at the limit %q of %d, which is taken by owner %s. It runs when one of them has a worker for it, or gives up its place.",
		flow.Instant(e.Message.AvailableAt), cmp.Or(consumer.Config().SharedConcurrency, consumer.Name()), limit, strings.Join(by, ", "))
	return nil
}

// explainRate checks whether the rate limit of the consumer or of the key is used up.
func (a *Client) explainRate(ctx context.Context, db bun.IDB, st *store.Store, e *Explanation) error {
	consumer, _ := a.registry.Consumer(e.Message.Consumer)
	for _, of := range []struct {
		who  string
		rate *store.Rate
		lane int64
	}{{"Its consumer", flow.RateOf(consumer), 0}, {"Its key", flow.KeyRateOf(consumer), store.Lane(e.Message.OrderingKey)}} {
		rate := of.rate
		if rate == nil || e.Reason != Ready {
			continue
		}
		wait, err := st.Flow.RateWait(ctx, db, *rate, of.lane)
		if err != nil {
			return err
		}
		if wait > 0 {
			e.Reason = RateLimited
			e.Text = fmt.Sprintf("It has been due since %s. %s starts %d in %s, in all processes together, and that is used up: the next may start in %s.",
				flow.Instant(e.Message.AvailableAt), of.who, rate.N, rate.Per, flow.Rounded(wait))
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
