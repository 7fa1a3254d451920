package bus

import (
	"database/sql/driver"
	"encoding/hex"
	"fmt"
	"time"
)

// Message is the envelope around one payload. On the produce side it stands
// for the payload once, before it fans out; on the consume side it is one
// consumer's delivery.
//
// Middleware may change Headers, Payload, Delay and AvailableAt on the produce
// side. On the consume side a Message is read-only, and it is valid only until
// the handler returns. A Message is not safe for concurrent modification.
type Message struct {
	// ID is the same for every consumer of one produced payload: the
	// idempotency key for effects outside the database.
	ID MessageID
	// PayloadType is the stored name of the payload.
	PayloadType string
	// Payload is the payload as the registry's Codec encoded it.
	Payload []byte
	// Value is the payload given to Produce. It is nil on the consume side.
	Value any
	// Headers travel with the message: trace context, tenant, and the like.
	// The map may be nil.
	Headers map[string]string
	// InsertID is the key that keeps a payload from being pending twice for
	// one consumer; empty means none.
	InsertID string
	// Mode tells how the message came to be delivered.
	Mode Mode
	// Event is where the event that the message delivers stands in the event
	// log. It is nil for a message that was produced, rather than appended.
	Event *Event

	// Delay postpones a message by that much on the database's clock. It is
	// used on the produce side, where AvailableAt is the zero time.
	Delay time.Duration
	// AvailableAt is the instant before which the message is not consumed. On
	// the produce side the zero time means "now, plus Delay".
	AvailableAt time.Time

	// Consumer is the name of the consumer, as registered today even when the
	// row was written under an alias. It is empty on the produce side.
	Consumer string
	// Config is the consumer's configuration with the processor's defaults
	// filled in. It is shared: do not modify it. Nil on the produce side.
	Config *ConsumerConfig
	// Attempt is the number of this run, starting at 1: the attempts that
	// counted so far, plus one.
	Attempt int
	// Crashes is how often in a row the process running the message vanished.
	Crashes int
	// CreatedAt is when the message was produced, on the database's clock.
	CreatedAt time.Time

	handle Handler // see Deliver
}

// Mode tells how a message came to be delivered.
type Mode uint8

// The modes of a message.
const (
	// Live is a message produced by the application, the usual case.
	Live Mode = iota
	// CatchUp is a message delivered while a reader works off a backlog of
	// recorded events.
	CatchUp
	// Replay is a message delivered again on request, from the event log.
	Replay
)

// String returns the mode in lower case.
func (m Mode) String() string {
	switch m {
	case Live:
		return "live"
	case CatchUp:
		return "catchup"
	case Replay:
		return "replay"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// MessageID identifies a produced message. It is a UUID version 7 (RFC 9562),
// so ids sort roughly by the time they were made.
type MessageID [16]byte

// ParseMessageID reads the canonical 36-character form of a UUID.
func ParseMessageID(s string) (MessageID, error) {
	var id MessageID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return id, fmt.Errorf("bus: message id %q: want a UUID such as 0198c2f4-5f6e-7abc-8def-0123456789ab", s)
	}
	digits := s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	if _, err := hex.Decode(id[:], []byte(digits)); err != nil {
		return MessageID{}, fmt.Errorf("bus: message id %q: %w", s, err)
	}
	return id, nil
}

// String returns the canonical 36-character form.
func (id MessageID) String() string {
	var b [36]byte
	hex.Encode(b[:8], id[:4])
	hex.Encode(b[9:13], id[4:6])
	hex.Encode(b[14:18], id[6:8])
	hex.Encode(b[19:23], id[8:10])
	hex.Encode(b[24:], id[10:])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// MarshalText implements [encoding.TextMarshaler], for JSON and logs.
func (id MessageID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (id *MessageID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseMessageID(string(text))
	return err
}

// Value implements [driver.Valuer]: an id is stored in its canonical form.
func (id MessageID) Value() (driver.Value, error) { return id.String(), nil }

// Scan implements [database/sql.Scanner]. It reads the canonical form, as text
// or bytes, and the 16 raw bytes.
func (id *MessageID) Scan(src any) error {
	var text string
	switch v := src.(type) {
	case string:
		text = v
	case []byte:
		if len(v) == len(id) {
			copy(id[:], v)
			return nil
		}
		text = string(v)
	case [16]byte:
		*id = v
		return nil
	default:
		return fmt.Errorf("bus: message id from a %T: want a string or bytes", src)
	}
	parsed, err := ParseMessageID(text)
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}
