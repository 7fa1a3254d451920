package bus

import (
	"errors"
	"fmt"

	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

// ErrNoKey: a consumer that goes by keys takes the payload, and the message has none.
var ErrNoKey = errors.New("a key is needed")

// PoisonPolicy says what a poisoned message does to those of its key that come behind it.
type PoisonPolicy uint8

// What becomes of the messages behind one that was poisoned.
const (
	// BlockKey blocks the key: its messages wait until the poisoned message is requeued, which runs
	// first again, or discarded.
	BlockKey PoisonPolicy = iota + 1
	// SkipPoisoned has them run. A poisoned message that is requeued is then the first of
	// those that are left.
	SkipPoisoned
)

// Ordered has the consumer run the messages of one key one after the other, in all processes
// together, in the order in which they were produced: if one produce was committed before
// another began, or came before it in one transaction, no run of the later message begins
// before the earlier is done, discarded, cancelled, or poisoned with [SkipPoisoned]. Messages
// of concurrent produces run in any order, but never two at once, other than a handler that
// ignores the end of its context. While a message waits for its next attempt, so do those
// behind it.
//
// The key is that of outbox.OrderingKey, or what the payload's OrderingKey returns; without one Produce
// fails with [ErrNoKey]. Consumers that are not ordered pay no attention to it.
func Ordered(poisoned PoisonPolicy) ConsumerOption {
	return func(c *ConsumerConfig) {
		if c.Ordered = poisoned; poisoned != BlockKey && poisoned != SkipPoisoned {
			c.mistakes = append(c.mistakes, fmt.Sprintf("Ordered %d: BlockKey or SkipPoisoned is allowed", poisoned))
		}
	}
}

// ordersBy is a payload that knows its key: the one that messages of ordered consumers have.
type ordersBy interface{ OrderingKey() string }

// keyOf returns the key that a payload gives itself, if it does.
func keyOf(payload any) string {
	if keyed, ok := payload.(ordersBy); ok {
		return keyed.OrderingKey()
	}
	return ""
}

// Ordered reports whether the consumer runs the messages of one key in order.
func (c Consumer) Ordered() bool { return c.config.Ordered != 0 }

// Key gives a message the key that its payload has, unless it has one, and reports when a
// consumer needs one that is not there.
func (r *Registry) Key(m *Message) error {
	if !r.keyed {
		return nil
	}
	for _, c := range r.ConsumersOf(m.PayloadType) {
		if !c.Keyed() {
			continue
		}
		if err := r.key(m, c); err != nil {
			return fmt.Errorf("payload %q: %w", m.PayloadType, err)
		}
	}
	return nil
}

func (r *Registry) key(m *Message, c Consumer) (err error) {
	if m.OrderingKey == "" {
		if m.OrderingKey, err = c.key(r.codec, m); err != nil {
			return err
		}
	}
	switch {
	case m.OrderingKey == "":
		return fmt.Errorf("%w: consumer %q goes by keys: give outbox.OrderingKey, or have the payload a method OrderingKey", ErrNoKey, c.name)
	case c.Ordered() && m.DebounceMax == 0 && (m.Delay > 0 || !m.AvailableAt.IsZero()):
		return fmt.Errorf("%w: consumer %q is ordered: a message that waits would hold up its key", ErrInvalidOption, c.name)
	}
	return limits.CheckKey("key", m.OrderingKey)
}

// key is what the message itself says: its event, or its payload.
func (c Consumer) key(codec Codec, m *Message) (string, error) {
	switch {
	case m.Event != nil:
		return m.Event.Stream, nil
	case m.Value != nil:
		return keyOf(m.Value), nil
	}
	value, err := c.decode(codec, m.Payload)
	return keyOf(value), err
}
