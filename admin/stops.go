package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// stops finds what stops the consumers of queues.
type stops struct {
	now       time.Time
	reported  bool      // at least one processor has reported
	processes []Process // the last seen first
	slots     map[string]int
	waits     map[string]time.Duration // of rates
}

// withStops returns queues with all their Stops. It reads the reports of processes, limits and rates
// only while messages wait.
func withStops(ctx context.Context, c *Client, db bun.IDB, queues []Queue) ([]Queue, error) {
	st, db, err := c.stores.Of(db, errNotMade)
	var s stops
	if err == nil && slices.ContainsFunc(queues, waits) {
		err = s.read(ctx, db, st)
	}
	if err != nil {
		return nil, dberr.Wrap(err, "admin: queues")
	}
	return store.Each(queues, func(q Queue) Queue {
		q.Stops = append(slices.Clone(q.Stops), withReason(s.circuit(q), s.noProcess(q), s.limit(q), s.rate(q), s.busy(q))...)
		slices.SortStableFunc(q.Stops, func(a, b Explanation) int { return cmp.Compare(stopRank(a), stopRank(b)) })
		return q
	}), nil
}

// withLastErrors sets the errors of open circuit breakers in new queues.
func withLastErrors(ctx context.Context, c *Client, db bun.IDB, queues []Queue) ([]Queue, error) {
	st, db, err := c.stores.Of(db, errNotMade)
	for _, q := range queues {
		i := slices.IndexFunc(q.Stops, func(e Explanation) bool { return e.Reason == CircuitBreakerOpen })
		if err == nil && i >= 0 {
			q.Stops[i].CircuitError, err = lastError(ctx, db, st, q.Consumer)
		}
	}
	return queues, dberr.Wrap(err, "admin: queues")
}

// lastError returns the last error of a consumer, or empty.
func lastError(ctx context.Context, db bun.IDB, st *store.Store, consumer string) (string, error) {
	last, err := st.Reports.Failures(ctx, db, consumer, 1)
	if err != nil || len(last) == 0 {
		return "", err
	}
	return last[0].Sample, nil
}

// stopRank sorts the Stops of a queue.
func stopRank(e Explanation) int {
	return slices.Index([]State{Paused, CircuitBreakerOpen, CircuitOpen, NoLiveProcess, KeyBlocked, Limited, RateLimited, Saturated}, e.Reason)
}

// withReason leaves out empty explanations.
func withReason(all ...Explanation) []Explanation {
	return slices.DeleteFunc(all, func(e Explanation) bool { return e.Reason == "" })
}

// waits reports whether messages of a queue wait.
func waits(q Queue) bool { return q.Ready+q.Delayed > 0 }

func (s *stops) read(ctx context.Context, db bun.IDB, st *store.Store) (err error) {
	rows, err := st.Reports.Processes(ctx, db, fleetSince, mostListed)
	if err != nil {
		return err
	}
	var limits []string
	var rates []store.Rate
	for i, p := range store.Each(rows, newProcess) {
		s.now = rows[i].Now.Time
		if p.Kind != "processor" {
			continue
		}
		s.reported, s.processes = true, append(s.processes, p)
		for _, c := range p.Consumers {
			if p.Status == ProcessAlive && c.Limit > 0 && !slices.Contains(limits, c.limitName()) {
				limits = append(limits, c.limitName())
			}
			if p.Status == ProcessAlive && c.Rate > 0 && !slices.ContainsFunc(rates, func(r store.Rate) bool { return r.Name == c.oldest() }) {
				rates = append(rates, c.rate())
			}
		}
	}
	if len(limits) > 0 {
		if s.slots, err = st.Flow.TakenSlots(ctx, db, limits); err != nil {
			return err
		}
	}
	if len(rates) > 0 {
		s.waits, err = st.Flow.RateWaits(ctx, db, rates)
	}
	return err
}

// oldest returns the name under which the limit and the rate of the consumer are stored.
func (c ProcessConsumer) oldest() string {
	if n := len(c.Former); n > 0 {
		return c.Former[n-1]
	}
	return c.Name
}

func (c ProcessConsumer) limitName() string {
	if c.LimitName != "" {
		return flow.SharedLimit + c.LimitName
	}
	return c.oldest()
}

func (c ProcessConsumer) rate() store.Rate {
	return store.Rate{Name: c.oldest(), N: c.Rate, Per: c.RatePer, Burst: c.RateBurst}
}

// takers returns the live processes that consume a queue, and as they report it, the consumer.
func (s *stops) takers(name string) (takers []Process, consumer ProcessConsumer) {
	for _, p := range s.processes {
		c, takes := p.consumer(name)
		if p.Status == ProcessAlive && takes {
			takers, consumer = append(takers, p), c
		}
	}
	return takers, consumer
}

