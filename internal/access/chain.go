package access

import (
	"context"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access/hook"
)

// Deliver runs a message through a chain that was composed without a handler, and ends in h. The
// context has the message: see [bus.MessageFromContext].
func Deliver(ctx context.Context, chain bus.Handler, m *bus.Message, h bus.Handler) error {
	return hook.Bus.Deliver(ctx, chain, m, h)
}

// RunProduce runs messages through a produce chain that was composed without a function. write gets
// the messages that the layers pass on.
func RunProduce(
	ctx context.Context, chain bus.ProduceFunc, messages []*bus.Message, write func(ctx context.Context, messages []*bus.Message) error,
) error {
	return hook.Bus.RunProduce(ctx, chain, messages, write)
}
