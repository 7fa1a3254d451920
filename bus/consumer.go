package bus

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

// Consumer is a named function for one payload type, or with [ConsumeRaw] for several, ready to be
// registered. Package outbox makes transactional ones. A Consumer is immutable and safe for
// concurrent use. [NewRegistry] refuses the zero value.
type Consumer struct {
	name        string
	payloadType string
	goType      reflect.Type // nil for ConsumeRaw
	schemas     schemas
	declared    bool // another program runs it
	config      ConsumerConfig
	consume     func(ctx context.Context, codec Codec, payload []byte) error
	batch       func(ctx context.Context, codec Codec, batch []*Message, ordered bool) []error // nil for single messages
	decode      func(codec Codec, m *Message) (value any, err error)                           // the value is nil for ConsumeRaw
	mistakes    []error
}

// Consume makes a consumer from fn, which is called concurrently. The name is stored with every
// message, so keep it stable; see [Aliases] for renames. A name has 1 to 255 bytes of UTF-8 text
// without control characters. [NewRegistry] reports mistakes such as an empty name or a pointer
// payload.
func Consume[T Payload](name string, fn func(context.Context, T) error, options ...ConsumerOption) Consumer {
	c := consumerOf[T](name)
	c.set(fn == nil, options)
	c.consume = func(ctx context.Context, codec Codec, payload []byte) error {
		var value T
		if err := decodeInto(ctx, codec, c.ofContext(ctx, payload), &value); err != nil {
			return err
		}
		return fn(ctx, value)
	}
	return c
}

// consumerOf makes a consumer of one payload type, without its function.
func consumerOf[T Payload](name string) Consumer {
	c := Consumer{name: name}
	var err error
	if c.payloadType, c.goType, err = payloadTypeOf[T](); err != nil {
		c.mistake("%w", err)
	}
	if c.schemas, err = schemasOf(*new(T)); err != nil {
		c.mistake("%w", err)
	}
	c.decode = func(codec Codec, m *Message) (any, error) {
		var value T
		err := decodeInto(context.Background(), codec, c.of(m, m.Payload), &value)
		return value, err
	}
	return c
}

// set applies the options and records mistakes in them, in the name and in the function.
func (c *Consumer) set(isNil bool, options []ConsumerOption) {
	if err := limits.CheckName(c.name); err != nil {
		c.mistake("name %q %w", c.name, err)
	}
	if isNil {
		c.mistake("the function is nil")
	}
	for i, option := range options {
		if option == nil {
			c.mistake("option %d is nil", i)
			continue
		}
		option(&c.config)
	}
	c.validate()
}

func (c *Consumer) mistake(format string, args ...any) {
	c.mistakes = append(c.mistakes, fmt.Errorf("bus: consumer %q: "+format, append([]any{c.name}, args...)...))
}

// decodeInto upcasts and decodes a payload. It reports a panic of the codec or the payload's
// unmarshalling as a decode error.
func decodeInto[T any](ctx context.Context, codec Codec, payload stored, value *T) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
		if err != nil {
			err = payload.failure(reflect.TypeFor[T](), err)
		}
	}()
	text, err := payload.schemas.upcast(ctx, payload.schema, payload.text)
	if err != nil {
		return err
	}
	return codec.Decode(text, value)
}

// Name returns the stored name of the consumer.
func (c Consumer) Name() string { return c.name }

// raw reports whether the consumer was made by [ConsumeRaw].
func (c Consumer) raw() bool { return c.goType == nil }

// PayloadType returns the stored name of the payload it consumes, or the first of several.
func (c Consumer) PayloadType() string { return c.payloadType }

// Config returns a copy of the consumer's own configuration; zero fields mean the processor's
// defaults.
func (c Consumer) Config() ConsumerConfig { return c.config.clone() }

// Consume decodes payload, which codec encoded, calls the consumer's function and returns its
// error. A payload that does not fit is a [Permanent] *[DecodeError]. A batch consumer gets a batch
// of one: the context's message with that payload. The consumer's options have no effect.
func (c Consumer) Consume(ctx context.Context, codec Codec, payload []byte) error {
	return c.consume(ctx, codec, payload)
}

// names returns the names under which its messages are stored: its name, then its aliases.
func (c Consumer) names() []string { return append([]string{c.name}, c.config.Aliases...) }

// payloadTypes returns the payload types it consumes: its own, then its aliases.
func (c Consumer) payloadTypes() []string {
	return append([]string{c.payloadType}, c.config.PayloadAliases...)
}

