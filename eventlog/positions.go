package eventlog

import (
	"context"
	"math"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// AssignPositions assigns positions to committed events without one, and returns how many. Any
// number of processes may call it: one at a time does the work. The others wait until the events
// committed before their call have positions. A program that runs projections need not call it. On
// SQLite events have their positions from the start.
func (l *Log) AssignPositions(ctx context.Context, db *bun.DB) (total int, err error) {
	s, _, err := l.on(db)
	if err == nil {
		total, err = assignPositions(ctx, s, db)
	}
	return total, dberr.Wrap(err, "eventlog: assign positions")
}

func assignPositions(ctx context.Context, s *store.Store, db *bun.DB) (total int, err error) {
	last, err := s.EventLog.LastUnnumbered(ctx, db, math.MaxInt64)
	for last > 0 && err == nil {
		var n int
		if n, err = s.AssignPositions(ctx, db, numberPage); err != nil {
			break
		}
		if total += n; n == numberPage {
			continue
		}
		if n > 0 { // these were all
			break
		}
		// Another process is assigning positions. It may have begun before the last event was
		// committed.
		if last, err = s.EventLog.LastUnnumbered(ctx, db, last); last > 0 && err == nil {
			if !outage.Pause(ctx, numberPause) {
				err = context.Cause(ctx)
			}
		}
	}
	return total, err
}
