package bus

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/uptrace/bun/schema"

	"github.com/asyncmonolith/asyncmonolith-go/internal/handoff"
	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

// Package internal/access has these for the library's other packages.
var _ = hooks.Provide(hooks.Functions{
	"bus.CheckMessage": (*Message).check,
	"bus.CheckStored": func(c Consumer, codec Codec, m *Message) error {
		_, err := c.decode(codec, m)
		return err
	},
	"bus.CheckTables": Tables.validate,
	"bus.CodecFromContext": func(ctx context.Context) Codec {
		codec, _ := ctx.Value(codecKey{}).(Codec)
		return codec
	},
	"bus.ConsumeBatch": func(ctx context.Context, c Consumer, codec Codec, batch []*Message) []error {
		return c.batch(ctx, codec, batch, c.ordered())
	},
	"bus.DecodeFailure": func(m *Message, goType reflect.Type, err error) error {
		return stored{payloadType: m.PayloadType, created: m.CreatedAt}.failure(goType, err)
	},
	"bus.Deliver": func(ctx context.Context, chain Handler, m *Message, h Handler) error {
		m.handle = h
		return chain(ContextWithMessage(ctx, m), m)
	},
	"bus.Dialect": func(r *Registry) schema.Dialect {
		if r == nil {
			return nil
		}
		return r.dialect
	},
	"bus.ComposeProduce": composeProduce,
	"bus.ConsumersOf":    (*Registry).consumersOf,
	"bus.Encode":         (*Registry).encode,
	"bus.Events":         func(r *Registry) EventTypes { return r.events },
	"bus.GoType":         func(c Consumer) reflect.Type { return c.goType },
	"bus.HandOffs":       func(r *Registry) *handoff.Hub { return r.handOffs },
	"bus.Heartbeat":      func(r *Registry) (time.Duration, string) { return r.reports, r.version },
	"bus.IsNewer":        isNewer,
	"bus.NewestName":     (*ConsumerConfig).newestName,
	"bus.PayloadTypes":   (*Registry).payloadTypes,
	"bus.StandBack":      standBack,
	"bus.Raw":            Consumer.raw,
	"bus.Reject":         func(c *ConsumerConfig, text string) { c.mistakes = append(c.mistakes, text) },
	"bus.RunProduce": func(ctx context.Context, chain ProduceFunc, messages []*Message, write func(context.Context, []*Message) error) error {
		return chain(ctx, &Batch{Messages: slices.Clone(messages), write: write})
	},
	"bus.Schema":   (*Registry).schema,
	"bus.SetKey":   (*Registry).setKey,
	"bus.SetKeyOf": func(c *ConsumerConfig, keyOf func(Codec, *Message) (string, error)) { c.keyOf = keyOf },
	"bus.SetValue": (*ConsumerConfig).setValue,
	"bus.Upcast": func(ctx context.Context, upcasters []Upcaster, schema int, text []byte) ([]byte, error) {
		return schemas(upcasters).upcast(ctx, schema, text)
	},
	"bus.Upcasters": func(zero any) []Upcaster {
		s, _ := schemasOf(zero) // NewRegistry reports the error
		return s
	},
	"bus.Value":   func(c *ConsumerConfig, key any) any { return c.values[key] },
	"bus.Wakeups": func(r *Registry) *wakeup.Hub { return r.wakeups },
})

// deliver is the end of a consume chain that was composed without a handler.
func deliver(ctx context.Context, m *Message) error {
	if m == nil || m.handle == nil {
		return errors.New("bus: a layer of the consume chain passed on a message of its own: " +
			"only the message that it was given, or a copy, is allowed")
	}
	return m.handle(ctx, m)
}

// write is the end of a produce chain that was composed without a function.
func write(ctx context.Context, b *Batch) error {
	if b == nil || b.write == nil {
		return errors.New("bus: a layer of the produce chain passed on a batch of its own: only the batch that it was given is allowed")
	}
	return b.write(ctx, b.Messages)
}
