package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/names"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Queue describes the messages of one consumer in the whole database. Counts stop at 10,000, which
// means "or more".
type Queue struct {
	Consumer string `json:"consumer"`
	Ready    int64  `json:"ready"`   // due and not claimed
	Delayed  int64  `json:"delayed"` // not due yet
	Leased   int64  `json:"leased"`  // claimed by some process
	Poisoned int64  `json:"poisoned"`

	// BlocksKeys is true if poisoned messages of the consumer block their keys: see bus.BlockKey.
	// BlockedKeys counts the keys that are blocked now.
	BlocksKeys  bool  `json:"blocks_keys,omitempty"`
	BlockedKeys int64 `json:"blocked_keys,omitempty"`

	OldestReady    time.Duration `json:"-"` // time since the oldest ready message became due; 0 if none is ready
	OldestPoisoned time.Duration `json:"-"` // time since the first poisoned message was poisoned; 0 if none is poisoned

	// Registered is true when the registry has a consumer with that name or former name.
	Registered bool `json:"registered"`
	// PausedAt is when the consumer was paused, and zero if it is not paused. PausedBy and
	// PauseNote are the note passed to [Client.Pause].
	PausedAt  time.Time `json:"paused_at,omitzero"`
	PausedBy  string    `json:"paused_by,omitempty"`
	PauseNote string    `json:"pause_note,omitempty"`

	// Breaker is the consumer's bus.CircuitBreaker while it is open, and nil otherwise.
	Breaker *OpenBreaker `json:"breaker,omitempty"`
	// Stops are all reasons why messages of the consumer do not start, the most important first:
	// [Paused], [CircuitBreakerOpen], [CircuitOpen], [NoLiveProcess], [KeyBlocked], [Limited],
	// [RateLimited] and [Saturated]. Those that depend on processes are judged from their reports,
	// and only while messages wait. It is empty if no reason is known.
	Stops []Explanation `json:"stops,omitempty"`
}

// MarshalJSON implements json.Marshaler. Ages are in seconds; zero ages are left out.
func (q Queue) MarshalJSON() ([]byte, error) {
	type plain Queue
	return json.Marshal(struct {
		plain
		OldestReady    float64 `json:"oldest_ready_seconds,omitempty"`
		OldestPoisoned float64 `json:"oldest_poisoned_seconds,omitempty"`
	}{plain(q), q.OldestReady.Round(time.Millisecond).Seconds(), q.OldestPoisoned.Round(time.Millisecond).Seconds()})
}

func newQueue(row store.QueueStats, blocked map[string]store.BlockedKeys) Queue {
	return Queue{
		Consumer: row.Consumer, Ready: row.Ready, Delayed: row.Delayed, Leased: row.Leased, Poisoned: row.Poisoned,
		BlockedKeys: blocked[row.Consumer].N, OldestReady: row.Age(row.OldestReady), OldestPoisoned: row.Age(row.OldestPoisoned),
	}
}

// Queues returns one Queue per stored consumer name. Without names it covers the consumers of the
// registry, of pending and poisoned messages, and those that are paused or have an open circuit
// breaker. Its cost is bounded for any number of messages.
func (c *Client) Queues(ctx context.Context, db bun.IDB, consumers ...string) ([]Queue, error) {
	queues, err := countQueues(ctx, c, db, consumers, names.Read)
	if err == nil {
		queues, err = withStops(ctx, c, db, queues)
	}
	if err == nil {
		queues, err = withLastErrors(ctx, c, db, queues)
	}
	return queues, err
}

// readNames is names.Read, or another function that knows names of consumers.
type readNames = func(ctx context.Context, db bun.IDB, st *store.Store, registry *bus.Registry) (names.Names, error)

