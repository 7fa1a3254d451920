package bus

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/access/hook"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

// What is not part of this package's API is for the library's other packages: see package
// internal/access.
var _ = hook.Provide(hook.Functions{
	Wakeups: func(registry any) *wakeup.Hub { return registry.(*Registry).wakeups },
	Events:  func(registry any) any { return registry.(*Registry).events },
	Dialect: func(registry any) any { return registry.(*Registry).dialect },
	Heartbeat: func(registry any) (time.Duration, string) {
		return registry.(*Registry).reports, registry.(*Registry).version
	},
	SetKey: func(registry, message any) error { return registry.(*Registry).setKey(message.(*Message)) },
	Deliver: func(ctx context.Context, chain, message, handler any) error {
		m := message.(*Message)
		m.handle = handler.(Handler)
		return chain.(Handler)(ContextWithMessage(ctx, m), m)
	},
	RunProduce: func(ctx context.Context, chain, messages, write any) error {
		b := &Batch{Messages: slices.Clone(messages.([]*Message)), write: write.(func(context.Context, []*Message) error)}
		return chain.(ProduceFunc)(ctx, b)
	},
	CheckPayload: func(consumer, codec, message any) error {
		_, err := consumer.(Consumer).decode(codec.(Codec), message.(*Message))
		return err
	},
	Schema: func(registry, message any) int { return registry.(*Registry).schema(message.(*Message)) },
	Upcasters: func(payload any) any {
		s, _ := schemasOf(payload) // NewRegistry reports the error
		return []Upcaster(s)
	},
	Upcast: func(ctx context.Context, upcasters any, schema int, text []byte) ([]byte, error) {
		return schemas(upcasters.([]Upcaster)).upcast(ctx, schema, text)
	},
	DecodeFailure: func(message any, goType reflect.Type, err error) error {
		m := message.(*Message)
		return stored{payloadType: m.PayloadType, created: m.CreatedAt}.failure(goType, err)
	},
	IsNewer: isNewer,
	GoType:  func(consumer any) reflect.Type { return consumer.(Consumer).goType },
	Reject: func(config any, text string) {
		c := config.(*ConsumerConfig)
		c.mistakes = append(c.mistakes, text)
	},
	ConsumeBatch: func(ctx context.Context, consumer, codec, batch any) []error {
		return consumer.(Consumer).consumeBatch(ctx, codec.(Codec), batch.([]*Message))
	},
	Raw:          func(consumer any) bool { return consumer.(Consumer).raw() },
	SetValue:     func(config, key, value any) { config.(*ConsumerConfig).setValue(key, value) },
	Value:        func(config, key any) any { return config.(*ConsumerConfig).values[key] },
	PayloadTypes: func(registry any) []string { return registry.(*Registry).payloadTypes() },
	Encode: func(registry, payload any) (string, []byte, error) {
		p, _ := payload.(Payload) // it may be nil
		return registry.(*Registry).encode(p)
	},
	Codec:        func(ctx context.Context) any { return codecFromContext(ctx) },
	CheckMessage: func(message any, maxPayload int) error { return message.(*Message).check(maxPayload) },
	CheckTables:  func(tables any) error { return tables.(Tables).validate() },
	NewestName:   func(config any, payloadType string) string { return config.(*ConsumerConfig).newestName(payloadType) },
})

// deliver is the end of a consume chain that was composed without a handler.
func deliver(ctx context.Context, m *Message) error {
	if m == nil || m.handle == nil {
		return errors.New("bus: a layer of the consume chain passed on a message of its own: that, or a copy, is allowed which it was given")
	}
	return m.handle(ctx, m)
}

// write is the end of a produce chain that was composed without a function.
func write(ctx context.Context, b *Batch) error {
	if b == nil || b.write == nil {
		return errors.New("bus: a layer of the produce chain passed on a batch of its own: only the one that it was given is allowed")
	}
	return b.write(ctx, b.Messages)
}
