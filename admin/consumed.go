package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// ErrPayloadNotKept is returned by [Client.Repeat] for a message whose payload was not kept: see
// bus.KeepPayload.
var ErrPayloadNotKept = errors.New("the payload was not kept")

// ConsumedMessage is a message that was consumed and is kept: see bus.Keep. Times are in UTC, on the
// database's clock.
type ConsumedMessage struct {
	// ID is the id that the message had as a row while it was pending.
	ID int64 `json:"id"`
	// MessageID is the same for the messages of all consumers of the payload.
	MessageID   uuid.UUID `json:"message_id"`
	Consumer    string    `json:"consumer"`
	PayloadType string    `json:"payload_type"`
	OrderingKey string    `json:"key,omitempty"` // see outbox.OrderingKey; empty: none
	// Outcome is "done", "discarded" or "expired".
	Outcome string `json:"outcome"`
	// Reason is the error of a message that was not done.
	Reason     string        `json:"reason,omitempty"`
	Attempts   int           `json:"attempts"`            // runs that counted, the last one included
	Version    string        `json:"version,omitempty"`   // of the program: see bus.RegistryConfig.AppVersion
	CreatedAt  time.Time     `json:"created_at,omitzero"` // when it was produced
	StartedAt  time.Time     `json:"started_at,omitzero"` // when its last run began; zero if no function was called
	RunTime    time.Duration `json:"run_time"`            // of its last run, in nanoseconds
	FinishedAt time.Time     `json:"finished_at"`         // when it was removed
	ExpiresAt  time.Time     `json:"expires_at"`          // when this row may be deleted
	// PayloadKept is true if the payload was kept: see bus.KeepPayload.
	PayloadKept bool `json:"payload_kept"`

	// Payload and Headers are not set in a brief list ([Page]). The payload of an event is empty: the
	// message refers to the event.
	Payload []byte            `json:"payload,omitempty"` // as the registry's codec encoded it
	Headers map[string]string `json:"headers,omitempty"` // nil: none
}

// MarshalJSON implements json.Marshaler. A payload that is JSON is embedded unchanged, any other as a
// string. It is for output only: unmarshalling the result does not restore Payload.
func (m ConsumedMessage) MarshalJSON() ([]byte, error) {
	type plain ConsumedMessage // without this method
	return json.Marshal(struct {
		plain
		Payload store.PayloadText `json:"payload,omitempty"`
	}{plain(m), m.Payload})
}

// ConsumedFilter selects consumed messages. All fields that are set must match. The zero value matches
// all. IDs, MessageID, Consumer, OrderingKey and the times have indexes.
type ConsumedFilter struct {
	// IDs selects messages by id, up to 1000. Nil selects all; an empty list is an error.
	IDs       []int64   `json:"ids,omitempty"`
	MessageID uuid.UUID `json:"message_id,omitzero"`
	// Consumer and PayloadType match the stored names exactly.
	Consumer    string `json:"consumer,omitempty"`
	PayloadType string `json:"payload_type,omitempty"`
	OrderingKey string `json:"key,omitempty"`
	// Outcome is "done", "discarded" or "expired".
	Outcome string `json:"outcome,omitempty"`
	// Version is the version of the program that consumed the message: see bus.RegistryConfig.AppVersion.
	Version string `json:"version,omitempty"`
	// FinishedAfter and FinishedBefore bound the time; both are exclusive.
	FinishedAfter  time.Time `json:"finished_after,omitzero"`
	FinishedBefore time.Time `json:"finished_before,omitzero"`
	// TraceID is the trace in which the message was produced: 32 hexadecimal digits.
	TraceID string `json:"trace_id,omitempty"`
	// Header is the name of a header, and Value its required value.
	Header string `json:"header,omitempty"`
	Value  string `json:"value,omitempty"`
}

// rows checks the filter and translates it into stored form.
func (f ConsumedFilter) rows() (store.ConsumedFilter, error) {
	rows := store.ConsumedFilter{
		IDs: f.IDs, MessageID: f.MessageID, Consumer: f.Consumer, PayloadType: f.PayloadType, Key: f.OrderingKey, Outcome: f.Outcome,
		Version: f.Version, FinishedAfter: f.FinishedAfter, FinishedBefore: f.FinishedBefore,
	}
	for what, text := range map[string]string{
		"consumer": f.Consumer, "payload type": f.PayloadType, "key": f.OrderingKey, "version": f.Version,
	} {
		if err := limits.CheckText(text); err != nil {
			return rows, fmt.Errorf("filter by %s %q: %w: %w", what, text, bus.ErrInvalidText, err)
		}
	}
	if n := len(f.IDs); f.IDs != nil && (n == 0 || n > mostListed) {
		return rows, fmt.Errorf("filter by %d ids: %w: 1 to %d are allowed, or nil for all", n, bus.ErrInvalidOption, mostListed)
	}
	allowed := []string{bus.Done.String(), bus.Discarded.String(), store.Expired}
	if f.Outcome != "" && !slices.Contains(allowed, f.Outcome) {
		return rows, fmt.Errorf("filter by outcome %q: %w: %v are allowed", f.Outcome, bus.ErrInvalidOption, allowed)
	}
	search := Search{TraceID: f.TraceID, Header: f.Header, Value: f.Value}
	if search == (Search{}) {
		return rows, nil
	}
	parts, err := search.rows()
	rows.Headers = parts.Headers
	return rows, err
}

func newConsumed(row store.Consumed) ConsumedMessage {
	return ConsumedMessage{
		ID: row.ID, MessageID: row.MessageID, Consumer: row.ConsumerType, PayloadType: row.PayloadType, OrderingKey: row.OrderKey,
		Outcome: row.Outcome, Reason: row.Reason, Attempts: row.Attempts, Version: row.Version, CreatedAt: row.CreatedAt.Time,
		StartedAt: row.StartedAt.Time, RunTime: time.Duration(row.RunMicros) * time.Microsecond, FinishedAt: row.FinishedAt.Time,
		ExpiresAt: row.ExpiresAt.Time, PayloadKept: row.PayloadKept, Payload: row.Payload, Headers: store.Headers(row.Headers),
	}
}

// notKept is an [ErrNotFound] for a consumed message.
type notKept int64

// Error implements error.
func (id notKept) Error() string {
	return fmt.Sprintf("message %d: no such consumed message is kept", int64(id))
}

// Is reports whether the target is [ErrNotFound].
func (notKept) Is(target error) bool { return target == ErrNotFound }

// repeatable returns the payload types of messages that can be repeated, or why one cannot.
func repeatable(rows []store.Consumed, ids []int64) (payloadTypes []string, err error) {
	for _, id := range ids {
		i := slices.IndexFunc(rows, func(row store.Consumed) bool { return row.ID == id })
		switch {
		case i < 0:
			return nil, notKept(id)
		case !rows[i].PayloadKept && store.Headers(rows[i].Headers)[store.EventHeader] == "":
			return nil, fmt.Errorf("consumed message %d: %w: its consumer needs bus.KeepPayload", id, ErrPayloadNotKept)
		}
		payloadTypes = append(payloadTypes, rows[i].PayloadType)
	}
	return payloadTypes, nil
}
