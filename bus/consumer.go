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

// Consumer is a named function for one payload type, ready to be registered.
// It is a value made by [Consume], or by outbox.ConsumeTx, and never changes.
type Consumer struct {
	name        string
	payloadType string
	goType      reflect.Type // nil if it takes messages as they are
	declared    bool         // another program runs it
	config      ConsumerConfig
	consume     func(ctx context.Context, codec Codec, payload []byte) error
	batch       func(ctx context.Context, codec Codec, batch []*Message, ordered bool) []error // nil if it takes one at a time
	decode      func(codec Codec, payload []byte) (value any, err error)                       // the value is nil if it takes messages as they are
	mistakes    []error
}

// Consume makes a consumer out of fn. The name is stored with every message, so
// keep it stable; see [Aliases] for renaming. Mistakes, such as an empty name
// or a pointer payload, are reported by [NewRegistry].
func Consume[T Payload](name string, fn func(context.Context, T) error, options ...ConsumerOption) Consumer {
	c := consumerOf[T](name)
	c.set(fn == nil, options)
	c.consume = func(ctx context.Context, codec Codec, payload []byte) error {
		var value T
		if err := decodeInto(codec, c.payloadType, payload, &value); err != nil {
			return err
		}
		return fn(ctx, value)
	}
	return c
}

// consumerOf makes a consumer of one payload type that does not know yet what to do.
func consumerOf[T Payload](name string) Consumer {
	c := Consumer{name: name}
	var err error
	if c.payloadType, c.goType, err = payloadTypeOf[T](); err != nil {
		c.mistake("%w", err)
	}
	c.decode = func(codec Codec, payload []byte) (any, error) {
		var value T
		err := decodeInto(codec, c.payloadType, payload, &value)
		return value, err
	}
	return c
}

// set applies the options, and notes what is wrong with them, with the name and the function.
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

// decodeInto decodes, and takes a panic of the codec, or of the payload's own
// unmarshalling, for what it is: a payload that cannot be read.
func decodeInto[T any](codec Codec, payloadType string, payload []byte, value *T) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
		if err != nil {
			err = Permanent(&DecodeError{PayloadType: payloadType, GoType: reflect.TypeFor[T]().String(), Err: err})
		}
	}()
	return codec.Decode(payload, value)
}

// Name returns the stored name of the consumer.
func (c Consumer) Name() string { return c.name }

// Raw reports whether it takes messages as they are: it was made by [ConsumeRaw].
func (c Consumer) Raw() bool { return c.goType == nil }

// Forwards reports whether it passes messages on: see the function [Forwards].
func (c Consumer) Forwards() bool { return c.config.Forwards }

// PayloadType returns the stored name of the payload it consumes, the first of several.
func (c Consumer) PayloadType() string { return c.payloadType }

// Config returns a copy of the consumer's own configuration; zero fields stand
// for the processor's defaults.
func (c Consumer) Config() ConsumerConfig { return c.config.clone() }

// Consume decodes payload and calls the consumer's function. A payload that
// does not fit is a [Permanent] *[DecodeError]. One of batches gets a batch of one: the
// context's message, with that payload.
func (c Consumer) Consume(ctx context.Context, codec Codec, payload []byte) error {
	return c.consume(ctx, codec, payload)
}

// ConsumeBatch is [Consumer.Consume] for several messages, and returns what became of each.
// It is for consumers whose configuration has a BatchSize.
func (c Consumer) ConsumeBatch(ctx context.Context, codec Codec, batch []*Message) []error {
	return c.batch(ctx, codec, batch, c.Ordered())
}

// CheckPayload decodes payload without consuming it.
func (c Consumer) CheckPayload(codec Codec, payload []byte) error {
	_, err := c.decode(codec, payload)
	return err
}

// Names returns the consumer types under which messages for it are stored: its
// name, then its aliases.
func (c Consumer) Names() []string { return append([]string{c.name}, c.config.Aliases...) }

// PayloadTypes returns the payload types it consumes: its own, then its aliases.
func (c Consumer) PayloadTypes() []string {
	return append([]string{c.payloadType}, c.config.PayloadAliases...)
}

