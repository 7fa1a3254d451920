package admin

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/paging"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Message is a pending message as [Client] returns it. Times are in UTC, on the database's clock.
type Message struct {
	// ID is the row's id in calls of [Client].
	ID int64 `json:"id"`
	// MessageID is the same for the messages of all consumers of the payload.
	MessageID   uuid.UUID `json:"message_id"`
	Consumer    string    `json:"consumer"`
	PayloadType string    `json:"payload_type"`
	InsertID    string    `json:"insert_id,omitempty"`   // empty: none
	OrderingKey string    `json:"key,omitempty"`         // see outbox.OrderingKey; empty: none
	Group       string    `json:"group,omitempty"`       // see outbox.Group; empty: none
	CreatedAt   time.Time `json:"created_at,omitzero"`   // when it was produced
	AvailableAt time.Time `json:"available_at,omitzero"` // when it becomes due
	Attempts    int       `json:"attempts"`              // failed runs
	Crashes     int       `json:"crashes"`               // consecutive deliveries that ended with the loss of the process
	State       State     `json:"state"`
	// Claim is the claim that holds the message; nil unless State is Leased.
	Claim *Claim `json:"claim,omitempty"`

	// Payload and the fields below are set by [Client.Get] only.
	Payload      []byte            `json:"payload,omitempty"`       // as the registry's codec encoded it
	PayloadBytes int               `json:"payload_bytes,omitempty"` // full size in bytes
	Headers      map[string]string `json:"headers,omitempty"`       // nil: none
	Errors       []Attempt         `json:"errors,omitempty"`        // the last ten, oldest first
	Steps        []Step            `json:"steps,omitempty"`         // with stored results, in the order in which they ended
}

// MarshalJSON implements json.Marshaler. A payload that is JSON is embedded unchanged, any other as
// a string. It is for output only: unmarshalling the result does not restore Payload.
func (m Message) MarshalJSON() ([]byte, error) {
	type plain Message // without this method
	return json.Marshal(struct {
		plain
		Payload store.PayloadText `json:"payload,omitempty"`
	}{plain(m), m.Payload})
}

// Attempt is one failed run of a message.
type Attempt struct {
	Attempt int       `json:"attempt"`     // counted from 1
	At      time.Time `json:"at,omitzero"` // when it ended, on the clock of the process that ran it
	Error   string    `json:"error"`       // text of the error, at most 8 KiB
	// Uncounted is true for the last run that did not count as an attempt: see bus.ErrNotCounted.
	Uncounted bool `json:"uncounted,omitempty"`
}

// State is what a message waits for. Leased and Ready mean that nothing blocks it.
type State string

// String returns the state in words: "no live process".
func (s State) String() string {
	switch s {
	case CircuitBreakerOpen:
		return "circuit open"
	case Limited:
		return "at its limit"
	case OtherPayload:
		return "unhandled type"
	case KeyBlocked:
		return "keys blocked"
	case Saturated:
		return "all workers busy"
	default:
		return strings.ReplaceAll(string(s), "_", " ")
	}
}

