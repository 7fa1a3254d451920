package access

import (
	"context"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
)

// Functions that run chains; immutable.
var (
	// Deliver runs a message through a chain that was composed without a handler, and ends in h. The
	// context has the message: see [bus.MessageFromContext].
	Deliver = hooks.Function[func(ctx context.Context, chain bus.Handler, m *bus.Message, h bus.Handler) error]("bus.Deliver")

	// ComposeProduce wraps produce in layers. The first layer listed is the outermost. If produce is
	// nil, [RunProduce] ends the chain with a function for each batch. A nil layer panics.
	ComposeProduce = hooks.Function[func(
		produce bus.ProduceFunc, layers ...bus.ProduceMiddleware,
	) bus.ProduceFunc]("bus.ComposeProduce")

	// RunProduce runs messages through a produce chain that was composed without a function. write
	// gets the messages that the layers pass on.
	RunProduce = hooks.Function[func(
		ctx context.Context, chain bus.ProduceFunc, messages []*bus.Message, write func(ctx context.Context, messages []*bus.Message) error,
	) error]("bus.RunProduce")
)
