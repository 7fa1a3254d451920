package sqlite

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// indexesSQL lists those of the file that has our tables.
const indexesSQL = `SELECT name, TRUE AS valid FROM sqlite_master WHERE type = 'index'`

// Diagnose has few questions: there is no server, and who deletes a row clears it. How far a commit is
// written is a setting of each connection, of which this is one of this program's; its journal Check
// looks at.
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
