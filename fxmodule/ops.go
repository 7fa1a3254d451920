package fxmodule

import (
	"cmp"
	"log/slog"

	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

type serviceParams struct {
	fx.In

	DB       database
	Registry *bus.Registry
	Config   ops.Config   `optional:"true"`
	Logger   *slog.Logger `optional:"true"`
}

func newService(p serviceParams) (*ops.Service, error) {
	config := p.Config
	config.DB = cmp.Or(config.DB, p.DB.db)
	config.Registry = cmp.Or(config.Registry, p.Registry)
	config.Logger = cmp.Or(config.Logger, p.Logger)
	return ops.New(config)
}

type operationParams struct {
	fx.In

	Service *ops.Service
	Readers *projection.Runner `optional:"true"`
}

func newOperationRunner(p operationParams) (*ops.Runner, error) {
	return ops.NewRunner(p.Service, p.Readers)
}