// ConsumerConfig is what a consumer's options set. Zero fields mean the
// processor's default.
type ConsumerConfig struct {
	// Timeout bounds one run. Defaults to ProcessorConfig.DefaultTimeout.
	Timeout time.Duration
	// MaxAttempts is the number of failed runs after which a message is
	// poisoned. Defaults to ProcessorConfig.MaxAttempts.
	MaxAttempts int
	// AttemptDelay is the wait after the first failed run. Defaults to
	// ProcessorConfig.AttemptDelay.
	AttemptDelay time.Duration
	// Backoff gives the wait before the next run. Defaults to the backoff of
	// the attempts middleware.
	Backoff func(attempt int) time.Duration
	// Concurrency bounds how many messages one process runs at once for this
	// consumer. Defaults to no bound but the processor's.
	Concurrency int
	// GlobalConcurrency bounds how many calls of the consumer run at once in all processes together.
	// Zero is no bound.
	GlobalConcurrency int
	// SharedConcurrency is the name of the limit that consumers share. Empty stands for the
	// consumer's own.
	SharedConcurrency string
	// Rate is how many runs of the consumer start in each RatePer, in all processes together,
	// and RateBurst how many at once after fewer have. Zero is no bound.
	Rate      int
	RatePer   time.Duration
	RateBurst int
	// Aging is the head start that a level of priority is worth. Zero is no priorities.
	Aging time.Duration
	// Breaker configures the circuit breaker of the consumer: see [CircuitBreaker]. Nil is none.
	Breaker *CircuitBreakerConfig
	// Ordered says that messages of one key run in order, and what a poisoned one does to
	// those behind it. Zero is no order.
	Ordered PoisonPolicy
	// KeyConcurrency is how many messages of one key run at once in all processes together, in any
	// order. Zero is no bound, and with Fair each key has its share all the same.
	KeyConcurrency int
	Fair           bool
	// KeyRate is how many runs of one key start in each KeyRatePer, in all processes together,
	// and KeyRateBurst how many at once after fewer have. Zero is no bound.
	KeyRate      int
	KeyRatePer   time.Duration
	KeyRateBurst int
	// BatchSize is how many messages the consumer gets at once, at most. Zero stands for a
	// consumer of single messages.
	BatchSize int
	// BatchWait is how long a message waits for others while its batch is not full.
	BatchWait time.Duration
	// Forwards says that the consumer passes messages on to other programs: see [Forwards].
	Forwards bool
	// Aliases are former names of the consumer.
	Aliases []string
	// PayloadAliases are former names of the payload type.
	PayloadAliases []string

	renamed  map[string]string // present names of events, by former ones
	values   map[any]any
	mistakes []string // of the options
}

// Value returns what [ConsumerConfig.SetValue] stored under key, or nil.
func (c *ConsumerConfig) Value(key any) any { return c.values[key] }

// SetValue stores a setting of a package above bus. As with context values, key
// should be of an unexported type of that package.
func (c *ConsumerConfig) SetValue(key, value any) {
	if c.values == nil {
		c.values = make(map[any]any)
	}
	c.values[key] = value
}

// NewestName returns the present name of an event, given that or a former one which its
// eventlog.Types have; any other payload type as it is.
func (c *ConsumerConfig) NewestName(payloadType string) string {
	return cmp.Or(c.renamed[payloadType], payloadType)
}

// Mistake has NewRegistry refuse the consumer, for an option of a package above bus that finds
// something wrong. The text says what, and what is allowed.
func (c *ConsumerConfig) Mistake(text string) { c.mistakes = append(c.mistakes, text) }

func (c ConsumerConfig) clone() ConsumerConfig {
	c.Aliases = slices.Clone(c.Aliases)
	c.PayloadAliases = slices.Clone(c.PayloadAliases)
	c.values, c.renamed = maps.Clone(c.values), maps.Clone(c.renamed)
	return c
}

