package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Fire is one time at which a schedule was to fire, as it is stored.
type Fire struct {
	Schedule int64  `json:"-"`
	Due      int64  `json:"due"`   // in microseconds since 1970, the precision of the database's instants
	Fired    int64  `json:"fired"` // the same
	Messages int    `json:"messages"`
	Error    string `json:"error,omitempty"`
}

// The bounds of the kept fires of a schedule.
const (
	firesKept      = 10
	fireErrorBytes = 512
)

// FiresOf decodes the stored last fires of a schedule, the oldest first.
func FiresOf(recent []byte) (fires []Fire) {
	if json.Unmarshal(recent, &fires) != nil {
		return nil // written by another version, or by hand
	}
	return fires
}

// NoteFires adds to the last fires of schedules that the transaction has locked.
func (s *ScheduleStore) NoteFires(ctx context.Context, tx bun.Tx, fires []Fire) error {
	if len(fires) == 0 {
		return nil
	}
	slices.SortStableFunc(fires, func(a, b Fire) int { return cmp.Compare(a.Schedule, b.Schedule) })
	ids := slices.Compact(dialect.Each(fires, func(f Fire) int64 { return f.Schedule }))
	var before []struct {
		ScheduleID int64
		Recent     []byte
	}
	err := s.names.Query(ctx, tx, `SELECT schedule_id, recent FROM {fires} WHERE schedule_id IN (?)`, bun.List(ids)).Scan(ctx, &before)
	if err != nil {
		return fmt.Errorf("last fires: %w", err)
	}
	recent := make(map[int64][]Fire, len(ids))
	for _, row := range before {
		recent[row.ScheduleID] = FiresOf(row.Recent)
	}
	for _, f := range fires {
		f.Error = errorlog.Clean(f.Error, fireErrorBytes)
		recent[f.Schedule] = append(recent[f.Schedule], f)
	}
	args := make([]any, 0, 2*len(ids))
	for _, id := range ids {
		all := recent[id]
		args = append(args, id, dialect.AsJSON(all[max(0, len(all)-firesKept):]))
	}
	err = s.names.Exec(ctx, tx, `INSERT INTO {fires}{as row} (schedule_id, recent) VALUES `+dialect.Rows("(?, ?)", len(ids))+" "+
		s.names.Merge("schedule_id", nil, []string{"recent"}), args...)
	return dberr.Wrap(err, "note fires")
}
