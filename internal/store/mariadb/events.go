package mariadb

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// errNoEvents is returned for events: MariaDB has no tables for them.
var errNoEvents = fmt.Errorf(
	"the event log is not available on MariaDB, it needs PostgreSQL or SQLite: %w", errors.ErrUnsupported,
) // immutable

func (m *database) Events() error { return errNoEvents }

func (m *database) InsertEvents(context.Context, bun.IDB, []*dialect.NewEvent) error {
	return errNoEvents
}

func (m *database) AssignPositions(context.Context, *bun.DB, int) (int, error) { return 0, errNoEvents }

func (m *database) AdvisoryLock(context.Context, bun.IDB, string, bool) error { return errNoEvents }
