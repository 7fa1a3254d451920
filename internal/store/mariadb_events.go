package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"
)

// errNoEvents says what is missing here; there are no tables for events either.
var errNoEvents = fmt.Errorf("the event log is not available on MariaDB, it needs PostgreSQL or SQLite: %w", errors.ErrUnsupported) // immutable

func (m *mariadb) events() error { return errNoEvents }

func (m *mariadb) insertEvents(context.Context, bun.IDB, []*NewEvent) error { return errNoEvents }

func (m *mariadb) number(context.Context, *bun.DB, int) (int, error) { return 0, errNoEvents }

func (m *mariadb) gate(context.Context, bun.IDB, string, bool) error { return errNoEvents }
