package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/asyncmonolith/asyncmonolith-go/internal/steps"
)

// ErrNoSteps is returned by [Step] for a context that has no message whose results can be stored.
var ErrNoSteps = errors.New(
	"outbox: Step needs a consumer of single messages without a transaction, made by bus.Consume and run by a Processor")

// Step calls fn once for the message of the consumer's context, and stores the result with
// the message before it returns. Later attempts, in any process, return the stored result without
// calling fn.
//
//	receipt, err := outbox.Step(ctx, "charge", func(ctx context.Context) (Receipt, error) {
//		return gateway.Charge(ctx, order)
//	})
//
// An error of fn is returned, with the step's name, and nothing is stored: the next attempt calls
// fn again. The same happens if the process or the database is lost between the end of fn and the
// stored result. fn must tolerate that, for instance with an idempotency key. If Step cannot read or
// store a result because of the database, the attempt does not count: see [bus.ErrNotCounted]. A
// result is stored even if ctx has ended meanwhile. After a lost lease Step returns
// [bus.ErrLeaseLost] and stores nothing.
//
// The name identifies the step within its message. It has at most 255 bytes, and is used once per
// attempt unless fn fails. T is any type that the registry's Codec encodes and decodes. A message
// has at most 100 steps; a result has at most 64 KiB, all of them together 256 KiB
// ([bus.ErrTooLarge]). A result that exceeds a size limit or cannot be encoded as text poisons the
// message, because a retry would call fn again with the same result.
//
// Results are removed with the message. They stay with it while it is snoozed, retried, poisoned
// and requeued. An edit of the payload keeps them; a message that is replaced under its insert id
// loses them. Step returns [ErrNoSteps] for transactional consumers ([ConsumeTx]), for batches, and
// outside of a [Processor]. Tests use bustest.Steps. It is safe for concurrent use.
func Step[T any](ctx context.Context, name string, fn func(ctx context.Context) (T, error)) (result T, err error) {
	log := steps.From(ctx)
	if log == nil {
		return result, ErrNoSteps
	}
	err = log.Run(ctx, name, &result, func() (any, error) {
		result, err = fn(ctx)
		return result, err
	})
	if err != nil {
		return *new(T), fmt.Errorf("outbox: step %q: %w", name, err)
	}
	return result, nil
}
