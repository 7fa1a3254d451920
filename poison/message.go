package poison

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Message is a poisoned message. Times are in UTC, on the database's clock.
type Message struct {
	// ID is the row's id in calls of [Store].
	ID int64 `json:"id"`
	// MessageID is the same for the messages of all consumers of the payload.
	MessageID   uuid.UUID `json:"message_id"`
	Consumer    string    `json:"consumer"`
	PayloadType string    `json:"payload_type"`
	// Payload is the payload as the registry's codec encoded it.
	Payload []byte `json:"payload,omitempty"`
	// PayloadBytes is the size of the whole payload; 0 in a brief list (admin.Page).
	PayloadBytes int               `json:"payload_bytes,omitempty"`
	Headers      map[string]string `json:"headers,omitempty"`     // nil: none
	InsertID     string            `json:"insert_id,omitempty"`   // empty: none
	OrderingKey  string            `json:"key,omitempty"`         // see outbox.OrderingKey; empty: none
	Group        string            `json:"group,omitempty"`       // see outbox.Group; empty: none
	BlocksKey    bool              `json:"blocks_key,omitempty"`  // blocks other messages of its key: see bus.BlockKey
	CreatedAt    time.Time         `json:"created_at,omitzero"`   // when it was produced
	AvailableAt  time.Time         `json:"available_at,omitzero"` // when it was due before its last run
	PoisonedAt   time.Time         `json:"poisoned_at,omitzero"`
	Attempts     int               `json:"attempts"` // failed runs
	Crashes      int               `json:"crashes"`  // consecutive deliveries that ended with the loss of the process
	// Reason is a short text on why it was poisoned.
	Reason string `json:"reason"`
	// Fingerprint identifies its [Group]: see admin.FailureGroup. It is "crash" if its processes
	// were lost.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Errors lists the last ten failed runs, oldest first. It is empty if the process was lost each
	// time.
	Errors []admin.Attempt `json:"errors,omitempty"`
	// Steps are the stored results of outbox.Step, in the order in which they ended. Only Get sets them.
	Steps []admin.Step `json:"steps,omitempty"`
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

// Package internal/poisoned calls these.
var _ = hooks.Provide(hooks.Functions{
	"poison.Edit": func(ctx context.Context, s *Store, h bus.Handle, id int64, text []byte) error {
		return s.edit(ctx, h, id, bus.Message{Payload: text}, func(bus.Consumer) error { return nil })
	},
	"poison.Message": shown,
	"poison.Preview": (*Store).preview,
	"poison.Requeue": (*Store).requeue,
	"poison.Rows":    func(f Filter) (store.PoisonFilter, error) { return f.rows(), f.check() },
})

// stepsOf is what package admin shows of stored steps; immutable.
var stepsOf = hooks.Function[func(text string) []admin.Step]("admin.Steps")

func shown(row store.Poisoned) Message {
	m := Message{ID: row.ID, MessageID: row.MessageID, Consumer: row.ConsumerType, PayloadType: row.PayloadType, Payload: row.Payload,
		Headers: store.Headers(row.Headers), InsertID: row.InsertID, OrderingKey: row.OrderKey, Group: row.GroupKey, BlocksKey: row.Parks,
		CreatedAt: row.CreatedAt.Time, AvailableAt: row.AvailableAfter.Time, PoisonedAt: row.PoisonedAt.Time, Attempts: row.Attempts,
		Crashes: row.Crashes, Reason: row.Reason, Fingerprint: row.Fingerprint}
	if m.PayloadBytes = row.PayloadBytes; m.PayloadBytes == 0 {
		m.PayloadBytes = len(row.Payload)
	}
	m.Steps = stepsOf(row.Steps)
	for _, e := range errorlog.Attempts(row.Errors) {
		m.Errors = append(m.Errors, admin.Attempt(e))
	}
	return m
}

// Filter selects poisoned messages. All fields that are set must match. The zero value matches all.
// Methods return bus.ErrInvalidText for a text that cannot be stored, and bus.ErrInvalidOption for
// any other value that is not allowed.
type Filter struct {
	// IDs selects rows by id, up to 1000. Nil selects all; an empty list is an error.
	IDs []int64 `json:"ids,omitempty"`
	// Consumer and PayloadType match the stored names exactly. Messages stored under a former name
	// (bus.Aliases, bus.PayloadAliases) are found by that name only.
	Consumer    string `json:"consumer,omitempty"`
	PayloadType string `json:"payload_type,omitempty"`
	// Fingerprint selects the messages of a [Group], or those without a fingerprint if it is
	// [Unclassified]. It has an index together with Consumer.
	Fingerprint string `json:"fingerprint,omitempty"`
	// OrderingKey is the key of the message: see outbox.OrderingKey.
	OrderingKey string `json:"key,omitempty"`
	// MessageID is the payload's message id, as in logs and spans. It matches one message per
	// consumer of the payload. It has an index.
	MessageID uuid.UUID `json:"message_id,omitzero"`
	// TraceID is the trace in which the message was produced: 32 hexadecimal digits. No index helps.
	TraceID string `json:"trace_id,omitempty"`
	// PoisonedAfter and PoisonedBefore bound the time of poisoning; both are exclusive.
	PoisonedAfter  time.Time `json:"poisoned_after,omitzero"`
	PoisonedBefore time.Time `json:"poisoned_before,omitzero"`
	// Error is a text in the reason or in the stored errors of the runs. It matches literally on
	// all databases: case-sensitive, with no wildcards or escapes. No index helps, so set Consumer,
	// too, if there are many messages.
	Error string `json:"error,omitempty"`
}

// mostIDs is the maximum number of ids in a filter.
const mostIDs = 1000

// check rejects values that no row can match or that are not allowed.
func (f Filter) check() error {
	if n := len(f.IDs); f.IDs != nil && (n == 0 || n > mostIDs) {
		return fmt.Errorf("filter by %d ids: %w: 1 to %d are allowed, or nil for all", n, bus.ErrInvalidOption, mostIDs)
	}
	for what, text := range map[string]string{"consumer": f.Consumer, "payload type": f.PayloadType, "fingerprint": f.Fingerprint,
		"key": f.OrderingKey, "error": f.Error} {
		if err := limits.CheckText(text); err != nil {
			return fmt.Errorf("filter by %s %q: %w: %w", what, text, bus.ErrInvalidText, err)
		}
	}
	if f.TraceID != "" && store.TraceHeader(f.TraceID) == "" {
		return fmt.Errorf("filter by trace id %q: %w: 32 hexadecimal digits are allowed", f.TraceID, bus.ErrInvalidOption)
	}
	return nil
}

func (f Filter) rows() store.PoisonFilter {
	return store.PoisonFilter{
		IDs: f.IDs, Consumer: f.Consumer, PayloadType: f.PayloadType, Fingerprint: f.Fingerprint, Key: f.OrderingKey,
		MessageID: f.MessageID, PoisonedAfter: f.PoisonedAfter, PoisonedBefore: f.PoisonedBefore, Error: f.Error,
		Header: store.TraceHeader(f.TraceID),
	}
}

// Unclassified stands for no fingerprint: in a [Filter] it selects the messages without one, and it is
// the Fingerprint of their [Group].
const Unclassified = store.Unclassified

// Result is the outcome of a requeue. All fields are counts.
type Result struct {
	// Requeued counts messages that are pending again.
	Requeued int `json:"requeued"`
	// Unhandled counts requeued messages without a consumer in this registry. Another program may
	// have one; otherwise they wait.
	Unhandled int `json:"unhandled"`
	// Conflicts counts messages whose insert id is already pending again. They stay poisoned.
	Conflicts int `json:"conflicts"`
	// Missing counts ids that are not poisoned messages.
	Missing int `json:"missing"`
}
