package operator

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Schedules shows and changes schedules. [Session.Schedules] returns it; it is safe for concurrent
// use.
type Schedules struct{ access *access }

// Schedule is a schedule as the principal may see it.
type Schedule struct {
	schedule.Schedule
	// Next are its next five fires, in its zone. It is empty while the schedule is paused or its
	// expression is invalid.
	Next []time.Time `json:"next,omitempty"`
	// Hidden is true if the payload, the headers and the error texts are not shown.
	Hidden bool `json:"hidden,omitempty"`
}

const nextFires = 5

// List lists schedules without contents, in the order of their creation. next is the
// following page, or nil if there is none.
func (s *Schedules) List(ctx context.Context, filter schedule.Filter, page admin.Page) (found []Schedule, next *admin.Page, err error) {
	rows, err := look(ctx, s.access, ops.View, "", func(ctx context.Context, db bun.IDB) ([]schedule.Schedule, error) {
		rows, after, err := s.access.Schedules.List(ctx, db, filter, admin.Page{Size: page.Size, After: page.After, Brief: true})
		if after != nil {
			next = &admin.Page{Size: after.Size, After: after.After}
		}
		return rows, err
	})
	return store.Each(rows, func(row schedule.Schedule) Schedule { return s.schedule(ctx, row) }), next, err
}

// Get returns one schedule, or schedule.ErrNotFound.
func (s *Schedules) Get(ctx context.Context, id int64) (Schedule, error) {
	row, err := look(ctx, s.access, ops.View, "", func(ctx context.Context, db bun.IDB) (schedule.Schedule, error) {
		return s.access.Schedules.Get(ctx, db, id)
	})
	if err != nil {
		return Schedule{}, err
	}
	return s.schedule(ctx, row), nil
}

func (s *Schedules) schedule(ctx context.Context, row schedule.Schedule) Schedule {
	errors := append([]string{row.LastError}, store.Each(row.Recent, func(f schedule.Fire) string { return f.Error })...)
	c, shown := s.access.Shown(ctx, ops.Content{PayloadType: row.PayloadType, Payload: row.Payload, Headers: row.Headers, Errors: errors})
	texts := make([]string, len(errors))
	copy(texts, c.Errors)
	row.Payload, row.Headers, row.LastError, row.Recent = c.Payload, c.Headers, texts[0], append([]schedule.Fire(nil), row.Recent...)
	for i := range row.Recent {
		row.Recent[i].Error = texts[i+1]
	}
	seen := Schedule{Schedule: row, Hidden: !shown}
	if !row.Paused {
		seen.Next = fires(row)
	}
	return seen
}

// fires are a schedule's next fires: the stored one, from which @every counts, and those after it.
// An invalid expression is in LastError.
func fires(row schedule.Schedule) []time.Time {
	after, err := schedule.Next(row.Expression, row.Zone, row.NextFire, nextFires-1)
	if err != nil || len(after) == 0 {
		return nil
	}
	return append([]time.Time{row.NextFire.In(after[0].Location())}, after...)
}

// Trigger fires a schedule once, in addition to its own times.
func (s *Schedules) Trigger(ctx context.Context, reason string, id int64) error {
	return s.changeSchedule(ctx, ops.RunSchedule, reason, id, s.access.Schedules.Trigger)
}

// Pause stops a schedule from firing until [Schedules.Resume].
func (s *Schedules) Pause(ctx context.Context, reason string, id int64) error {
	return s.changeSchedule(ctx, ops.PauseSchedule, reason, id, s.access.Schedules.Pause)
}

// Resume lets a paused schedule fire again, from its first time after now.
func (s *Schedules) Resume(ctx context.Context, reason string, id int64) error {
	return s.changeSchedule(ctx, ops.ResumeSchedule, reason, id, s.access.Schedules.Resume)
}

// Delete deletes a schedule for good. Messages that it produced stay.
func (s *Schedules) Delete(ctx context.Context, reason string, id int64) error {
	return s.changeSchedule(ctx, ops.DeleteSchedule, reason, id, s.access.Schedules.DeleteByID)
}

// Update sets a schedule's expression and time zone. The audit has the old and the new ones.
func (s *Schedules) Update(ctx context.Context, reason string, id int64, expression, zone string) error {
	if err := s.access.May(ops.UpdateSchedule); err != nil {
		return fmt.Errorf("ops: %s: %w", ops.UpdateSchedule, err)
	}
	old, err := s.Get(ctx, id)
	if err != nil {
		return err
	}
	target := ops.Target{Schedule: id, Expression: expression, Zone: zone, OldExpression: old.Expression, OldZone: old.Zone}
	change := ops.Change{Action: ops.UpdateSchedule, Reason: reason, Target: target}
	return s.access.Change(ctx, change, func(ctx context.Context, tx bun.Tx, _ []int64) (int, error) {
		return 0, s.access.Schedules.UpdateSchedule(ctx, tx, id, expression, zone)
	})
}

// NextFires returns the next five fires of an expression in a zone, from now on, or the library's
// sentence about what is wrong with them.
func NextFires(expression, zone string) (fires []time.Time, wrong string) {
	fires, err := schedule.Next(expression, zone, time.Now(), nextFires)
	if err != nil {
		wrong = strings.TrimPrefix(err.Error(), "schedule: next fires: ")
		wrong = strings.TrimPrefix(wrong, schedule.ErrExpression.Error()+": ")
	}
	return fires, wrong
}

func (s *Schedules) changeSchedule(
	ctx context.Context, a ops.Action, reason string, id int64, fn func(context.Context, bus.Handle, int64) error,
) error {
	change := ops.Change{Action: a, Reason: reason, Target: ops.Target{Schedule: id}}
	return s.access.Change(ctx, change, func(ctx context.Context, tx bun.Tx, _ []int64) (int, error) { return 0, fn(ctx, tx, id) })
}
