package outbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Option changes one produced message. Of two that set the same, the last one
// counts. A value that is not allowed is an error of Produce: bus.ErrInvalidOption,
// bus.ErrInvalidText or bus.ErrTooLarge.
type Option func(*bus.Message) error

// Delay postpones the message by d on the database's clock. A negative delay is
// not allowed, nor is a delay together with [AvailableAt] or [Debounce].
func Delay(d time.Duration) Option {
	return func(m *bus.Message) error {
		m.Delay = d
		return debounced(m.DebounceMax > 0)
	}
}

// AvailableAt postpones the message until t. A time in the past means now; the
// order among due messages is by that time. The zero time sets nothing; otherwise
// the year must be one of 1 to 9999 in UTC. It is not allowed together with [Delay] or
// [Debounce].
func AvailableAt(t time.Time) Option {
	return func(m *bus.Message) error {
		m.AvailableAt = t
		return debounced(m.DebounceMax > 0 && !t.IsZero())
	}
}

// debounced refuses what says when a message is due, beside Debounce.
func debounced(beside bool) error {
	if !beside {
		return nil
	}
	return fmt.Errorf("%w: Debounce says itself when the message is due: Delay and AvailableAt do not go with it", bus.ErrInvalidOption)
}

// InsertID keeps the payload from being pending twice: while a message with the
// same key waits or runs for a consumer, producing another is a no-op for that
// consumer, which [Receipt] counts as a duplicate. Once it is consumed, the key
// is free again.
//
// Note that a running message counts as pending: a handler that produces its
// own key has no effect.
//
// A key has 1 to 255 bytes. An empty one is an error, as it is more likely a mistake than the wish
// for no key. So is a key other than that of a [Replace], [Debounce] or [UniqueFor] of the same
// message.
func InsertID(key string) Option {
	return func(m *bus.Message) error { return setInsertID(m, key, keeps) }
}

// keying is what an insert id is for.
type keying uint8

const (
	keeps keying = iota
	replaces
	debounces
	staysUnique
)

func keyingOf(m *bus.Message) keying {
	switch {
	case m.UniqueFor != 0:
		return staysUnique
	case m.DebounceMax > 0:
		return debounces
	case m.Replace:
		return replaces
	}
	return keeps
}

// setInsertID gives a message its insert id, before the option notes what that is for.
func setInsertID(m *bus.Message, key string, by keying) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: the insert id is empty", bus.ErrInvalidOption)
	case m.InsertID != "" && m.InsertID != key && keyingOf(m) != by:
		return fmt.Errorf("%w: two of InsertID, Replace, Debounce and UniqueFor give a message two insert ids: one is allowed", bus.ErrInvalidOption)
	}
	m.InsertID = key
	return nil
}

// Replace is [InsertID], but the message takes the place of the one that waits: the consumer
// gets the newest payload and headers, with no failed run counted. It is due when it says so
// itself, or when the other was, whichever is later. Of several messages in one call with the
// same key the last one counts.
//
// A message that is running when it is replaced goes on, and the new one runs after it, or
// beside it. Crashes are not forgotten. Replacing waits for a transactional consumer that runs the old one. It needs
// PostgreSQL or SQLite, and is an errors.ErrUnsupported elsewhere.
func Replace(key string) Option {
	return func(m *bus.Message) error {
		err := setInsertID(m, key, replaces)
		m.Replace = true
		return err
	}
}

// Debounce is [Replace] for bursts: the message runs once nothing with the same key was
// produced for quiet, but no later than most after the first of them was. Both are more
// than 0. [Delay] and [AvailableAt] do not go with it.
func Debounce(key string, quiet, most time.Duration) Option {
	return func(m *bus.Message) error {
		if quiet <= 0 || most < quiet {
			return fmt.Errorf("%w: debounce for %s, at most %s: more than 0, and no more than the bound, is allowed", bus.ErrInvalidOption, quiet, most)
		}
		err := errors.Join(setInsertID(m, key, debounces), debounced(m.DebounceMax == 0 && (m.Delay != 0 || !m.AvailableAt.IsZero())))
		m.Replace, m.Delay, m.DebounceMax = true, quiet, most
		return err
	}
}

// UniqueFor is [InsertID], but the key stays taken for a period after the message was
// consumed, or was discarded, by the database's clock. Each producer decides for its own message:
// one with InsertID alone is a duplicate only while another is pending. It needs PostgreSQL or
// SQLite, and is an errors.ErrUnsupported elsewhere.
func UniqueFor(key string, period time.Duration) Option {
	return func(m *bus.Message) error {
		if period <= 0 {
			return fmt.Errorf("%w: unique for %s: more than 0 is allowed", bus.ErrInvalidOption, period)
		}
		err := setInsertID(m, key, staysUnique)
		m.UniqueFor = period
		return err
	}
}

// OrderingKey is what ordered consumers go by: they run the messages of one key one after the other,
// see bus.Ordered. It wins over a method OrderingKey of the payload. A key has 1 to 255 bytes.
func OrderingKey(key string) Option {
	return func(m *bus.Message) error {
		if m.OrderingKey = key; key == "" {
			return fmt.Errorf("%w: the key is empty", bus.ErrInvalidOption)
		}
		return nil
	}
}

// Priority has the message come before others that are due, where the consumer goes by that: see
// bus.Prioritized. Other consumers pay no attention to it.
func Priority(p bus.Priority) Option {
	return func(m *bus.Message) error { m.Priority = p; return nil }
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

// Receipt is what a produce wrote.
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
