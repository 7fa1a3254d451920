package outbox

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Option changes one produced message. If an option is given twice, the last one applies; a second
// [InsertID] is an error. Produce returns bus.ErrInvalidOption, bus.ErrInvalidText or
// bus.ErrTooLarge for a value that is not allowed.
type Option func(*bus.Message) error

// Delay postpones the message by d, 0 or more, on the database's clock. Delay cannot be combined
// with [AvailableAt] or [Debounce], nor with a consumer that is bus.Ordered.
func Delay(d time.Duration) Option {
	return func(m *bus.Message) error {
		m.Delay = d
		return debounced(m.DebounceMax > 0 && d != 0)
	}
}

// AvailableAt postpones the message until t. A time in the past means now; due messages are ordered
// by this time. The zero time has no effect. Otherwise the year must be 1 to 9999 in UTC.
// AvailableAt cannot be combined with [Delay] or [Debounce], nor with a consumer that is
// bus.Ordered.
func AvailableAt(t time.Time) Option {
	return func(m *bus.Message) error {
		m.AvailableAt = t
		return debounced(m.DebounceMax > 0 && !t.IsZero())
	}
}

// debounced refuses Delay and AvailableAt together with Debounce.
func debounced(beside bool) error {
	if !beside {
		return nil
	}
	return fmt.Errorf("%w: Delay or AvailableAt with Debounce, which sets when the message is due", bus.ErrInvalidOption)
}

// InsertID makes the message unique among the pending messages of a consumer. While a message with
// the same key waits or runs for a consumer, producing another is a no-op for that consumer, and
// [Receipt] counts it as a duplicate. Once the message is consumed, the key is free again. A policy
// changes that: at most one of [Replace], [Debounce] and [UniqueFor] is allowed.
//
// A running message counts as pending. Without a policy, a handler that produces its own key
// therefore produces a duplicate.
//
// A key has 1 to 255 bytes. An empty key is an error, since it is most likely a mistake. A second
// InsertID for one message is an error, too.
func InsertID(key string, policy ...DuplicatePolicy) Option {
	return func(m *bus.Message) error {
		switch {
		case key == "":
			return fmt.Errorf("%w: the insert id is empty", bus.ErrInvalidOption)
		case m.InsertID != "":
			return fmt.Errorf("%w: InsertID is given twice: a message has one insert id", bus.ErrInvalidOption)
		case len(policy) > 1:
			return fmt.Errorf("%w: InsertID has %d policies for duplicates: one is allowed", bus.ErrInvalidOption, len(policy))
		}
		m.InsertID = key
		for _, p := range policy {
			if p.set == nil {
				return fmt.Errorf("%w: a DuplicatePolicy is made by Replace, Debounce or UniqueFor", bus.ErrInvalidOption)
			}
			if err := p.set(m); err != nil {
				return err
			}
		}
		return nil
	}
}

// DuplicatePolicy sets how [InsertID] treats duplicates. Make it with [Replace], [Debounce] or
// [UniqueFor]; all need PostgreSQL or SQLite. On other databases Produce returns
// errors.ErrUnsupported.
type DuplicatePolicy struct {
	set func(m *bus.Message) error
}

// Replace makes the new message replace the pending one. The consumer gets the newest payload and
// headers, with no failed run counted. The message is due at the later of its own time and that of
// the replaced one. Of several messages in one call with the same key, only the last one is
// written.
//
// A message that is running when it is replaced continues, and the new one runs after it or beside
// it. Crashes stay counted. Replacing waits for a transactional consumer that runs the old message.
func Replace() DuplicatePolicy {
	return DuplicatePolicy{func(m *bus.Message) error {
		m.Replace = true
		return nil
	}}
}

// Debounce is [Replace] for bursts. The message runs once no message with the same key was produced
// for the quiet period, but no later than limit after the first one. Both are more than 0, and
// limit is at least quiet. Debounce cannot be combined with [Delay] or [AvailableAt].
func Debounce(quiet, limit time.Duration) DuplicatePolicy {
	return DuplicatePolicy{func(m *bus.Message) error {
		if quiet <= 0 || limit < quiet {
			return fmt.Errorf(
				"%w: Debounce %s, limit %s: a quiet period of more than 0, up to the limit, is allowed", bus.ErrInvalidOption, quiet, limit,
			)
		}
		err := debounced(m.Delay != 0 || !m.AvailableAt.IsZero())
		m.Replace, m.Delay, m.DebounceMax = true, quiet, limit
		return err
	}}
}

// UniqueFor keeps the key taken for a period after the message was consumed or discarded, on the
// database's clock. Use it for every message with the key: during the period, a message with
// [InsertID] alone is not a duplicate. A message that an operator cancels or stops frees its key.
func UniqueFor(period time.Duration) DuplicatePolicy {
	return DuplicatePolicy{func(m *bus.Message) error {
		if period <= 0 {
			return fmt.Errorf("%w: UniqueFor %s: more than 0 is allowed", bus.ErrInvalidOption, period)
		}
		m.UniqueFor = period
		return nil
	}}
}

// OrderingKey sets the key of the message, for consumers with bus.Ordered, bus.KeyConcurrency,
// bus.Fair or bus.KeyRateLimit. Others ignore it. It overrides the payload's OrderingKey method. A
// key has 1 to 255 bytes.
func OrderingKey(key string) Option {
	return func(m *bus.Message) error {
		if m.OrderingKey = key; key == "" {
			return fmt.Errorf("%w: the key is empty", bus.ErrInvalidOption)
		}
		return nil
	}
}

// Priority runs the message before other due messages of a consumer with bus.Prioritized. Other
// consumers ignore it. p is bus.Normal, bus.High or bus.Urgent. Defaults to bus.Normal.
func Priority(p bus.Priority) Option {
	return func(m *bus.Message) error { m.Priority = p; return nil }
}

// Header adds a header, or replaces the one of that name. Headers travel with the message to every
// consumer. All headers of a message have at most 8 KiB together, names and values, and each needs
// a name. Both are UTF-8 without NUL bytes. Names that begin with "asyncmonolith-" are reserved:
// forward them, but do not make new ones.
func Header(key, value string) Option {
	return func(m *bus.Message) error {
		if m.Headers == nil {
			m.Headers = make(map[string]string)
		}
		m.Headers[key] = value
		return nil
	}
}

// Item is one payload of [Producer.ProduceMany] with its options, which are those of
// [Producer.Produce].
type Item struct {
	Payload bus.Payload
	Options []Option
}

// Receipt is the result of producing one message.
type Receipt struct {
	// MessageID is shared by the rows of all consumers. If Enqueued is 0, no row has this id; the
	// pending duplicates keep theirs.
	MessageID uuid.UUID `json:"message_id"`
	// Enqueued is the number of consumers for which a row was written.
	Enqueued int `json:"enqueued"`
	// Duplicates is the number of consumers for which nothing was written, because the insert id
	// was already pending, or was kept by [UniqueFor].
	Duplicates int `json:"duplicates"`
}
