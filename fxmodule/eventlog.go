package fxmodule

import (
	"cmp"
	"errors"
	"slices"

	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
)

// EventLog gives the application an event log with these events. It provides *eventlog.Types,
// *eventlog.Log and *projection.Runner. Constructors of consumers and projections may take the log
// and use it from OnStart on. [Module] starts and stops the runner with the processors. The
// application may provide eventlog.LogConfig and projection.RunnerConfig as values.
// [ConsumeMiddleware] does not apply to projections; use projection.RunnerConfig.Chain. Give
// EventLog to an application once, together with Module.
func EventLog(types ...eventlog.Type) fx.Option {
	return fx.Options(
		fx.Provide(func() (*eventlog.Types, error) { return eventlog.NewTypes(types...) }, newLogHandle, newRunner),
		fx.Invoke(func(*projection.Runner) {}), // report its mistakes at start
	)
}

// Projections registers projections, as [Consumers] does consumers: each argument is a
// projection.Projection, a []projection.Projection, or a constructor of either. It needs
// [EventLog].
func Projections(projections ...any) fx.Option {
	return fx.Options(fx.Invoke(needEventLog), members[projection.Projection]("Projections", projectionsGroup, projections))
}

type needEventLogParams struct {
	fx.In

	Types *eventlog.Types `optional:"true"`
}

// needEventLog returns an error for projections without an event log.
func needEventLog(p needEventLogParams) error {
	if p.Types == nil {
		return errors.New("fxmodule: Projections need an event log: add fxmodule.EventLog to the application")
	}
	return nil
}

const projectionsGroup = "asyncmonolith.projections"

// newLogHandle returns an empty log that is filled in before the application starts, like
// [handles]: consumers are made with it, and it is made from their registry.
func newLogHandle(*migration) *eventlog.Log { return new(eventlog.Log) }

type runnerParams struct {
	fx.In

	Base        base
	Handles     *handles
	Log         *eventlog.Log
	LogConfig   eventlog.LogConfig      `optional:"true"`
	Config      projection.RunnerConfig `optional:"true"`
	Projections []projection.Projection `group:"asyncmonolith.projections"`
}

// newRunner fills in the log and makes its runner.
func newRunner(p runnerParams) (*projection.Runner, error) {
	log, err := eventlog.NewLog(p.Base.Registry, p.Handles.producer, p.LogConfig)
	if err != nil {
		return nil, err
	}
	*p.Log = *log
	config := p.Config
	p.Base.complete(&config.Logger, &config.Telemetry, (*amotel.Telemetry).Apply)
	slices.SortStableFunc(p.Projections, func(a, b projection.Projection) int { // fx shuffles groups
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return projection.NewRunner(p.Base.DB.db, p.Log, config, p.Projections...)
}
