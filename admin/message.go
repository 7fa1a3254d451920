package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/paging"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Pending is a message that waits or runs, as [Client] shows it. Its instants are
// in UTC, on the database's clock.
type Message struct {
	// ID names the row in calls of [Client].
	ID int64 `json:"id"`
	// MessageID is shared with the other consumers' messages of the payload.
	MessageID   uuid.UUID `json:"message_id"`
	Consumer    string    `json:"consumer"`
	PayloadType string    `json:"payload_type"`
	InsertID    string    `json:"insert_id,omitempty"`   // empty: none
	OrderingKey string    `json:"key,omitempty"`         // of its order: see [OrderingKey]; empty: none
	CreatedAt   time.Time `json:"created_at,omitzero"`   // when it was produced
	AvailableAt time.Time `json:"available_at,omitzero"` // it is not claimed before
	Attempts    int       `json:"attempts"`              // failed runs
	Crashes     int       `json:"crashes"`               // deliveries in a row whose process was lost
	State       State     `json:"state"`
	// Claim is the claim that it is in; nil unless State is Leased.
	Claim *Claim `json:"claim,omitempty"`

	// Payload and the fields below are filled in by [Client.Get] and [Client.GetHead] only.
	Payload      []byte            `json:"-"`                       // as the registry's codec encoded it
	PayloadBytes int               `json:"payload_bytes,omitempty"` // the size of all of it
	Headers      map[string]string `json:"headers,omitempty"`       // nil: none
	Errors       []Attempt         `json:"errors,omitempty"`        // the last ten, oldest first
}

// MarshalJSON implements json.Marshaler: the payload is as it is stored when that is JSON,
// else a string. It is for output only: what is unmarshalled from it has no payload.
func (m Message) MarshalJSON() ([]byte, error) {
	type plain Message
	return json.Marshal(struct {
		plain
		Payload store.PayloadText `json:"payload,omitempty"`
	}{plain(m), m.Payload})
}

// Attempt is one failed run of a message.
type Attempt struct {
	Attempt int       `json:"attempt"`     // its number, from 1 on
	At      time.Time `json:"at,omitzero"` // when it ended, by the clock of the process that ran it
	Error   string    `json:"error"`       // at most 8 KiB
	// Uncounted is true of the last run that did not count as an attempt: see bus.ErrNotCounted.
	Uncounted bool `json:"uncounted,omitempty"`
}

// State says where a message stands: what keeps it from running, or that nothing does.
type State string

// String returns the state in words: "circuit open".
func (s State) String() string { return strings.ReplaceAll(string(s), "_", " ") }

// The states. If several apply, [Client.Explain] returns the first of Leased, LeaseExpired,
// NoConsumer, OtherPayload, Paused, KeyBlocked, BehindKey, Delayed, Suspect, Expired, CircuitOpen,
// CircuitBreakerOpen, KeyLimited, Limited, RateLimited, NoLiveProcess, Saturated and Ready.
// [Client.List] returns only [Leased], [Delayed] and [Ready].
const (
	// Leased: a process has claimed it, and runs it or is about to.
	Leased State = "leased"
	// Delayed: it is not due yet.
	Delayed State = "delayed"
	// Ready: nothing keeps it; it waits for a processor with room.
	Ready State = "ready"
	// LeaseExpired: the process that claimed it was lost, or cannot reach the database.
	LeaseExpired State = "lease_expired"
	// NoConsumer: the registry has no consumer of that name.
	NoConsumer State = "no_consumer"
	// OtherPayload: the consumer takes other payload types.
	OtherPayload State = "other_payload"
	// Paused: its consumer is paused.
	Paused State = "paused"
	// Suspect: it is due, but has crashed before, and waits for its turn
	// apart from the others.
	Suspect State = "suspect"
	// KeyBlocked: a message of its key was poisoned, and blocks the others: see bus.BlockKey.
	KeyBlocked State = "key_blocked"
	// BehindKey: it waits for another message of its key: see bus.Ordered.
	BehindKey State = "behind_key"
	// KeyLimited: as many of its key run as bus.KeyConcurrency allows.
	KeyLimited State = "key_limited"
	// CircuitOpen: the circuit of its consumer is open, in this process: see [outbox.Circuit].
	CircuitOpen State = "circuit_open"
	// CircuitBreakerOpen: the circuit breaker of its consumer is open: see bus.CircuitBreaker.
	CircuitBreakerOpen State = "circuit_breaker_open"
	// Limited: as many as its consumer's limit allows run, in all processes: see bus.GlobalConcurrency.
	Limited State = "limited"
	// RateLimited: as many of its consumer have started as its rate allows: see bus.RateLimit.
	RateLimited State = "rate_limited"
	// NoLiveProcess: no live process takes it, though some have reported: see [Client.Processes].
	NoLiveProcess State = "no_live_process"
	// Saturated: all processes that take it run as much as they may.
	Saturated State = "saturated"
	// Expired: its deadline has passed, so it may not start any more: see [DeliverBy].
	Expired State = "expired"
	// Poisoned: it is pending no more, but poisoned.
	Poisoned State = "poisoned"
)