// countQueues is Queues with only those Stops that need no process's report: see withStops.
func countQueues(ctx context.Context, c *Client, db bun.IDB, consumers []string, known readNames) ([]Queue, error) {
	st, db, err := c.stores.Of(db, errNotMade)
	if err != nil {
		return nil, dberr.Wrap(err, "admin: queues")
	}
	paused, err := st.Flow.PausedConsumers(ctx, db)
	if err != nil {
		return nil, dberr.Wrap(err, "admin: queues")
	}
	pauses := make(map[string]store.Paused, len(paused))
	for _, p := range paused {
		pauses[p.ConsumerType] = p
	}
	breakers, err := c.openBreakers(ctx, db, st, known)
	if err != nil {
		return nil, dberr.Wrap(err, "admin: queues")
	}
	names := slices.Clone(consumers)
	if len(consumers) == 0 {
		if names, err = st.Pending.StoredConsumers(ctx, db); err != nil {
			return nil, dberr.Wrap(err, "admin: queues")
		}
		names = slices.AppendSeq(slices.AppendSeq(names, maps.Keys(pauses)), maps.Keys(breakers))
		names = append(names, store.Each(c.registry.Consumers(), bus.Consumer.Name)...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	blocking := names // only other programs know which of them block keys
	if !c.operates() {
		blocking = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			consumer, registered := c.registry.Consumer(name)
			return !registered || !flow.BlocksKeys(consumer)
		})
	}
	stats, err := st.Reports.Stats(ctx, db, names)
	if err != nil {
		return nil, dberr.Wrap(err, "admin: queues")
	}
	blocked, err := st.Keys.Count(ctx, db, blocking)
	if err != nil {
		return nil, dberr.Wrap(err, "admin: queues")
	}
	queues := store.Each(stats, func(row store.QueueStats) Queue { return newQueue(row, blocked) })
	for i := range queues {
		q := &queues[i]
		var consumer bus.Consumer
		consumer, q.Registered = c.registry.Consumer(q.Consumer)
		pause := pauses[q.Consumer]
		q.PausedAt, q.PausedBy, q.PauseNote = pause.PausedAt.Time, pause.PausedBy, pause.Note
		q.BlocksKeys = q.Registered && flow.BlocksKeys(consumer)
		q.Breaker = breakers[q.Consumer]
		q.Stops = withReason(pauseStop(*q), breakerStop(*q), blockStop(*q, blocked[q.Consumer]))
	}
	slices.SortFunc(queues, func(a, b Queue) int { return cmp.Compare(a.Consumer, b.Consumer) })
	return queues, nil
}

// countKnown is countQueues with the names in processes' reports, or only those in the registry.
func countKnown(ctx context.Context, c *Client, db bun.IDB, consumers []string, reported bool) ([]Queue, error) {
	if reported {
		return countQueues(ctx, c, db, consumers, names.Read)
	}
	return countQueues(ctx, c, db, consumers, names.Registered)
}

// Unhandled is a kind of message that no consumer handles. [Client.Unhandled] looks for consumers in
// the registry, ops.Session.Check in live processes.
type Unhandled struct {
	Consumer    string `json:"consumer"`
	PayloadType string `json:"payload_type"`
}

// Unhandled lists kinds of pending messages that no consumer of the registry handles: the consumer
// is not registered, or handles other payload types. Another program may handle them. It returns at
// most 20 kinds.
func (c *Client) Unhandled(ctx context.Context, db bun.IDB) ([]Unhandled, error) {
	found, err := store.Listed(c.stores, db, errNotMade, func(st *store.Store, db bun.IDB) ([]store.Unhandled, error) {
		var wants []store.Want
		for _, consumer := range c.registry.Consumers() {
			wants = append(wants, flow.Wants(consumer)...)
		}
		return st.Claims.Unhandled(ctx, db, wants)
	}, func(row store.Unhandled) Unhandled {
		return Unhandled{Consumer: row.ConsumerType, PayloadType: row.PayloadType}
	})
	return found, dberr.Wrap(err, "admin: unhandled")
}

// PauseNote records who paused a consumer and why. Both fields may be empty.
type PauseNote struct {
	By     string // its first 255 bytes are kept
	Reason string // its first 1000 bytes are kept
}

// Pause stops all processes from claiming a consumer's messages until [Client.Resume]. It takes
// effect when it commits and survives restarts. Claimed messages may still run; after about a
// second no message of the consumer starts. Messages are still produced and kept.
//
// Pause covers the consumer's name and its former names in the registry and in process reports of
// the last 7 days: see bus.Aliases. An unknown name is paused as given. A name that a later release
// gives the consumer must be paused separately. Pausing twice is allowed, and the first note is kept.
// [Queue] shows it. An empty name is bus.ErrInvalidOption. A name that cannot be stored is
// bus.ErrInvalidText or bus.ErrTooLarge.
func (c *Client) Pause(ctx context.Context, db bus.Handle, consumer string, note PauseNote) error {
	err := c.underAllNames(ctx, db, consumer, func(st *store.Store, tx bun.Tx, names []string) error {
		return st.Flow.Pause(ctx, tx, names, note.By, note.Reason)
	})
	return dberr.Wrap(err, "admin: pause %q", consumer)
}