// The states. If several apply, [Client.Explain] returns the first of Leased, LeaseExpired,
// NoConsumer, OtherPayload, Paused, CircuitBreakerOpen, CircuitOpen, KeyBlocked, BehindKey, Delayed,
// Limited, RateLimited, KeyLimited, Suspect, Expired, NoLiveProcess, Saturated and Ready.
// [Client.List] returns only [Leased], [Delayed] and [Ready].
const (
	// Leased: a process has claimed it and runs it, or will soon.
	Leased State = "leased"
	// Delayed: it is not due yet.
	Delayed State = "delayed"
	// Ready: nothing blocks it; it waits for a processor with free capacity.
	Ready State = "ready"
	// LeaseExpired: the process that claimed it was lost, or cannot reach the database.
	LeaseExpired State = "lease_expired"
	// NoConsumer: the registry has no consumer of that name.
	NoConsumer State = "no_consumer"
	// OtherPayload: the consumer handles other payload types.
	OtherPayload State = "other_payload"
	// Paused: its consumer is paused.
	Paused State = "paused"
	// Suspect: it is due, but a process was lost while it held the message. Suspects run separately
	// from other messages.
	Suspect State = "suspect"
	// KeyBlocked: a poisoned message of its key blocks it: see bus.BlockKey.
	KeyBlocked State = "key_blocked"
	// BehindKey: it waits for another message of its key: see bus.Ordered.
	BehindKey State = "behind_key"
	// KeyLimited: bus.KeyConcurrency messages of its key are running.
	KeyLimited State = "key_limited"
	// CircuitOpen: the circuit of its consumer is open in this process, or in every process that
	// consumes it: see outbox.Circuit.
	CircuitOpen State = "circuit_open"
	// CircuitBreakerOpen: the circuit breaker of its consumer is open: see bus.CircuitBreaker.
	CircuitBreakerOpen State = "circuit_breaker_open"
	// Limited: its consumer is at its limit across all processes: see bus.GlobalConcurrency.
	Limited State = "limited"
	// RateLimited: the rate limit of its consumer or key is used up: see bus.RateLimit.
	RateLimited State = "rate_limited"
	// NoLiveProcess: no live process consumes it, according to their reports: see
	// [Client.Processes].
	NoLiveProcess State = "no_live_process"
	// Saturated: all processes that consume it are at their concurrency limit.
	Saturated State = "saturated"
	// Expired: its deadline has passed, so no run may start: see outbox.DeliverBy.
	Expired State = "expired"
	// Poisoned: it is no longer pending, but poisoned.
	Poisoned State = "poisoned"
)

// Claim is a batch of messages that a processor holds under a lease. Times are in UTC, on the
// database's clock.
type Claim struct {
	ID int64 `json:"id"`
	// Owner identifies one Run of a processor, with a new id for each Run.
	Owner       string    `json:"owner"`
	Isolated    bool      `json:"isolated"`              // it holds one message that may kill processes
	ClaimedAt   time.Time `json:"claimed_at,omitzero"`   // when the messages were claimed
	LeasedUntil time.Time `json:"leased_until,omitzero"` // when the lease ends unless it is renewed
	// Expired is true if the lease ended: the owner was lost or cannot reach the database. The next
	// poll of any processor recovers the messages.
	Expired  bool `json:"expired"`
	Messages int  `json:"messages"` // messages not settled yet
}

// Packages internal/pending, ops and poison call these.
var _ = hooks.Provide(hooks.Functions{"admin.Claim": newClaim, "admin.CountQueues": countKnown, "admin.Failure": newFailureGroup,
	"admin.Message": newMessage, "admin.Steps": stepsOf, "admin.WithStops": withStops})

func newClaim(row store.HeldBy) Claim {
	return Claim{ID: row.ClaimID, Owner: row.Owner, Isolated: row.Solo, ClaimedAt: row.ClaimedAt.Time, LeasedUntil: row.LeasedUntil.Time,
		Expired: row.Expired, Messages: row.Messages}
}

func newMessage(row store.Pending) Message {
	m := Message{
		ID: row.ID, MessageID: row.MessageID, Consumer: row.ConsumerType, PayloadType: row.PayloadType, InsertID: row.InsertID,
		OrderingKey: row.OrderKey, Group: row.GroupKey,
		CreatedAt: row.CreatedAt.Time, AvailableAt: row.AvailableAfter.Time, Attempts: row.Attempts,
		Crashes: row.Crashes, State: Ready, Payload: row.Payload, PayloadBytes: row.PayloadBytes,
		Headers: store.Headers(row.Headers),
	}
	for _, e := range errorlog.Attempts(row.Errors) {
		m.Errors = append(m.Errors, Attempt(e))
	}
	m.Steps = stepsOf(row.Steps)
	switch {
	case row.ClaimID != 0:
		claim := newClaim(row.HeldBy)
		m.State, m.Claim = Leased, &claim
	case row.AvailableAfter.After(row.Now.Time):
		m.State = Delayed
	}
	return m
}

