package fxmodule

import (
	"cmp"
	"slices"

	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
)

type registryParams struct {
	fx.In

	Migration *migration
	DB        database
	Consumers []bus.Consumer     `group:"asyncmonolith.consumers"`
	Config    bus.RegistryConfig `optional:"true"`
	Types     *eventlog.Types    `optional:"true"`
}

// made is a registry or its mistakes. A constructor's error would follow the names of all its
// dependents; [refuseMistakes] returns it alone.
type made struct {
	registry *bus.Registry
	err      error
}

func makeRegistry(p registryParams) (m *made) {
	m = new(made)
	switch {
	case p.Types != nil && p.Config.Events != nil:
		m.err = bothProvided("fxmodule.EventLog", "bus.RegistryConfig.Events")
		return m
	case p.Types != nil:
		p.Config.Events = p.Types
	}
	if p.Config.Dialect == nil {
		p.Config.Dialect = p.DB.db.Dialect()
	}
	// fx shuffles groups, and mistakes are easier to compare in a fixed order.
	slices.SortStableFunc(p.Consumers, func(a, b bus.Consumer) int {
		return cmp.Or(cmp.Compare(a.Name(), b.Name()), cmp.Compare(a.PayloadType(), b.PayloadType()))
	})
	m.registry, m.err = p.Config.NewRegistry(p.Consumers...)
	return m
}

func newRegistry(m *made) (*bus.Registry, error) { return m.registry, m.err }

func refuseMistakes(m *made) error { return m.err }
