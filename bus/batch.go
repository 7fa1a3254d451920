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

// ConsumeBatch makes a consumer that gets many payloads at once: as many as wait, up to
// [BatchSize]. Each message keeps its own attempts, chain, span and outcome: the chains of
// a batch meet at the one call of fn, and go on with what it returned. The order of the
// payloads means nothing, except that with [Ordered] those of one key are in theirs.
//
// A nil error means that all are done. A [BatchError] says which failed. Any other error, also one
// that joins a BatchError with another, is of all messages. A message that has failed, or has
// crashed a process, comes alone the next time, so that one message cannot take the others down for
// ever. With [Ordered] those behind it of its key come again as well, whatever was returned for
// them.
//
// The context ends with the first of its messages' contexts. [MessageFromContext] gives the first
// message, and [BatchFromContext] all of them.
func ConsumeBatch[T Payload](name string, fn func(context.Context, []T) error, options ...ConsumerOption) Consumer {
	c := consumerOf[T](name)
	c.batch = func(ctx context.Context, codec Codec, batch []*Message, ordered bool) []error {
		values, readable := make([]T, 0, len(batch)), make([]*Message, 0, len(batch))
		errs := make([]error, len(batch))
		var stuck []string // keys with a payload that does not fit
		for i, m := range batch {
			var value T
			if ordered && slices.Contains(stuck, m.OrderingKey) {
				errs[i] = errBehind
			} else if errs[i] = decodeInto(codec, c.payloadType, m.Payload, &value); errs[i] == nil {
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

// errBehind gives back what comes behind a payload of its key that does not fit.
var errBehind error = &OutcomeError{Outcome: Released, Err: errors.New("bus: the payload before it, of the same key, cannot be read")}

// ConsumeRaw makes a consumer that takes messages as they are, of several payload types
// under one name: for programs that pass messages on. fn gets many at once; see
// [ConsumeBatch]. Their Payload is as it is stored, except that one of an event is in its
// newest form. payloadTypes are stored names, former ones included.
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
	c.decode = func(Codec, []byte) (any, error) { return nil, nil }
	return c.batched(fn == nil, options)
}

// batched completes a consumer of batches.
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

// BatchSize is how many messages a consumer made by [ConsumeBatch] or [ConsumeRaw] gets at
// once, at most: 1 to 1000. Defaults to 100.
func BatchSize(n int) ConsumerOption {
	return func(c *ConsumerConfig) { set(c, "BatchSize", &c.BatchSize, n) }
}

// BatchWait is how long a message waits for others while its batch is not full: up to 1 s.
// Defaults to no wait: what waits when a worker is free is the batch.
func BatchWait(d time.Duration) ConsumerOption {
	return func(c *ConsumerConfig) { set(c, "BatchWait", &c.BatchWait, d) }
}

// validateBatch notes the mistakes of options for batches.
func (c *Consumer) validateBatch() {
	switch config := c.config; {
	case c.batch == nil && (config.BatchSize != 0 || config.BatchWait != 0):
		c.mistake("BatchSize and BatchWait are for consumers made by ConsumeBatch or ConsumeRaw")
	case config.BatchSize > maxBatchSize:
		c.mistake("BatchSize %d: 1 to %d are allowed", config.BatchSize, maxBatchSize)
	case config.BatchWait > maxBatchWait:
		c.mistake("BatchWait %s: up to %s is allowed", config.BatchWait, maxBatchWait)
	}
}

// BatchError says which payloads of a batch failed, by their index in the slice that the
// function was given. The others are done. Each error decides like one of a consumer of
// single messages: [Permanent], [RetryAfter], [Snooze] and [Discard] count. A nil error
// is none.
type BatchError map[int]error

// Error implements error.
func (e BatchError) Error() string {
	for _, i := range slices.Sorted(maps.Keys(e)) {
		if e[i] != nil {
			return fmt.Sprintf("%d of the batch failed, the first at %d: %v", len(e), i, e[i])
		}
	}
	return "none of the batch failed"
}

// Unwrap returns the errors, in the order of their indexes.
func (e BatchError) Unwrap() (errs []error) {
	for _, i := range slices.Sorted(maps.Keys(e)) {
		if e[i] != nil {
			errs = append(errs, e[i])
		}
	}
	return errs
}

// spread gives each of the n payloads that were read its part of what the function
// returned: errs has an error for each that was not.
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

// batchError finds a BatchError among what an error wraps. One that is joined with another
// error is none: that one is everybody's.
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

// CodecFromContext returns the registry's codec to a consumer made by [ConsumeRaw], with which it
// can read its messages, and nil elsewhere.
func CodecFromContext(ctx context.Context) Codec {
	codec, _ := ctx.Value(codecKey{}).(Codec)
	return codec
}

// BatchFromContext returns the messages of the payloads that a consumer made by [ConsumeBatch]
// was given, in the same order, and nil elsewhere. They are read-only, and valid until the
// consumer returns.
func BatchFromContext(ctx context.Context) []*Message {
	batch, _ := ctx.Value(batchKey{}).([]*Message)
	return batch
}
