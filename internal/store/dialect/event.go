package dialect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// RefersTo returns the sequence number of the event that a message refers to, and the size of the
// event's payload, which bounds what a claim reads.
func (m *Message) RefersTo() (sequence int64, size int, ok bool) {
	if len(m.Payload) > 0 || len(m.Headers) == 0 {
		return 0, 0, false
	}
	number, bytes, _ := strings.Cut(Headers(m.Headers)[EventHeader], " ")
	sequence, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, 0, false
	}
	size, _ = strconv.Atoi(bytes) //nolint:errcheck // a person may have edited it
	return sequence, max(size, 0), true
}

// WithFormer returns the headers of a message with the name that it is stored under, for a rename.
// An earlier former name stays: the message was produced for it.
func (m *Message) WithFormer() string {
	all := Headers(m.Headers)
	if all == nil {
		all = make(map[string]string, 1)
	}
	if _, before := all[FormerHeader]; !before {
		all[FormerHeader] = m.ConsumerType
	}
	return AsJSON(all)
}

// Deliver sets in a message what has no column: its event, whether it is a replay, how long its
// insert id stays taken, and for which consumer it was produced.
func (m *Message) Deliver(to *bus.Message) {
	if name, ok := to.Headers[FormerHeader]; ok {
		to.ConsumerAlias = name
		delete(to.Headers, FormerHeader)
	}
	if text, ok := to.Headers[UniqueForHeader]; ok {
		to.UniqueFor, _ = time.ParseDuration(text) //nolint:errcheck // a person may have edited it
		delete(to.Headers, UniqueForHeader)
	}
	if key, ok := to.Headers[KeyHeader]; ok {
		to.OrderingKey = cmp.Or(to.OrderingKey, key)
		delete(to.Headers, KeyHeader)
	}
	to.Schema = TakeSchema(to.Headers)
	if mode, ok := to.Headers[ModeHeader]; ok {
		to.Replay = mode == ModeReplay
		delete(to.Headers, ModeHeader)
	}
	if m.Event == nil {
		return
	}
	e := m.Event
	to.Event = &bus.Event{
		Sequence: e.Sequence, Stream: e.Stream, Version: e.Version, Position: e.Position, Schema: e.Schema, Replay: to.Replay,
	}
	delete(to.Headers, EventHeader)
	to.Schema = 0
}

// TakeSchema removes the schema of a stored payload from headers and returns it.
func TakeSchema(headers map[string]string) int {
	text, ok := headers[SchemaHeader]
	if !ok {
		return 1
	}
	delete(headers, SchemaHeader)
	schema, err := strconv.Atoi(text)
	if err != nil || schema < 1 { // a person may have edited it
		return 1
	}
	return schema
}

// CheckHeaders refuses headers of the application that say how a payload is stored.
func CheckHeaders(headers map[string]string) error {
	for _, name := range []string{SchemaHeader, EventHeader} {
		if _, given := headers[name]; given {
			return fmt.Errorf("header %q: %w: only the library writes it", name, bus.ErrInvalidOption)
		}
	}
	return nil
}

// Event is a row of events.
type Event struct {
	Sequence   int64     `bun:"sequence"`
	Position   int64     `bun:"position"` // 0 until it is numbered
	ID         uuid.UUID `bun:"event_id"`
	Stream     string    `bun:"stream"`
	Version    int64     `bun:"version"`
	Type       string    `bun:"event_type"`
	Schema     int       `bun:"schema"`
	Data       []byte    `bun:"data"`
	Headers    []byte    `bun:"headers"`
	RecordedAt Moment    `bun:"recorded_at"`
	Parked     bool      `bun:"parked"` // its stream is parked for the projection that reads
	Replay     bool      `bun:"replay"` // an earlier run or version of the reading projection has passed it and not parked it
}

// Headers decodes stored headers. Only the library writes them; unreadable ones are no reason to
// withhold a message.
func Headers(text []byte) map[string]string {
	var headers map[string]string
	if len(text) > 0 {
		_ = json.Unmarshal(text, &headers)
	}
	return headers
}

const (
	// EventHeader refers to an event, in place of its payload.
	EventHeader = "asyncmonolith-event"

	// ModeHeader is ModeReplay if a message is delivered again on request.
	ModeHeader = "asyncmonolith-mode"
	ModeReplay = "replay"

	// DeliverByHeader has the instant by which a message is to start, in RFC 3339, and what happens
	// to it afterwards.
	DeliverByHeader = "asyncmonolith-deliver-by"

	// UniqueForHeader has how long the insert id stays taken, as a Go duration.
	UniqueForHeader = "asyncmonolith-unique-for"

	// KeyHeader has the key of a message for consumers that pass it on and do not order by it.
	KeyHeader = "asyncmonolith-key"

	// SchemaHeader has the schema of the stored payload, unless that is 1.
	SchemaHeader = "asyncmonolith-schema"

	// FormerHeader has the name under which a message was produced, if it is now stored under its
	// consumer's present one.
	FormerHeader = "asyncmonolith-former-consumer"

	// RepeatsHeader has the message id of the consumed message that a message repeats.
	RepeatsHeader = "asyncmonolith-repeats"

	// ConsumersHeader lists, in some messages, the consumers for which the message was written, one
	// in a line.
	ConsumersHeader = "asyncmonolith-consumers"
)