// Filter selects pending messages. All fields that are set must match. The zero value matches all.
// Methods return bus.ErrInvalidText for a text that cannot be stored, and bus.ErrInvalidOption for
// any other value that is not allowed.
type Filter struct {
	// Consumer and PayloadType match the stored names exactly. Consumer has an index.
	Consumer    string `json:"consumer,omitempty"`
	PayloadType string `json:"payload_type,omitempty"`
	// InsertID is the insert id that the message was produced with. It has an index.
	InsertID string `json:"insert_id,omitempty"`
	// OrderingKey is the key of the message: see outbox.OrderingKey. Together with Consumer it has
	// an index.
	OrderingKey string `json:"key,omitempty"`
	// MessageID is the payload's message id, as in logs, traces and receipts.
	MessageID uuid.UUID `json:"message_id,omitzero"`
	// State is one of Ready, Delayed and Leased.
	State State `json:"state,omitempty"`
	// Crashed selects messages whose last owner was lost.
	Crashed bool `json:"crashed,omitempty"`
	// Retrying selects messages that have failed and are to be retried.
	Retrying bool `json:"retrying,omitempty"`
	// OlderThan selects messages produced at least this long ago: 0 or more. In JSON it is in nanoseconds.
	OlderThan time.Duration `json:"older_than,omitempty"`
}

// check rejects values that no row can match or that are not allowed.
func (f Filter) check() error {
	for what, text := range map[string]string{"consumer": f.Consumer, "payload type": f.PayloadType, "insert id": f.InsertID,
		"key": f.OrderingKey} {
		if err := limits.CheckText(text); err != nil {
			return fmt.Errorf("filter by %s %q: %w: %w", what, text, bus.ErrInvalidText, err)
		}
	}
	switch f.State {
	case "", Ready, Delayed, Leased:
	default:
		return fmt.Errorf("filter by state %q: %w: %s, %s and %s are allowed", f.State, bus.ErrInvalidOption, Ready, Delayed, Leased)
	}
	if f.OlderThan < 0 {
		return fmt.Errorf("filter by age %s: %w: 0 or more is allowed", f.OlderThan, bus.ErrInvalidOption)
	}
	return nil
}

func (f Filter) rows() store.PendingFilter {
	states := map[State]store.PendingState{Ready: store.Ready, Delayed: store.Delayed, Leased: store.Leased}
	return store.PendingFilter{
		Consumer: f.Consumer, PayloadType: f.PayloadType, InsertID: f.InsertID, Key: f.OrderingKey, MessageID: f.MessageID,
		State: states[f.State], Crashed: f.Crashed, Retrying: f.Retrying, OlderThan: f.OlderThan,
	}
}

// Page selects a part of a listing. The zero value is the first page. Listings return
// bus.ErrInvalidOption for a value that is not allowed.
type Page struct {
	// Size is the maximum number of messages in the page: 1 to 1000. Defaults to 50.
	Size int `json:"size"`
	// After is the position that the listing returned, or empty for the start. It may be stored,
	// for example in a link.
	After string `json:"after"`
	// ScanLimit is the maximum number of messages that [Client.List] or [Client.Consumed] scans for
	// a page, matching or not. It bounds the cost of rare matches. A page may then be short or
	// empty although there is a next one. With a limit, Client.List returns messages with keys
	// after all others, by consumer and key. Its filter by insert id uses an index and ignores the
	// limit. Defaults to 0, no limit.
	ScanLimit int `json:"examine,omitempty"`
	// Brief makes poison.Store.List leave out payloads, headers and errors. A payload may have 1 MiB.
	Brief bool `json:"-"`
}

// check rejects a page that this listing cannot begin.
func (p Page) check(place paging.Place) error {
	if p.ScanLimit < 0 || place.Keyed && p.ScanLimit == 0 {
		return fmt.Errorf("page ScanLimit %d: %w: 0 or more is allowed, and the value of the previous pages",
			p.ScanLimit, bus.ErrInvalidOption)
	}
	return nil
}