// Claim is a batch of messages that a processor holds under a lease. Its instants
// are in UTC, on the database's clock.
type Claim struct {
	ID int64 `json:"id"`
	// Owner is one Run of a processor: an id that it makes up anew each time.
	Owner       string    `json:"owner"`
	Isolated    bool      `json:"isolated"`              // it holds one message that may kill processes
	ClaimedAt   time.Time `json:"claimed_at,omitzero"`   // when the messages were claimed
	LeasedUntil time.Time `json:"leased_until,omitzero"` // the owner renews it before
	// Expired is true if the lease ran out: the owner was lost, or cannot reach the database. The
	// next poll of any processor recovers the messages.
	Expired  bool `json:"expired"`
	Messages int  `json:"messages"` // that are still in it
}

func newClaim(row store.HeldBy) Claim {
	return Claim{ID: row.ClaimID, Owner: row.Owner, Isolated: row.Solo, ClaimedAt: row.ClaimedAt.Time, LeasedUntil: row.LeasedUntil.Time,
		Expired: row.Expired, Messages: row.Messages}
}

func newMessage(row store.Pending) Message {
	m := Message{ID: row.ID, MessageID: row.MessageID, Consumer: row.ConsumerType, PayloadType: row.PayloadType, InsertID: row.InsertID, OrderingKey: row.OrderKey,
		CreatedAt: row.CreatedAt.Time, AvailableAt: row.AvailableAfter.Time, Attempts: row.Attempts, Crashes: store.Counted(row.Crashes), State: Ready,
		Payload: row.Payload, PayloadBytes: row.PayloadBytes, Headers: store.Headers(row.Headers)}
	for _, e := range errorlog.Attempts(row.Errors) {
		m.Errors = append(m.Errors, Attempt(e))
	}
	switch {
	case row.ClaimID != 0:
		claim := newClaim(row.HeldBy)
		m.State, m.Claim = Leased, &claim
	case row.AvailableAfter.After(row.Now.Time):
		m.State = Delayed
	}
	return m
}

// Filter selects pending messages. All fields that are set must match. The zero
// value selects all.
type Filter struct {
	// Consumer and PayloadType are names as they are stored; they match exactly.
	// The consumer has an index.
	Consumer    string `json:"consumer,omitempty"`
	PayloadType string `json:"payload_type,omitempty"`
	// InsertID is the one that the message was produced with. It has an index.
	InsertID string `json:"insert_id,omitempty"`
	// OrderingKey is that of its order: see [OrderingKey]. It has an index with the consumer.
	OrderingKey string `json:"key,omitempty"`
	// MessageID is that of the payload, as logs, traces and receipts have it.
	MessageID uuid.UUID `json:"message_id,omitzero"`
	// State is one of Ready, Delayed and Leased.
	State State `json:"state,omitempty"`
	// Crashed selects messages whose last owner was lost.
	Crashed bool `json:"crashed,omitempty"`
	// Retrying selects messages that have failed, and are to run again.
	Retrying bool `json:"retrying,omitempty"`
	// OlderThan selects messages that were produced at least so long ago. In JSON it is a text such
	// as "1h30m0s".
	OlderThan time.Duration `json:"-"`
}

// filterJSON is a filter as JSON has it.
type filterJSON struct {
	*plainFilter
	OlderThan string `json:"older_than,omitempty"`
}

type plainFilter Filter

// MarshalJSON implements json.Marshaler.
func (f Filter) MarshalJSON() ([]byte, error) {
	with := filterJSON{plainFilter: (*plainFilter)(&f)}
	if f.OlderThan != 0 {
		with.OlderThan = f.OlderThan.String()
	}
	return json.Marshal(with)
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *Filter) UnmarshalJSON(text []byte) (err error) {
	with := filterJSON{plainFilter: (*plainFilter)(f)}
	strict := json.NewDecoder(bytes.NewReader(text)) // what a newer version filters by is not left out in silence
	strict.DisallowUnknownFields()
	if err = strict.Decode(&with); err == nil && with.OlderThan != "" {
		f.OlderThan, err = time.ParseDuration(with.OlderThan)
	}
	return err
}

// check reports what no row can match, or nothing can mean.
func (f Filter) check() error {
	for what, text := range map[string]string{"consumer": f.Consumer, "payload type": f.PayloadType, "insert id": f.InsertID, "key": f.OrderingKey} {
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
	return store.PendingFilter{Consumer: f.Consumer, PayloadType: f.PayloadType, InsertID: f.InsertID, Key: f.OrderingKey, MessageID: f.MessageID,
		State: states[f.State], Crashed: f.Crashed, Retrying: f.Retrying, OlderThan: f.OlderThan}
}

// Page is a part of a listing. The zero value is the first page.
type Page struct {
	// Size is the most messages in the page: 1 to 1000. Defaults to 50.
	Size int `json:"size"`
	// After is where the page begins: what the listing returned, or empty for the
	// start. It may be written down, into a link for instance.
	After string `json:"after"`
	// ScanLimit is the most messages that [Client.List] looks at for a page, whether they match or
	// not, so that a page takes no longer the rarer what is looked for: the page may have less than
	// its size, or nothing, and a next one all the same. With it, messages with keys are listed
	// behind all others, by consumer and key. An insert id in the filter has an index, and needs
	// none. Defaults to 0, which is no bound.
	ScanLimit int `json:"examine,omitempty"`
}

// check reports a page that this listing cannot begin.
func (p Page) check(place paging.Place) error {
	if p.ScanLimit < 0 || place.Keyed && p.ScanLimit == 0 {
		return fmt.Errorf("page examines %d: %w: 0 or more are allowed, and what the pages before have", p.ScanLimit, bus.ErrInvalidOption)
	}
	return nil
}
