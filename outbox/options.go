package outbox

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Option changes one produced message.
type Option func(*bus.Message)

// Delay postpones the message by d on the database's clock. Negative delays are
// an error of Produce.
func Delay(d time.Duration) Option {
	return func(m *bus.Message) { m.Delay = d }
}

// AvailableAt postpones the message until t. A time in the past means now; the
// order among due messages is by that time.
func AvailableAt(t time.Time) Option {
	return func(m *bus.Message) { m.AvailableAt = t }
}

// InsertID keeps the payload from being pending twice: while a message with the
// same key waits or runs for a consumer, producing another is a no-op for that
// consumer, which [Receipt] counts as a duplicate. Once it is consumed, the key
// is free again.
//
// Note that a running message counts as pending: a handler that produces its
// own key has no effect.
func InsertID(key string) Option {
	return func(m *bus.Message) { m.InsertID = key }
}

// Header adds a header. Headers travel with the message to every consumer.
func Header(key, value string) Option {
	return func(m *bus.Message) {
		if m.Headers == nil {
			m.Headers = make(map[string]string)
		}
		m.Headers[key] = value
	}
}

// Item is one payload of [Producer.ProduceMany] with its options.
type Item struct {
	Payload bus.Payload
	Options []Option
}

// Receipt tells what a produce wrote.
type Receipt struct {
	// MessageID is shared by the rows of all consumers.
	MessageID bus.MessageID
	// Enqueued is the number of consumers for which a row was written.
	Enqueued int
	// Duplicates is the number of consumers for which the insert id was
	// pending already.
	Duplicates int
}