// ConsumerConfig holds what a consumer's options set; each field is documented by the option of its
// name. [Consumer.Config] returns it with zero fields for options that are not given.
// [Message.Config] has the processor's defaults for Timeout, MaxAttempts and AttemptDelay.
type ConsumerConfig struct {
	// Timeout bounds one run: see [Timeout].
	Timeout time.Duration
	// MaxAttempts is the number of failed runs after which a message is poisoned: see
	// [MaxAttempts].
	MaxAttempts int
	// AttemptDelay is the wait after the first failed run: see [AttemptDelay].
	AttemptDelay time.Duration
	// Backoff returns the wait after a failed run: see [Backoff]. Nil means that of the attempts
	// middleware.
	Backoff func(attempt int) time.Duration
	// Concurrency limits concurrent calls in one process: see [Concurrency]. Zero means no limit
	// besides that of the processor.
	Concurrency int
	// GlobalConcurrency limits concurrent calls in all processes together. If SharedConcurrency is
	// set, calls of the other consumers that share the limit count, too. Zero means no limit.
	GlobalConcurrency int
	// SharedConcurrency is the name under which several consumers share one limit: see
	// [SharedConcurrency]. Empty means that GlobalConcurrency is the consumer's own.
	SharedConcurrency string
	// Rate limits how many runs start in each RatePer, in all processes together. RateBurst limits how
	// many may start at once. Zero means no limit.
	Rate      int
	RatePer   time.Duration
	RateBurst int
	// Aging is the head start of each priority level: see [Prioritized]. Zero means no priorities.
	Aging time.Duration
	// Breaker configures the circuit breaker: see [CircuitBreaker]. Nil means none.
	Breaker *CircuitBreakerConfig
	// Ordered runs messages of one key in order, and sets what a poisoned message does to those
	// behind it. Zero means no order.
	Ordered PoisonPolicy
	// KeyConcurrency limits concurrent messages of one key in all processes together, in any order:
	// see [KeyConcurrency]. Zero means no limit.
	KeyConcurrency int
	// Fair gives each key a share of the runs: see [Fair].
	Fair bool
	// KeyRate limits how many runs of one key start in each KeyRatePer, in all processes together.
	// KeyRateBurst limits how many may start at once. Zero means no limit.
	KeyRate      int
	KeyRatePer   time.Duration
	KeyRateBurst int
	// BatchSize is the maximum number of messages in a batch. Zero means a consumer of single
	// messages.
	BatchSize int
	// BatchWait is how long a message waits for others while its batch is not full: see
	// [BatchWait].
	BatchWait time.Duration
	// Keep is how long consumed messages are kept: see [Keep]. Zero keeps none. KeepPayload keeps
	// their payloads, too.
	Keep        time.Duration
	KeepPayload bool
	// Forwards is true if the consumer forwards messages to other programs: see [Forwards].
	Forwards bool
	// Aliases are former names of the consumer, the oldest last.
	Aliases []string
	// PayloadAliases are former names of the payload type.
	PayloadAliases []string

	keyOf    func(Codec, *Message) (string, error) // reads a raw consumer's keys; may be nil
	renamed  map[string]string                     // current event names by former ones
	values   map[any]any
	mistakes []string // of the options
}

// setValue stores a setting of another package. As with context values, key should be of an
// unexported type of that package.
func (c *ConsumerConfig) setValue(key, value any) {
	values := make(map[any]any, len(c.values)+1) // copies of the config share the old one
	maps.Copy(values, c.values)
	values[key] = value
	c.values = values
}

// newestName returns the current name of an event by a former one, and other payload types
// unchanged.
func (c *ConsumerConfig) newestName(payloadType string) string {
	return cmp.Or(c.renamed[payloadType], payloadType)
}

func (c ConsumerConfig) clone() ConsumerConfig {
	c.Aliases = slices.Clone(c.Aliases)
	c.PayloadAliases = slices.Clone(c.PayloadAliases)
	return c
}

// ConsumerOption configures a consumer. If an option is given twice, the last one applies; names
// given to [Aliases] and [PayloadAliases] accumulate.
//
// These do not go together:
//   - [Ordered] with [KeyConcurrency] or [Fair]
//   - [KeyConcurrency] with [Fair]
//   - [Prioritized] with [Ordered], [KeyConcurrency], [Fair] or [KeyRateLimit]
//   - [GlobalConcurrency] with [SharedConcurrency], and SharedConcurrency with two names
//   - [BatchSize] or [BatchWait] with a consumer of single messages
//   - [CircuitBreaker] with outbox.WithCircuit
//   - outbox.GroupCommit with a consumer of batches, or one that is not transactional
//
// [NewRegistry] returns an error for these and for values that are not allowed, except for the last
// two: outbox.NewProcessor reports those. [KeyConcurrency], [Fair], [KeyRateLimit] and
// [Prioritized] need PostgreSQL or SQLite; outbox.NewProcessor returns errors.ErrUnsupported
// elsewhere.
type ConsumerOption func(*ConsumerConfig)

