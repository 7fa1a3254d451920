package guide

import (
	"context"
	"errors"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// ScheduleReports is called at every boot.
func ScheduleReports(ctx context.Context, db bun.IDB, scheduler *schedule.Scheduler) error {
	// snippet: sync
	err := scheduler.Sync(ctx, db, "reports", // the tag of these schedules
		schedule.Spec{Name: "morning-report", Payload: ReportDue{}, Expression: "0 30 6 * * MON-FRI", Zone: "Europe/Amsterdam"},
		schedule.Spec{Name: "year-end-report", Payload: ReportDue{}, Expression: "0 0 12 31 12 *", Zone: "Europe/Amsterdam"})
	// end
	return err
}

// ScheduleReport writes one schedule of many that belong to no set.
func ScheduleReport(ctx context.Context, db bun.IDB, scheduler *schedule.Scheduler) error {
	// snippet: schedule
	_, err := scheduler.Upsert(ctx, db, ReportDue{}, "0 30 6 * * MON-FRI", "Europe/Amsterdam",
		schedule.Name("evening-report"), schedule.Tag("more-reports"))
	// end
	return err
}

// Preview returns when an expression fires next, for a form in which people write one.
func Preview(expression, zone string, now time.Time) ([]time.Time, error) {
	// snippet: preview
	fires, err := schedule.Next(expression, zone, now, 5) // or an error with the allowed values
	// end
	return fires, err
}

// snippet: fired

// Report consumes what a schedule produces.
func (s *Shop) Report(ctx context.Context, _ ReportDue) error {
	day, ok := schedule.ScheduledTimeFromContext(ctx) // in UTC: 5:30 in winter, even if it runs at noon
	if !ok {
		day = time.Now() // not produced by a schedule
	}
	return s.Write(ctx, "report of "+day.Format(time.DateOnly))
}

// end

// HoldReports keeps reports from being made, but one now.
func HoldReports(ctx context.Context, db bun.IDB, scheduler *schedule.Scheduler) error {
	// snippet: manage
	reports, _, err := scheduler.List(ctx, db, schedule.Filter{Tag: "reports"}, admin.Page{})
	if err != nil {
		return err
	}
	for _, s := range reports {
		err = errors.Join(err,
			scheduler.Pause(ctx, db, s.ID),   // until Resume; missed fires are skipped
			scheduler.Trigger(ctx, db, s.ID)) // fires once now, even if paused
	}
	// end
	return err
}
