package bus

import (
	"context"
)

// Handler runs one delivered message. Its error decides the message's outcome: see [OutcomeOf].
// Handlers are called concurrently.
type Handler func(ctx context.Context, m *Message) error

// Middleware wraps a Handler. It is called once, when the chain is composed; the Handler it returns
// is called for every message, concurrently. That Handler may call next repeatedly but not
// concurrently, or not at all, and must wait for each call. At the end of the chain, a processor
// waits for a call that still runs and rejects later calls.
type Middleware func(next Handler) Handler

// Batch holds messages that were produced together, as they pass through the produce chain. A
// layer passes on the batch that it was given.
type Batch struct {
	// Messages are written atomically. Before it calls next, a layer may change, remove or add
	// messages. Added messages get an id. Each message is written once.
	Messages []*Message

	write func(ctx context.Context, messages []*Message) error
}

// ProduceFunc writes a batch of produced messages. Its error fails the whole batch. It is called
// concurrently.
type ProduceFunc func(ctx context.Context, b *Batch) error

// ProduceMiddleware wraps a ProduceFunc. It is called once, when the chain is composed; the
// ProduceFunc it returns is called for every batch, concurrently. It gets whole batches, so that
// bulk produces stay bulk; use [PerMessage] for a layer of single messages.
type ProduceMiddleware func(next ProduceFunc) ProduceFunc

// Compose wraps h in layers. The first layer listed is the outermost: it sees a message first and
// its outcome last. If h is nil, the library ends the chain with a handler for each message. A nil
// layer panics.
func Compose(h Handler, layers ...Middleware) Handler {
	if h == nil {
		h = deliver
	}
	for i := len(layers) - 1; i >= 0; i-- {
		h = layers[i](h)
	}
	return h
}

// composeProduce wraps produce in layers. The first layer listed is the outermost. If produce is
// nil, the library ends the chain with a function for each batch. A nil layer panics.
func composeProduce(produce ProduceFunc, layers ...ProduceMiddleware) ProduceFunc {
	if produce == nil {
		produce = write
	}
	for i := len(layers) - 1; i >= 0; i-- {
		produce = layers[i](produce)
	}
	return produce
}

// PerMessage turns a function of one message into a ProduceMiddleware. fn is called for the
// messages of a batch one after the other, before the batch is passed on. It is called concurrently
// for several batches. The first error stops the batch, and nothing is written.
func PerMessage(fn func(ctx context.Context, m *Message) error) ProduceMiddleware {
	return func(next ProduceFunc) ProduceFunc {
		return func(ctx context.Context, b *Batch) error {
			for _, m := range b.Messages {
				if err := fn(ctx, m); err != nil {
					return err
				}
			}
			return next(ctx, b)
		}
	}
}

type messageKey struct{}

// MessageFromContext returns the message that the handler of ctx handles, and false outside a
// handler.
func MessageFromContext(ctx context.Context) (*Message, bool) {
	m, ok := ctx.Value(messageKey{}).(*Message)
	return m, ok
}

// ContextWithMessage returns a context from which [MessageFromContext] returns m. The processor
// calls it for every delivery; handler tests may too.
func ContextWithMessage(ctx context.Context, m *Message) context.Context {
	return &messageContext{Context: ctx, message: m}
}

// messageContext is context.WithValue without its boxing and key comparison for every message.
type messageContext struct {
	context.Context
	message *Message
}

// Value returns the message, or the parent's value for any other key.
func (c *messageContext) Value(key any) any {
	if _, ok := key.(messageKey); ok {
		return c.message
	}
	return c.Context.Value(key)
}

// String keeps the message out of logs that print the context.
func (c *messageContext) String() string { return "bus.ContextWithMessage" }
