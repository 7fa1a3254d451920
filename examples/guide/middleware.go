package guide

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

type tenantKey struct{}

// Tenant returns the tenant that a context belongs to.
func Tenant(ctx context.Context) string {
	tenant, _ := ctx.Value(tenantKey{}).(string)
	return tenant
}

// WithTenant returns a context that belongs to a tenant.
func WithTenant(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, tenantKey{}, tenant)
}

// snippet: produce-side

// StampTenant adds the tenant of the context as a header, unless the message has one.
var StampTenant = bus.PerMessage(func(ctx context.Context, m *bus.Message) error {
	if m.Headers["tenant"] != "" {
		return nil
	}
	if m.Headers == nil {
		m.Headers = make(map[string]string)
	}
	m.Headers["tenant"] = Tenant(ctx)
	return nil
})

// end

// snippet: consume-side

// RestoreTenant puts the header's tenant into the context of the consumer.
func RestoreTenant(next bus.Handler) bus.Handler {
	return func(ctx context.Context, m *bus.Message) error {
		tenant := m.Headers["tenant"]
		if err := next(WithTenant(ctx, tenant), m); err != nil {
			return fmt.Errorf("tenant %q: %w", tenant, err) // %w keeps the outcome
		}
		return nil
	}
}

// end

// Wire makes a producer and a processor with both.
func Wire(db *bun.DB, registry *bus.Registry, logger *slog.Logger) (*outbox.Producer, *outbox.Processor, error) {
	// snippet: wiring
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{
		Middleware: []bus.ProduceMiddleware{StampTenant},
	})
	if err != nil {
		return nil, nil, err
	}
	processor, err := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{
		Middleware: middleware.Default(middleware.Options{
			Logger:     logger,
			OnPoison:   Alarm(logger),
			Middleware: []bus.Middleware{RestoreTenant},
		}),
	})
	// end
	return producer, processor, err
}

// snippet: onpoison

// Alarm is called before a message is poisoned. After a crash it may be called twice.
func Alarm(logger *slog.Logger) middleware.OnPoison {
	return func(ctx context.Context, m *bus.Message, reason string, err error) {
		logger.ErrorContext(ctx, "message poisoned for good", "consumer", m.Consumer, "message_id", m.ID.String(), "reason", reason, "error", err)
	}
}

// end
