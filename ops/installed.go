package ops

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// FindInstallations lists up to 20 schemas and prefixes that hold tables of this library and are
// visible to the database user. Use it if the registry's tables are not found.
func (s *Session) FindInstallations(ctx context.Context) ([]bus.Tables, error) {
	return look(ctx, s.access, View, "", func(ctx context.Context, db bun.IDB) ([]bus.Tables, error) {
		return s.service.store.Schema.Installed(ctx, db)
	})
}
