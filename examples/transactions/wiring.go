package main

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/schema"
	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/fxmodule"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/pgxtx"
)

// parts are the library's, on the pool of the application.
type parts struct {
	db        *bun.DB
	producer  *outbox.Producer
	processor *outbox.Processor
}

// snippet: wiring

// wire creates the tables and the parts. The application and the library share the pool.
func wire(ctx context.Context, pool *pgxpool.Pool, consumers ...bus.Consumer) (p parts, err error) {
	p.db = bun.NewDB(pgxtx.Open(pool), pgdialect.New()) // or your own *sql.DB
	registry, err := bus.RegistryConfig{Dialect: p.db.Dialect()}.NewRegistry(consumers...)
	if err != nil {
		return p, err
	}
	if err := outbox.Migrate(ctx, p.db, registry.Tables()); err != nil {
		return p, err
	}
	if p.producer, err = outbox.NewProducer(registry, outbox.ProducerConfig{}); err != nil {
		return p, err
	}
	p.processor, err = outbox.NewProcessor(p.db, registry, outbox.ProcessorConfig{})
	return p, err
}

// end

// withFx is the same with fx, which needs a *sql.DB and its dialect.
func withFx(pool *pgxpool.Pool, newConsumers func() []bus.Consumer) fx.Option {
	return fx.Options(
		fx.Provide(func(lifecycle fx.Lifecycle) (*sql.DB, schema.Dialect) {
			db := pgxtx.Open(pool) // or your own
			lifecycle.Append(fx.StopHook(db.Close))
			return db, pgdialect.New()
		}),
		fxmodule.Module,
		fxmodule.Migrate(),
		fxmodule.Consumers(newConsumers),
	)
}
