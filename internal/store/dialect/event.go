package dialect

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// RefersTo returns the sequence number of the event that a message refers to, and
// the size of the event's text, for what a claim may read.
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

// WithFormer are the headers of a message with the name that it is stored under, for when it gets
// another. The first one stays: it is what the message was produced for.
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

// Deliver says in a message what has no column: what it delivers, when that is an event, whether
// it does so again, for how long its insert id stays taken, and for whom it was produced.
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
	if mode, ok := to.Headers[ModeHeader]; ok {
		to.Replay = mode == ModeReplay
		delete(to.Headers, ModeHeader)
	}
	if m.Event == nil {
		return
	}
	e := m.Event
	to.Event = &bus.Event{Sequence: e.Sequence, Stream: e.Stream, Version: e.Version, Position: e.Position, Schema: e.Schema, Replay: to.Replay}
	delete(to.Headers, EventHeader)
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
	Parked     bool      `bun:"parked"` // its stream is, for the projection that reads
}

// Headers reads headers as they are stored. Only the library writes them; should
// they be unreadable all the same, that is no reason to withhold a message.
func Headers(text []byte) map[string]string {
	var headers map[string]string
	if len(text) > 0 {
		_ = json.Unmarshal(text, &headers)
	}
	return headers
}

const (
	// By EventHeader a message refers to an event instead of carrying its text.
	EventHeader = "asyncmonolith-event"

	// ModeHeader has ModeReplay where a message is delivered again on request.
	ModeHeader = "asyncmonolith-mode"
	ModeReplay = "replay"

	// DeliverByHeader has the instant by which a message is to start, in RFC 3339, and what
	// becomes of it afterwards.
	DeliverByHeader = "asyncmonolith-deliver-by"

	// UniqueForHeader has for how long the insert id stays taken, as a Go duration.
	UniqueForHeader = "asyncmonolith-unique-for"

	// KeyHeader has the key of a message for consumers that pass it on, and do not go by it.
	KeyHeader = "asyncmonolith-key"

	// FormerHeader has the name under which a message was produced, once it is stored under the
	// present one of its consumer.
	FormerHeader = "asyncmonolith-former-consumer"

	// ConsumersHeader lists at times for which consumers a message was written, one in a line.
	ConsumersHeader = "asyncmonolith-consumers"
)