// consumer returns the consumer with that stored name.
func (p Process) consumer(name string) (ProcessConsumer, bool) {
	i := slices.IndexFunc(p.Consumers, func(c ProcessConsumer) bool { return c.Name == name || slices.Contains(c.Former, name) })
	if i < 0 {
		return ProcessConsumer{}, false
	}
	return p.Consumers[i], true
}

func pauseStop(q Queue) Explanation {
	if q.PausedAt.IsZero() {
		return Explanation{}
	}
	return Explanation{Reason: Paused, Text: flow.PausedBy(q.PausedBy, q.PauseNote), Since: q.PausedAt, PausedAt: q.PausedAt}
}

func breakerStop(q Queue) Explanation {
	b := q.Breaker
	if b == nil {
		return Explanation{}
	}
	return Explanation{Reason: CircuitBreakerOpen, Text: flow.FailedRuns(b.Failed, b.Runs), Since: b.OpenedAt, Until: b.NextProbeAt}
}

func blockStop(q Queue, blocked store.BlockedKeys) Explanation {
	if q.BlockedKeys == 0 {
		return Explanation{}
	}
	return Explanation{Reason: KeyBlocked, Text: flow.BlockedKeys(q.BlockedKeys), Since: blocked.Since.Time}
}

// circuit finds processes in which the consumer's circuit is open. A circuit breaker is in the
// queue.
func (s *stops) circuit(q Queue) (e Explanation) {
	takers, consumer := s.takers(q.Consumer)
	if q.Breaker != nil || !waits(q) {
		return e
	}
	open := 0
	for _, p := range takers {
		circuit, found := p.openCircuit(consumer.Name)
		if !found {
			continue
		}
		open++
		if e.CircuitError = cmp.Or(circuit.Reason, e.CircuitError); e.Since.IsZero() || circuit.Since.Before(e.Since) {
			e.Since = circuit.Since
		}
	}
	if open == 0 {
		return e
	}
	e.Reason, e.Text = CircuitOpen, fmt.Sprintf("in %d of %s", open, counted(len(takers), "process", "es"))
	return e
}

// openCircuit returns the circuit of a consumer if it is open in the process.
func (p Process) openCircuit(consumer string) (bus.OpenCircuit, bool) {
	i := slices.IndexFunc(p.OpenCircuits, func(c bus.OpenCircuit) bool { return c.Consumer == consumer })
	if i < 0 {
		return bus.OpenCircuit{}, false
	}
	return p.OpenCircuits[i], true
}

func (s *stops) noProcess(q Queue) Explanation {
	if takers, _ := s.takers(q.Consumer); !waits(q) || !s.reported || len(takers) > 0 {
		return Explanation{}
	}
	e := Explanation{Reason: NoLiveProcess, Text: "none has reported in the last 7 days"}
	for _, p := range s.processes {
		if _, takes := p.consumer(q.Consumer); takes {
			e.Text, e.Since = p.ended(), p.SeenAt
			break
		}
	}
	return e
}

// ended describes how a process that is not alive ended.
func (p Process) ended() string {
	how := "was lost"
	if p.Status == ProcessStopped {
		how = "stopped"
	}
	return fmt.Sprintf("the last one, %s, %s", p.said(), how)
}

func (s *stops) limit(q Queue) Explanation {
	_, c := s.takers(q.Consumer)
	if q.Ready == 0 || c.Limit == 0 || s.slots[c.limitName()] < c.Limit {
		return Explanation{}
	}
	text := fmt.Sprintf("%d of %d runs of limit %q", s.slots[c.limitName()], c.Limit, cmp.Or(c.LimitName, c.Name))
	return Explanation{Reason: Limited, Text: text}
}

func (s *stops) rate(q Queue) Explanation {
	_, c := s.takers(q.Consumer)
	wait := s.waits[c.oldest()]
	if q.Ready == 0 || c.Rate == 0 || wait <= 0 {
		return Explanation{}
	}
	return Explanation{Reason: RateLimited, Text: fmt.Sprintf("%d in %s used up", c.Rate, c.RatePer), Until: s.now.Add(wait)}
}

// busy reports a consumer whose processes have no free worker. Their last reports may be a report
// interval old.
func (s *stops) busy(q Queue) Explanation {
	takers, _ := s.takers(q.Consumer)
	free := func(p Process) bool { return p.Running < p.Limit }
	if q.Ready == 0 || len(takers) == 0 || slices.ContainsFunc(takers, free) {
		return Explanation{}
	}
	return Explanation{Reason: Saturated, Text: fmt.Sprintf("in %s", counted(len(takers), "process", "es"))}
}
