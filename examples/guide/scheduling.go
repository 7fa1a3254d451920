package guide

import (
	"context"
	"errors"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// ScheduleReports is called at every boot.
func ScheduleReports(ctx context.Context, db bun.IDB, scheduler *schedule.Scheduler) error {
	// snippet: schedule
	_, err := scheduler.Schedule(ctx, db, ReportDue{}, "0 30 6 * * MON-FRI", "Europe/Amsterdam",
		schedule.Name("morning-report"), schedule.Tag("reports"))
	// end
	return err
}

// HoldReports keeps reports from being made, but one now.
func HoldReports(ctx context.Context, db bun.IDB, scheduler *schedule.Scheduler) error {
	// snippet: manage
	reports, err := scheduler.List(ctx, db, schedule.Filter{Tag: "reports"})
	if err != nil {
		return err
	}
	for _, s := range reports {
		err = errors.Join(err,
			scheduler.Pause(ctx, db, s.ID),  // until Resume; what it misses is skipped
			scheduler.RunNow(ctx, db, s.ID)) // once, paused or not
	}
	// end
	return err
}
