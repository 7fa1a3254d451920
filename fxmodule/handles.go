package fxmodule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"

	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// migration is a dependency of everything else, so that its hook comes first.
type migration struct{}

type migrationParams struct {
	fx.In

	Lifecycle fx.Lifecycle
	DB        database
	Config    bus.RegistryConfig `optional:"true"`
	Wanted    *migrating         `optional:"true"`
}

func newMigration(p migrationParams) *migration {
	if p.Wanted != nil {
		p.Lifecycle.Append(fx.StartHook(func(ctx context.Context) error {
			return outbox.Migrate(ctx, p.DB.db, p.Config.Tables)
		}))
	}
	return &migration{}
}

// handles are values that constructors of consumers may take, although they are made from the
// registry of these consumers. At first they are empty and return an error; [fill] fills them in
// before the application starts. The application may decorate the values it gets, so fill does not
// get them from fx.
type handles struct {
	producer  *outbox.Producer
	scheduler *schedule.Scheduler
	store     *poison.Store
	admin     *admin.Client
}

func newHandles(*migration) (*handles, *outbox.Producer, *schedule.Scheduler, *poison.Store, *admin.Client) {
	h := &handles{new(outbox.Producer), new(schedule.Scheduler), new(poison.Store), new(admin.Client)}
	return h, h.producer, h.scheduler, h.store, h.admin
}

type fillParams struct {
	fx.In

	Handles         *handles
	Registry        *bus.Registry
	Telemetry       *amotel.Telemetry
	Layers          ProduceMiddleware        `optional:"true"`
	ProducerConfig  outbox.ProducerConfig    `optional:"true"`
	SchedulerConfig schedule.SchedulerConfig `optional:"true"`
	Logger          *slog.Logger             `optional:"true"`
}

// fill makes the values and copies them into the handles. A copy is safe because the types are
// immutable and have no lock. Their methods return an error on the zero value.
func fill(p fillParams) error {
	producer, producerErr := newProducer(p)
	config := p.SchedulerConfig
	if config.Headers == nil && p.Telemetry != nil {
		config.Headers = p.Telemetry.Headers
	}
	scheduler, schedulerErr := schedule.NewScheduler(p.Registry, config)
	store, storeErr := poison.NewStore(p.Registry)
	client, adminErr := admin.NewClient(p.Registry)
	if err := errors.Join(producerErr, schedulerErr, storeErr, adminErr); err != nil {
		return err
	}
	*p.Handles.producer, *p.Handles.scheduler, *p.Handles.store, *p.Handles.admin = *producer, *scheduler, *store, *client
	return nil
}

func newProducer(p fillParams) (*outbox.Producer, error) {
	config := p.ProducerConfig
	if config.Middleware != nil && p.Layers != nil {
		return nil, bothProvided("fxmodule.ProduceMiddleware", "outbox.ProducerConfig.Middleware")
	}
	config.Middleware = append(config.Middleware, p.Layers...) // one of them is nil
	config.Logger = cmp.Or(config.Logger, p.Logger)
	if config.Telemetry == nil && p.Telemetry != nil {
		config.Telemetry = p.Telemetry.Produce()
	}
	return outbox.NewProducer(p.Registry, config)
}

func bothProvided(one, other string) error {
	return fmt.Errorf("fxmodule: both %s and %s are provided: one of them is allowed", one, other)
}
