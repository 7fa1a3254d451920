package mariadb

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

const anyUnprintedSQL = `SELECT EXISTS (SELECT 1 FROM {poisoned} WHERE consumer_type = ? AND fingerprint IS NULL)`

// PoisonGroups reads one group after the other: see nextPoisonedSQL.
func (m *database) PoisonGroups(
	ctx context.Context, db bun.IDB, consumer string, most int,
) (groups []dialect.GroupKey, whole bool, err error) {
	looks := 0
	next := func(statement string, args ...any) (name string, err error) {
		if looks++; looks > most {
			return "", nil
		}
		var found sql.NullString
		err = m.Query(ctx, db, statement, args...).Scan(ctx, &found)
		return found.String, err
	}
	only := consumer != ""
	for {
		if !only {
			if consumer, err = next(nextPoisonedSQL, consumer); err != nil || consumer == "" {
				return groups, looks <= most, err
			}
		}
		var unprinted bool
		if err := m.Query(ctx, db, anyUnprintedSQL, consumer).Scan(ctx, &unprinted); err != nil {
			return nil, false, err
		}
		if unprinted {
			groups = append(groups, dialect.GroupKey{ConsumerType: consumer})
		}
		for print := ""; ; {
			if print, err = next(nextPrintSQL, consumer, print); err != nil {
				return nil, false, err
			}
			if print == "" {
				break
			}
			groups = append(groups, dialect.GroupKey{ConsumerType: consumer, Fingerprint: print})
		}
		if only {
			return groups, looks <= most, nil
		}
	}
}
