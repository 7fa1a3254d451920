package ops

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Session is the service for one principal. It is safe for concurrent use.
type Session struct{ access }

// access is what a principal may do with a service.
type access struct {
	service *Service
	who     Principal
}

// Messages returns what the principal may do with pending messages.
func (s *Session) Messages() *Messages { return &Messages{s.access} }

// Poisoned returns what the principal may do with poisoned messages.
func (s *Session) Poisoned() *Poisoned { return &Poisoned{s.access} }

// Consumers returns what the principal may do with consumers.
func (s *Session) Consumers() *Consumers { return &Consumers{s.access} }

// Schedules returns what the principal may do with schedules.
func (s *Session) Schedules() *Schedules { return &Schedules{s.access} }

// Projections returns what the principal may do with projections and log forwarders.
func (s *Session) Projections() *Projections { return &Projections{s.access} }

// Operations returns what the principal may do with operations: changes of many messages.
func (s *Session) Operations() *Operations { return &Operations{s.access} }

// Processes lists the processes seen within a duration, the last seen first.
func (s *Session) Processes(ctx context.Context, within time.Duration) ([]admin.Process, error) {
	return look(ctx, s.access, View, "", func(ctx context.Context, db bun.IDB) ([]admin.Process, error) {
		return s.service.admin.Processes(ctx, db, within)
	})
}

// FindInstallations lists up to 20 schemas and prefixes that hold tables of this library and are
// visible to the database user. Use it if the registry's tables are not found.
func (s *Session) FindInstallations(ctx context.Context) ([]bus.Tables, error) {
	return look(ctx, s.access, View, "", func(ctx context.Context, db bun.IDB) ([]bus.Tables, error) {
		return s.service.store.Schema.Installed(ctx, db)
	})
}
