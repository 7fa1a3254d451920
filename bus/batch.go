package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

// ConsumeBatch makes a consumer that gets many payloads at once: as many as are ready, up to
// [BatchSize]. Each message keeps its own attempts, chain, span and outcome: the chains of a batch
// share one call of fn and continue with its result. The order of the payloads is undefined, except
// that [Ordered] keeps the order within a key.
//
// A nil error means that all are done. A [BatchError] names the failed payloads. Any other error
// applies to all messages, even one that joins a BatchError with another error. A message that
// failed, or crashed a process, is next delivered alone, so that it cannot fail the others forever.
// With [Ordered], later messages of its key are redelivered too, whatever fn returned for them.
//
// The context of fn ends as soon as the context of any of its messages ends. [MessageFromContext]
// returns the first message, [BatchFromContext] all of them.
func ConsumeBatch[T Payload](name string, fn func(context.Context, []T) error, options ...ConsumerOption) Consumer {
	c := consumerOf[T](name)
	c.batch = func(ctx context.Context, codec Codec, batch []*Message, ordered bool) []error {
		values, readable := make([]T, 0, len(batch)), make([]*Message, 0, len(batch))
		errs := make([]error, len(batch))
		var stuck []string // keys with an undecodable payload
		for i, m := range batch {
			var value T
			if ordered && slices.Contains(stuck, m.OrderingKey) {
				errs[i] = errBehind
			} else if errs[i] = decodeInto(ctx, codec, c.of(m, m.Payload), &value); errs[i] == nil {
				values, readable = append(values, value), append(readable, m)
			} else if m.OrderingKey != "" {
				stuck = append(stuck, m.OrderingKey)
			}
		}
		if len(values) == 0 {
			return errs
		}
		return spread(fn(withBatch(ctx, readable), values), len(values), errs)
	}
	return c.batched(fn == nil, options)
}

// errBehind releases a message behind an undecodable payload of its key.
var errBehind error = &OutcomeError{Outcome: Released, Err: errors.New("bus: an earlier payload of the same key cannot be decoded")}

// ConsumeRaw makes a consumer that gets undecoded messages of several payload types, for programs
// that forward messages. fn gets many at once; see [ConsumeBatch]. Payload is as stored, except
// that an event's payload is upcast to its newest schema. payloadTypes are stored names, including
// former ones; at least one is needed. The messages are read-only, and valid until fn returns.
func ConsumeRaw(name string, fn func(context.Context, []*Message) error, payloadTypes []string, options ...ConsumerOption) Consumer {
	c := Consumer{name: name}
	if len(payloadTypes) == 0 {
		c.mistake("no payload type is given")
	}
	for _, payloadType := range payloadTypes[:min(len(payloadTypes), 1)] {
		if err := limits.CheckName(payloadType); err != nil {
			c.mistake("payload type %q %w", payloadType, err)
		}
		c.payloadType = payloadType
		options = append(options[:len(options):len(options)], PayloadAliases(payloadTypes[1:]...))
	}
	c.batch = func(ctx context.Context, codec Codec, batch []*Message, _ bool) []error {
		ctx = context.WithValue(withBatch(ctx, batch), codecKey{}, codec)
		return spread(fn(ctx, batch), len(batch), make([]error, len(batch)))
	}
	c.decode = func(Codec, *Message) (any, error) { return nil, nil }
	return c.batched(fn == nil, options)
}

func (c Consumer) batched(isNil bool, options []ConsumerOption) Consumer {
	c.consume = func(ctx context.Context, codec Codec, payload []byte) error {
		m := Message{PayloadType: c.payloadType}
		if current, ok := MessageFromContext(ctx); ok {
			m = *current
		}
		m.Payload = payload
		return c.batch(ctx, codec, []*Message{&m}, false)[0]
	}
	c.config.BatchSize = 100
	c.set(isNil, options)
	return c
}

const (
	maxBatchSize = 1000
	maxBatchWait = time.Second
)

// BatchSize is the maximum number of messages in a batch: 1 to 1000. It is for consumers made by
// [ConsumeBatch], [ConsumeRaw] or outbox.ConsumeBatchTx. Defaults to 100.
func BatchSize(n int) ConsumerOption {
	return func(c *ConsumerConfig) { set(c, "BatchSize", &c.BatchSize, n) }
}

// BatchWait is how long a message waits for others while its batch is not full: more than 0, up to
// 1 s. It is for the same consumers as [BatchSize]. Defaults to no wait: a batch has the messages that
// are ready when a worker becomes free.
func BatchWait(d time.Duration) ConsumerOption {
	return func(c *ConsumerConfig) { set(c, "BatchWait", &c.BatchWait, d) }
}

// BatchError has the errors of the failed payloads of a batch, by their index in the slice passed
// to the function. The others are done. Each error acts as in a consumer of single messages,
// including [Permanent], [RetryAfter], [Snooze] and [Discard]. A nil error means success.
type BatchError map[int]error

// Error implements error.
func (e BatchError) Error() string {
	for _, i := range slices.Sorted(maps.Keys(e)) {
		if e[i] != nil {
			return fmt.Sprintf("%d payloads of the batch failed, the first at index %d: %v", len(e), i, e[i])
		}
	}
	return "no payload of the batch failed"
}

// Unwrap returns the errors in index order.
func (e BatchError) Unwrap() (errs []error) {
	for _, i := range slices.Sorted(maps.Keys(e)) {
		if e[i] != nil {
			errs = append(errs, e[i])
		}
	}
	return errs
}

// spread assigns the function's result to each of the n decoded payloads. errs already has an
// error for each payload that was not decoded.
func spread(err error, n int, errs []error) []error {
	each, ok := batchError(err)
	for i := range each {
		if i < 0 || i >= n {
			err = fmt.Errorf("bus: BatchError has an error for payload %d of a batch of %d: %w", i, n, err)
			ok = false
		}
	}
	next := 0
	for i := range errs {
		if errs[i] != nil {
			continue
		}
		if errs[i] = err; ok {
			errs[i] = each[next]
		}
		next++
	}
	return errs
}

// batchError finds a BatchError in err's chain. A BatchError joined with another error does not
// count: the joined error applies to all messages.
func batchError(err error) (BatchError, bool) {
	for ; err != nil; err = errors.Unwrap(err) {
		if e, ok := err.(BatchError); ok {
			return e, true
		}
	}
	return nil, false
}

type batchKey struct{}

func withBatch(ctx context.Context, batch []*Message) context.Context {
	return context.WithValue(ContextWithMessage(ctx, batch[0]), batchKey{}, batch)
}

type codecKey struct{}

// BatchFromContext returns the messages of a [ConsumeBatch] consumer's payloads, in the same
// order. Elsewhere it returns nil. They are read-only, and valid until the consumer returns.
func BatchFromContext(ctx context.Context) []*Message {
	batch, _ := ctx.Value(batchKey{}).([]*Message)
	return batch
}
