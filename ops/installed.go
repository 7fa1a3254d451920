package ops

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// FindInstallations lists the schemas and prefixes under which the database has tables of this
// library, as far as its user sees them, 20 at most. It helps if the registry's tables are not
// found.
func (s *Session) FindInstallations(ctx context.Context) ([]bus.Tables, error) {
	return look(ctx, s, View, "", func(ctx context.Context, db bun.IDB) ([]bus.Tables, error) {
		return s.service.store.Installed(ctx, db)
	})
}
