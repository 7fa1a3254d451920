package outbox

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Option changes one produced message. Of two that set the same, the last one
// counts. A value that is not allowed is an error of Produce: bus.ErrBadOption,
// bus.ErrBadText or bus.ErrTooLarge.
type Option func(*bus.Message) error

// Delay postpones the message by d on the database's clock. A negative delay is
// not allowed, nor is a delay together with [AvailableAt].
func Delay(d time.Duration) Option {
	return func(m *bus.Message) error { m.Delay = d; return nil }
}

// AvailableAt postpones the message until t. A time in the past means now; the
// order among due messages is by that time. The zero time sets nothing; otherwise
// the year must be one of 1 to 9999 in UTC.
func AvailableAt(t time.Time) Option {
	return func(m *bus.Message) error { m.AvailableAt = t; return nil }
}

// InsertID keeps the payload from being pending twice: while a message with the
// same key waits or runs for a consumer, producing another is a no-op for that
// consumer, which [Receipt] counts as a duplicate. Once it is consumed, the key
// is free again.
//
// Note that a running message counts as pending: a handler that produces its
// own key has no effect.
//
// A key has 1 to 255 bytes. An empty one is not allowed: it would be no key at
// all, where somebody meant there to be one.
func InsertID(key string) Option {
	return func(m *bus.Message) error {
		if m.InsertID = key; key == "" {
			return fmt.Errorf("%w: the insert id is empty", bus.ErrBadOption)
		}
		return nil
	}
}

// Header adds a header. Headers travel with the message to every consumer. All
// of a message have at most 8 KiB, and each needs a name. Names
// that begin with "asyncmonolith-" are the library's: forward them, but make up
// none.
func Header(key, value string) Option {
	return func(m *bus.Message) error {
		if m.Headers == nil {
			m.Headers = make(map[string]string)
		}
		m.Headers[key] = value
		return nil
	}
}

// Item is one payload of [Producer.ProduceMany] with its options.
type Item struct {
	Payload bus.Payload
	Options []Option
}

// Receipt tells what a produce wrote.
type Receipt struct {
	// MessageID is shared by the rows of all consumers. No row has it while
	// Enqueued is 0: those that were pending already keep their own.
	MessageID uuid.UUID `json:"message_id"`
	// Enqueued is the number of consumers for which a row was written.
	Enqueued int `json:"enqueued"`
	// Duplicates is the number of consumers for which the insert id was
	// pending already.
	Duplicates int `json:"duplicates"`
}