// ErrNotPaused is returned by [Client.Resume] when the consumer is not paused; use errors.Is.
var ErrNotPaused = errors.New("the consumer is not paused")

// Resume lets processors claim a paused consumer's messages again: those of this process at once,
// others with their next poll. Messages that are due then run, as capacity allows. Resume returns
// [ErrNotPaused] if the consumer is not paused, and otherwise the errors of [Client.Pause].
func (c *Client) Resume(ctx context.Context, db bus.Handle, consumer string) error {
	err := c.underAllNames(ctx, db, consumer, func(st *store.Store, tx bun.Tx, names []string) error {
		paused, err := st.Flow.Resume(ctx, tx, names)
		if err == nil && !paused {
			err = ErrNotPaused
		}
		return err
	})
	return dberr.Wrap(err, "admin: resume %q", consumer)
}

func checkConsumer(name string) error {
	if name == "" {
		return fmt.Errorf("%w: the name is empty", bus.ErrInvalidOption)
	}
	return limits.CheckKey("consumer", name)
}

// underAllNames applies a change to all names under which a consumer's messages are stored, and wakes
// the processors of this process.
func (c *Client) underAllNames(
	ctx context.Context, h bus.Handle, consumer string, change func(st *store.Store, tx bun.Tx, names []string) error,
) error {
	if err := checkConsumer(consumer); err != nil {
		return err
	}
	return c.stores.Through(ctx, h, errNotMade, func(st *store.Store, db bun.IDB) error {
		err := txn.InTx(ctx, db, func(tx bun.Tx) error {
			if err := st.WriteFirst(ctx, tx); err != nil {
				return err
			}
			known, err := names.Read(ctx, tx, st, c.registry)
			if err != nil {
				return err
			}
			return change(st, tx, known.Of(consumer))
		})
		if registered, ok := c.registry.Consumer(consumer); ok && err == nil {
			txn.AnnounceMessages(ctx, db, c.registry, access.PayloadTypes(registered))
		}
		return err
	})
}

// openBreakers returns the open circuit breakers by every name of their consumers.
func (c *Client) openBreakers(ctx context.Context, db bun.IDB, st *store.Store, read readNames) (map[string]*OpenBreaker, error) {
	rows, err := st.Flow.OpenBreakers(ctx, db)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	known, err := read(ctx, db, st, c.registry)
	if err != nil {
		return nil, err
	}
	open := make(map[string]*OpenBreaker)
	for _, row := range rows {
		b := newOpenBreaker(row)
		for _, name := range known.Of(row.Name) {
			open[name] = &b
		}
	}
	return open, nil
}

// Probe runs one message of a consumer with an open bus.CircuitBreaker now instead of at
// [OpenBreaker.NextProbeAt]. A successful run closes the circuit breaker, and a failed one
// doubles the cooldown, as any failed probe does. A process with such a message sees the request after
// about a second. Probe returns [ErrNotOpen] if no circuit breaker of the consumer is open, and
// otherwise the errors of [Client.Pause].
func (c *Client) Probe(ctx context.Context, db bus.Handle, consumer string) error {
	err := c.underAllNames(ctx, db, consumer, func(st *store.Store, tx bun.Tx, names []string) error {
		open, err := st.Flow.ProbeBreaker(ctx, tx, names)
		if err == nil && !open {
			err = c.notOpen(consumer)
		}
		return err
	})
	return dberr.Wrap(err, "admin: probe %q", consumer)
}

// notOpen is ErrNotOpen, with the reason if the registry knows it.
func (c *Client) notOpen(name string) error {
	consumer, known := c.registry.Consumer(name)
	switch {
	case !known && !c.operates():
		return fmt.Errorf("%w: the registry has no such consumer", ErrNotOpen)
	case known && consumer.Config().Breaker == nil:
		return fmt.Errorf("%w: the consumer has no bus.CircuitBreaker", ErrNotOpen)
	}
	return ErrNotOpen
}