// validate notes the mistakes of the options.
func (c *Consumer) validate() {
	config := &c.config
	for _, text := range config.mistakes {
		c.mistake("%s", text)
	}
	if config.Timeout > limits.Timeout {
		c.mistake("Timeout %s: up to %s is allowed", config.Timeout, limits.Timeout)
	}
	for _, set := range []struct {
		field string
		value int
	}{{"Timeout", int(config.Timeout)}, {"MaxAttempts", config.MaxAttempts}, {"AttemptDelay", int(config.AttemptDelay)}, {"Concurrency", config.Concurrency},
		{"GlobalConcurrency", config.GlobalConcurrency}, {"BatchSize", config.BatchSize}, {"BatchWait", int(config.BatchWait)}} {
		if set.value < 0 { // by an option of a package above bus
			c.mistake("%s %d: more than 0 is allowed", set.field, set.value)
		}
	}
	c.validateBatch()
	c.validateKeys()
	c.validateBreaker()
	c.validateLimits()
	for _, alias := range config.Aliases {
		if err := limits.CheckName(alias); err != nil {
			c.mistake("alias %q %w", alias, err)
		}
	}
	for _, alias := range config.PayloadAliases {
		if err := limits.CheckName(alias); err != nil {
			c.mistake("payload alias %q %w", alias, err)
		}
	}
}

// ConsumerOption sets one thing about a consumer.
type ConsumerOption func(*ConsumerConfig)

// Timeout bounds one run of the consumer: up to 1 h. After it the handler's
// context is cancelled with [ErrTimeout] as its cause.
func Timeout(d time.Duration) ConsumerOption {
	return func(c *ConsumerConfig) { set(c, "Timeout", &c.Timeout, d) }
}

// MaxAttempts is the number of failed runs after which a message is poisoned.
func MaxAttempts(n int) ConsumerOption {
	return func(c *ConsumerConfig) { set(c, "MaxAttempts", &c.MaxAttempts, n) }
}

// AttemptDelay is the wait after the first failed run, before the backoff's
// jitter.
func AttemptDelay(d time.Duration) ConsumerOption {
	return func(c *ConsumerConfig) { set(c, "AttemptDelay", &c.AttemptDelay, d) }
}

// Backoff replaces the wait between failed runs: b gives the wait before the next run
// after the given failed attempt, counted from 1. It is called by many goroutines at once.
func Backoff(b func(attempt int) time.Duration) ConsumerOption {
	return func(c *ConsumerConfig) {
		if c.Backoff = b; b == nil {
			c.mistakes = append(c.mistakes, "Backoff: the function is nil")
		}
	}
}

// Concurrency bounds how many messages one process runs at once for this
// consumer.
func Concurrency(n int) ConsumerOption {
	return func(c *ConsumerConfig) { set(c, "Concurrency", &c.Concurrency, n) }
}

// Aliases lists former names of the consumer, so that messages stored under
// them are still consumed.
func Aliases(names ...string) ConsumerOption {
	return func(c *ConsumerConfig) { c.Aliases = append(c.Aliases, names...) }
}

// PayloadAliases lists former names of the payload type, so that payloads
// stored under them are still consumed.
func PayloadAliases(payloadTypes ...string) ConsumerOption {
	return func(c *ConsumerConfig) { c.PayloadAliases = append(c.PayloadAliases, payloadTypes...) }
}

// Forwards is for consumers that pass messages on to other programs, as relay.NewForwarder does,
// also where they are declared: what else messages have goes with them.
//
// Keys are stored for such a consumer, too, which does not go by them, so that
// [Message.OrderingKey] has them. Its runs, however late, belong to the trace that created the
// message. A message that it takes under an alias is stored under its name before it runs, unless
// its key keeps it in order. So an older program, which consumes by the alias, does not run again
// what was passed on.
func Forwards() ConsumerOption {
	return func(c *ConsumerConfig) { c.Forwards = true }
}

// set keeps a value that is more than zero. An explicit zero is a mistake, since
// in a ConsumerConfig zero stands for the default.
func set[N ~int | ~int64](c *ConsumerConfig, field string, target *N, value N) {
	if value <= 0 {
		c.mistakes = append(c.mistakes, fmt.Sprintf("%s %v: more than 0 is allowed", field, value))
		return
	}
	*target = value
}
