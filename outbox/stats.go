package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/engine"
)

// Stats counts what a processor has done since it was made, and describes its current work. Counts
// cover this process alone.
type Stats struct {
	Claims      int64 `json:"claims"`       // claims with messages
	EmptyClaims int64 `json:"empty_claims"` // claims without messages
	Claimed     int64 `json:"claimed"`      // messages claimed
	Fenced      int64 `json:"fenced"`       // outcomes that were void because the claim was lost
	Recovered   int64 `json:"recovered"`    // recovered claims of lost processes
	Crashed     int64 `json:"crashed"`      // recovered messages whose process was lost
	Abandoned   int64 `json:"abandoned"`    // consumers that ignored their timeout
	// CrashPoisoned counts messages that were poisoned because their process was lost each time. It
	// excludes messages poisoned after a run: see [admin.Queue], and the metric
	// asyncmonolith.message.settled of package otel.
	CrashPoisoned int64 `json:"crash_poisoned"`

	// Uncounted counts runs that did not count as an attempt, since their transaction lost a conflict
	// or its connection, or since Step could not reach the database: see bus.ErrNotCounted.
	Uncounted int64 `json:"uncounted"`
	// Unkeyed counts messages without a key of consumers that use keys. No order, concurrency or rate of
	// a key applied to them. The program that produced them declares the consumer without its options:
	// see bus.Declare.
	Unkeyed int64 `json:"unkeyed"`

	Running int `json:"running"` // consumers running now
	Queued  int `json:"queued"`  // claimed messages waiting for a worker
	Limit   int `json:"limit"`   // maximum number of consumers running at once
	// Unsettled is the number of outcomes deferred after a failed write: another transaction has
	// locked the message, or the database refuses the outcome.
	Unsettled int `json:"unsettled"`

	// Circuits reports, for each consumer with a [Circuit] or a bus.CircuitBreaker, whether that
	// stops the consumer in this process. Set only while the processor runs.
	Circuits map[string]bool `json:"circuits,omitempty"`
	// Limits describes each bus.GlobalConcurrency by its name. Set only while the processor runs.
	Limits map[string]LimitStats `json:"limits,omitempty"`
	// RatesSpent is, for each consumer with a bus.RateLimit, the total time in which this process
	// claimed none of its messages because the rate was used up.
	RatesSpent map[string]time.Duration `json:"-"`
}

// LimitStats describes this process's share of a limit.
type LimitStats struct {
	Slots int `json:"slots"` // slots that this process holds
	Used  int `json:"used"`  // slots in use
	Max   int `json:"max"`   // slots of all processes together
}

// MarshalJSON implements json.Marshaler. Durations are in seconds.
func (s Stats) MarshalJSON() ([]byte, error) {
	type plain Stats
	spent := make(map[string]float64, len(s.RatesSpent))
	for consumer, d := range s.RatesSpent {
		spent[consumer] = d.Round(time.Millisecond).Seconds()
	}
	return json.Marshal(struct {
		plain
		RatesSpent map[string]float64 `json:"rates_spent_seconds,omitempty"`
	}{plain(s), spent})
}

// Stats returns the processor's counts and current work. It does not access the database.
func (p *Processor) Stats() Stats {
	s := p.engine.Stats()
	stats := Stats{
		Claims: s.Claims, EmptyClaims: s.EmptyClaims, Claimed: s.Claimed, Fenced: s.Fenced, Recovered: s.Recovered, Crashed: s.Crashed,
		Abandoned: s.Abandoned, CrashPoisoned: s.CrashPoisoned, Uncounted: s.Uncounted, Unkeyed: s.Unkeyed,
		Running: s.Running, Queued: s.Queued, Limit: s.Limit, Unsettled: s.Unsettled, Circuits: s.Circuits, RatesSpent: s.RatesSpent,
	}
	if s.Limits != nil {
		stats.Limits = make(map[string]LimitStats, len(s.Limits))
	}
	for name, l := range s.Limits {
		stats.Limits[name] = LimitStats(l)
	}
	return stats
}

// Queues returns the pending messages of each registered consumer, in the order of
// bus.Registry.Consumers, as [admin.Client.Queues] does. Its cost is bounded, but call it every few
// seconds rather than per request. It returns the database's errors and [ErrSchemaOutdated].
func (p *Processor) Queues(ctx context.Context) ([]admin.Queue, error) {
	if p.registry == nil {
		return nil, fmt.Errorf("outbox: queues: %w", engine.ErrUnmade)
	}
	consumers := p.registry.Consumers()
	if len(consumers) == 0 {
		return nil, nil
	}
	var names []string
	for _, c := range consumers {
		names = append(names, access.Names(c)...)
	}
	found, err := p.admin.Queues(ctx, p.db, names...)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]admin.Queue, len(found))
	for _, q := range found {
		byName[q.Consumer] = q
	}
	queues := make([]admin.Queue, len(consumers))
	for i, c := range consumers {
		queues[i] = byName[c.Name()]
		for _, former := range access.Names(c)[1:] {
			queues[i] = sum(queues[i], byName[former])
		}
	}
	return queues, nil
}

// sum adds the messages stored under a former name of a consumer.
func sum(a, b admin.Queue) admin.Queue {
	a.Ready += b.Ready
	a.Delayed += b.Delayed
	a.Leased += b.Leased
	a.Poisoned += b.Poisoned
	a.BlockedKeys += b.BlockedKeys
	a.OldestReady = max(a.OldestReady, b.OldestReady)
	if len(a.Stops) == 0 {
		a.Stops = b.Stops
	}
	a.OldestPoisoned = max(a.OldestPoisoned, b.OldestPoisoned)
	return a
}
