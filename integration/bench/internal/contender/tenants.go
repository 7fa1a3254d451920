package contender

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// tenantsPool is how many connections all tenants share.
const tenantsPool = 20

// Tenants is a process of ours that serves so many tenants from one pool: each has a schema, a registry
// with one consumer and a processor of its own. It only runs.
func Tenants(n int, tracer pgx.QueryTracer) Contender {
	return Contender{Name: "ours-tenants", Open: func(ctx context.Context, dsn string, work Work) (System, error) {
		db, err := openBun(dsn, Variant{Pool: tenantsPool, Tracer: tracer}, work.Wire)
		if err != nil {
			return nil, err
		}
		t := &tenants{db: db, work: work}
		for i := range n {
			if err := t.add(ctx, fmt.Sprintf("tenant_%d", i)); err != nil {
				return nil, errors.Join(err, db.Close())
			}
		}
		return t, nil
	}}
}

type tenants struct {
	db   *bun.DB
	work Work
	runs []func(context.Context) error
}

func (t *tenants) add(ctx context.Context, schema string) error {
	config := bus.RegistryConfig{Tables: bus.Tables{Schema: schema}}
	registry, err := config.NewRegistry(bus.Consume("count", func(_ context.Context, payload Signup) error {
		t.work.Handle(payload)
		return nil
	}))
	if err != nil {
		return err
	}
	if err := outbox.Migrate(ctx, t.db, registry.Tables()); err != nil {
		return err
	}
	processor, err := outbox.NewProcessor(t.db, registry, outbox.ProcessorConfig{StartTimeout: time.Minute, Logger: logger()})
	if err != nil {
		return err
	}
	t.runs = append(t.runs, processor.Run)
	return nil
}

// Start implements System.
func (t *tenants) Start(ctx context.Context) (stop func() error, err error) {
	return background(ctx, t.work.Fail, t.runs...), nil
}

// Close implements System.
func (t *tenants) Close() error { return t.db.Close() }

var errOnlyRuns = errors.New("tenants: they only run")

// Produce implements System.
func (t *tenants) Produce(context.Context, []Signup) error { return errOnlyRuns }

// ProduceOne implements System.
func (t *tenants) ProduceOne(context.Context, Signup) error { return errOnlyRuns }

// Pending implements System.
func (t *tenants) Pending(context.Context) (bool, error) { return false, errOnlyRuns }

// Verify implements System.
func (t *tenants) Verify(context.Context) error { return errOnlyRuns }
