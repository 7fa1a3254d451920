package guide

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TenantParts work on the tables of one tenant.
type TenantParts struct {
	Producer  *outbox.Producer
	Processor *outbox.Processor
}

// OpenTenant creates the tables of a tenant, such as bus.Tables{Schema: "acme"}, and what works on them.
func OpenTenant(ctx context.Context, db *bun.DB, tables bus.Tables, consumers ...bus.Consumer) (*TenantParts, error) {
	registry, err := bus.RegistryConfig{Tables: tables}.NewRegistry(consumers...)
	if err != nil {
		return nil, err
	}
	if err := outbox.Migrate(ctx, db, tables); err != nil {
		return nil, err
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		return nil, err
	}
	processor, err := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{})
	return &TenantParts{Producer: producer, Processor: processor}, err
}
