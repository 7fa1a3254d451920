package bus

import (
	"errors"
	"fmt"

	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

// ErrNoKey is returned by calls that write a payload if it has no key and one of its consumers
// needs one: with [Ordered], [KeyConcurrency], [Fair] or [KeyRateLimit]. Use errors.Is.
var ErrNoKey = errors.New("a key is needed")

// PoisonPolicy sets what a poisoned message does to later messages of its key.
type PoisonPolicy uint8

// The policies for messages behind a poisoned one.
const (
	// BlockKey blocks the key: its messages wait until the poisoned message is requeued or
	// discarded. A requeued message runs first.
	BlockKey PoisonPolicy = iota + 1
	// SkipPoisoned lets later messages of the key run. A requeued message runs before those of its key
	// that still wait.
	SkipPoisoned
)

// Ordered runs the messages of one key one after the other, in all processes together, in the order
// in which they were produced. A message precedes another if its transaction committed before the
// other was produced, or if it was produced first in the same transaction. The later message does
// not start before the earlier is done, discarded, cancelled, or poisoned with [SkipPoisoned].
//
// Messages of concurrent produces run in any order, but never two at once, except for a handler
// that ignores the end of its context. While a message waits for its next attempt, so do those
// behind it.
//
// The key is outbox.OrderingKey, or what the payload's OrderingKey method returns: 1 to 255 bytes.
// Without one Produce fails with [ErrNoKey]. With outbox.Delay or outbox.AvailableAt it fails with
// [ErrInvalidOption], because a message that is not due would block its key. Consumers that do not
// use keys ignore the key.
//
// Ordered excludes [KeyConcurrency], [Fair] and [Prioritized]. poisoned is [BlockKey] or
// [SkipPoisoned].
func Ordered(poisoned PoisonPolicy) ConsumerOption {
	return func(c *ConsumerConfig) {
		if c.Ordered = poisoned; poisoned != BlockKey && poisoned != SkipPoisoned {
			c.mistakes = append(c.mistakes, fmt.Sprintf("Ordered %d: BlockKey or SkipPoisoned is allowed", poisoned))
		}
	}
}

// ordersBy is a payload with its own key.
type ordersBy interface{ OrderingKey() string }

// keyOf returns a payload's own key, or "".
func keyOf(payload any) string {
	if keyed, ok := payload.(ordersBy); ok {
		return keyed.OrderingKey()
	}
	return ""
}

// setKey sets a message's key from its payload, unless it has one. It returns an error if a consumer
// needs a key and there is none.
func (r *Registry) setKey(m *Message) error {
	if !r.keyed {
		return nil
	}
	for _, c := range r.consumersOf(m.PayloadType) {
		if !c.keyed() {
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
		return fmt.Errorf("%w: consumer %q uses keys: pass outbox.OrderingKey, or give the payload a method OrderingKey", ErrNoKey, c.name)
	case c.ordered() && m.DebounceMax == 0 && (m.Delay > 0 || !m.AvailableAt.IsZero()):
		return fmt.Errorf("%w: consumer %q is ordered: Delay or AvailableAt would block the message's key", ErrInvalidOption, c.name)
	}
	return limits.CheckKey("key", m.OrderingKey)
}
