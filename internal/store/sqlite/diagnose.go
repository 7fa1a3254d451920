package sqlite

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// indexesSQL lists the indexes of the file with our tables.
const indexesSQL = `SELECT name, TRUE AS valid FROM sqlite_master WHERE type = 'index'`

// Diagnose reads little: there is no server, and a delete clears its rows itself. How durable a
// commit is depends on each connection, of which this is one of this program's; Check looks at its
// journal.
func (s *database) Diagnose(ctx context.Context, db bun.IDB, part dialect.Vital) (d dialect.Diagnosis, err error) {
	switch part {
	case dialect.Weaknesses:
		var synchronous int
		if err = db.NewRaw(`PRAGMA synchronous`).Scan(ctx, &synchronous); err == nil && synchronous == 0 {
			d.Weaknesses = []dialect.Weakness{{Name: "synchronous", Value: "OFF", Want: "FULL, or NORMAL", Damages: true}}
		}
	case dialect.Indexes:
		err = db.NewRaw(indexesSQL).Scan(ctx, &d.Indexes)
	default:
		d.Absent = true
	}
	return d, err
}