// Timeout limits one run of the consumer: more than 0, up to 1 h. Then the handler's context is
// cancelled with [ErrTimeout] as its cause. A handler that has not returned 5 s later is abandoned:
// see [ErrAbandoned]. On SQLite the timeout of a transactional consumer must be less than
// busy_timeout. Defaults to outbox.ProcessorConfig.DefaultTimeout, 10 s.
func Timeout(d time.Duration) ConsumerOption {
	return func(c *ConsumerConfig) { set(c, "Timeout", &c.Timeout, d) }
}

// MaxAttempts is the number of failed runs after which a message is poisoned: 1 or more. 1 means no
// retry. Runs that are snoozed or released do not count. Defaults to
// outbox.ProcessorConfig.MaxAttempts, 5.
func MaxAttempts(n int) ConsumerOption {
	return func(c *ConsumerConfig) { set(c, "MaxAttempts", &c.MaxAttempts, n) }
}

// AttemptDelay is the wait after the first failed run, before the jitter: more than 0. It doubles
// after each further failed run, up to 15 min: see middleware.Exponential. [Backoff], or Backoff of
// middleware.Options, replaces it. Defaults to outbox.ProcessorConfig.AttemptDelay, 10 s.
func AttemptDelay(d time.Duration) ConsumerOption {
	return func(c *ConsumerConfig) { set(c, "AttemptDelay", &c.AttemptDelay, d) }
}

// Backoff replaces the wait between failed runs: b returns the wait after the given failed attempt,
// counted from 1. A negative wait counts as zero; if b panics, the wait is AttemptDelay. b must be
// safe for concurrent use, and not nil. Defaults to Backoff of middleware.Options, and without that
// to the exponential backoff of [AttemptDelay].
func Backoff(b func(attempt int) time.Duration) ConsumerOption {
	return func(c *ConsumerConfig) {
		if c.Backoff = b; b == nil {
			c.mistakes = append(c.mistakes, "Backoff: the function is nil")
		}
	}
}

// Concurrency limits how many calls of the consumer run at once in one process: 1 or more. A batch
// is one call, and so are messages that share a transaction (outbox.GroupCommit). Defaults to no
// limit besides outbox.ProcessorConfig.Concurrency, which bounds all consumers together.
func Concurrency(n int) ConsumerOption {
	return func(c *ConsumerConfig) { set(c, "Concurrency", &c.Concurrency, n) }
}

// Aliases lists former names of the consumer, so that messages stored under them are still
// consumed. A name must not belong to another consumer of the registry. The oldest name comes last:
// GlobalConcurrency, RateLimit and KeyRateLimit are counted under it, so programs from before and
// after a rename share them.
func Aliases(names ...string) ConsumerOption {
	return func(c *ConsumerConfig) { c.Aliases = append(c.Aliases, names...) }
}

// PayloadAliases lists former names of the payload type, so that payloads stored under them are
// still consumed. They are decoded like those of the current name.
func PayloadAliases(payloadTypes ...string) ConsumerOption {
	return func(c *ConsumerConfig) { c.PayloadAliases = append(c.PayloadAliases, payloadTypes...) }
}

// Forwards marks a consumer that forwards messages to other programs, as relay.NewForwarder does.
// Use it in [Declare] as well, so that the key is stored.
//
// Keys are stored for the consumer, although it does not use them, so that [Message.OrderingKey] is
// set. Its runs belong to the trace that created the message, however late they are. A message
// claimed under an alias is first stored under the consumer's name, so an older program that
// consumes the alias does not run a forwarded message again. This does not apply to ordered
// messages with a key.
func Forwards() ConsumerOption {
	return func(c *ConsumerConfig) { c.Forwards = true }
}

// set keeps a positive value. An explicit zero is a mistake, because zero in a ConsumerConfig
// means the default.
func set[N ~int | ~int64](c *ConsumerConfig, field string, target *N, value N) {
	if value <= 0 {
		c.mistakes = append(c.mistakes, fmt.Sprintf("%s %v: more than 0 is allowed", field, value))
		return
	}
	*target = value
}

// ordered reports whether the consumer runs the messages of one key in order.
func (c Consumer) ordered() bool { return c.config.Ordered != 0 }

// key returns the message's own key: from its event or its payload.
func (c Consumer) key(codec Codec, m *Message) (string, error) {
	switch {
	case m.Event != nil:
		return m.Event.Stream, nil
	case m.Value != nil:
		return keyOf(m.Value), nil
	case c.config.keyOf != nil:
		return c.config.keyOf(codec, m)
	}
	value, err := c.decode(codec, m)
	return keyOf(value), err
}

// keyed reports whether the consumer uses the keys of messages.
func (c Consumer) keyed() bool {
	return c.ordered() || c.config.Fair || c.config.KeyConcurrency > 0 || c.config.KeyRate > 0
}
