package bus

import (
	"context"
	"errors"
	"slices"
)

// Handler runs one delivered message. Its error decides what becomes of the
// message: see [OutcomeOf]. Handlers are called by many goroutines at once.
type Handler func(ctx context.Context, m *Message) error

// Middleware wraps a Handler. It is called once, when the chain is composed;
// the Handler it returns is called for every message. It may call next repeatedly, one
// call at a time, or not at all, and must wait for each call. A processor waits at the
// end of the chain for a call that still runs, and refuses later ones.
type Middleware func(next Handler) Handler

// Batch is what was produced together, on its way down the produce chain. A layer
// passes on the batch that it was given.
type Batch struct {
	// Messages are written, all or none. Before it calls next a layer may change them,
	// leave some out, and add others, which are given an id. Each is sent on once.
	Messages []*Message

	write func(ctx context.Context, messages []*Message) error
}

// ProduceFunc writes a batch of produced messages. Its error fails the whole batch.
type ProduceFunc func(ctx context.Context, b *Batch) error

// ProduceMiddleware wraps a ProduceFunc. The batch is wrapped whole, so that bulk
// produces stay bulk; see [PerMessage] for a layer that needs single messages.
type ProduceMiddleware func(next ProduceFunc) ProduceFunc

// Compose wraps h in layers. The first layer listed is the outermost: it sees
// a message first and its outcome last. A nil h is the one that [Deliver] is given
// with each message.
func Compose(h Handler, layers ...Middleware) Handler {
	if h == nil {
		h = deliver
	}
	for i := len(layers) - 1; i >= 0; i-- {
		h = layers[i](h)
	}
	return h
}

// ComposeProduce wraps s in layers. The first layer listed is the outermost. A nil s is
// the one that [RunProduce] is given with each batch.
func ComposeProduce(s ProduceFunc, layers ...ProduceMiddleware) ProduceFunc {
	if s == nil {
		s = write
	}
	for i := len(layers) - 1; i >= 0; i-- {
		s = layers[i](s)
	}
	return s
}

// PerMessage turns a function of one message into a ProduceMiddleware: fn is
// called for every message of a batch before the batch goes on. The first error
// stops the batch, and nothing of it is written.
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

// Deliver sends a message down a chain, at whose end h handles it. The context has the message: see
// [MessageFromContext].
func Deliver(ctx context.Context, chain Handler, m *Message, h Handler) error {
	m.handle = h
	return chain(ContextWithMessage(ctx, m), m)
}

func deliver(ctx context.Context, m *Message) error {
	if m == nil || m.handle == nil {
		return errors.New("bus: a layer of the consume chain passed on a message of its own: that, or a copy, is allowed which it was given")
	}
	return m.handle(ctx, m)
}

// RunProduce sends messages down a produce chain, at whose end write gets what the layers
// have left of them.
func RunProduce(ctx context.Context, chain ProduceFunc, messages []*Message, write func(ctx context.Context, messages []*Message) error) error {
	return chain(ctx, &Batch{Messages: slices.Clone(messages), write: write})
}

func write(ctx context.Context, b *Batch) error {
	if b == nil || b.write == nil {
		return errors.New("bus: a layer of the produce chain passed on a batch of its own: only the one that it was given is allowed")
	}
	return b.write(ctx, b.Messages)
}

type messageKey struct{}

// MessageFromContext returns the message whose handler ctx belongs to, and false outside
// of a handler.
func MessageFromContext(ctx context.Context) (*Message, bool) {
	m, ok := ctx.Value(messageKey{}).(*Message)
	return m, ok
}

// ContextWithMessage returns a context from which [MessageFromContext] gives m. The processor
// calls it for every delivery; tests of handlers may, too.
func ContextWithMessage(ctx context.Context, m *Message) context.Context {
	return &messageContext{Context: ctx, message: m}
}

// messageContext is context.WithValue without the boxing and key comparison
// that would otherwise be paid on every message.
type messageContext struct {
	context.Context
	message *Message
}

// Value answers for the message and passes on every other key.
func (c *messageContext) Value(key any) any {
	if _, ok := key.(messageKey); ok {
		return c.message
	}
	return c.Context.Value(key)
}

// String keeps a log line that prints the context from printing the message with it.
func (c *messageContext) String() string { return "bus.ContextWithMessage" }
