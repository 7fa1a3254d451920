package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// DeleteByTag deletes the schedules with the tag and returns their number, which may be 0. An empty
// tag is bus.ErrInvalidOption. Messages they have produced stay.
func (s *Scheduler) DeleteByTag(ctx context.Context, db bus.Handle, tag string) (n int, err error) {
	if tag == "" {
		return 0, fmt.Errorf("schedule: delete by tag: %w: the tag is empty", bus.ErrInvalidOption)
	}
	if err = limits.CheckKey("tag", tag); err == nil {
		err = s.writing(ctx, db, func(st *store.Store, tx bun.Tx) (err error) {
			n, err = st.Schedules.Delete(ctx, tx, store.ScheduleFilter{Tag: tag})
			return err
		})
	}
	return n, dberr.Wrap(err, "schedule: delete by tag %q", tag)
}

// DeleteByID deletes one schedule, or returns [ErrNotFound]. Messages it has produced stay.
func (s *Scheduler) DeleteByID(ctx context.Context, db bus.Handle, id int64) error {
	err := s.writing(ctx, db, func(st *store.Store, tx bun.Tx) error {
		if id == 0 { // a zero filter would select all
			return ErrNotFound
		}
		n, err := st.Schedules.Delete(ctx, tx, store.ScheduleFilter{ID: id})
		if err == nil && n == 0 {
			return ErrNotFound
		}
		return err
	})
	return dberr.Wrap(err, "schedule: delete %d", id)
}

// Pause stops a schedule from firing until [Scheduler.Resume], even if a fire time has already
// come. Pausing twice is allowed; a missing schedule is [ErrNotFound]. It takes effect when the
// transaction commits. A fire already in progress continues.
func (s *Scheduler) Pause(ctx context.Context, db bus.Handle, id int64) error {
	return s.change(ctx, db, "pause", id, func(store.Schedule, time.Time) (store.ScheduleChange, error) {
		return store.ScheduleChange{Paused: new(true)}, nil
	})
}

// Resume lets a paused schedule fire again, from the first fire time after now and after its last
// fire, which is later than now if the clock was set back. Fire times missed while it was paused are
// skipped, and an @every schedule counts from now. It does not change a schedule that is not paused.
// It returns [ErrNotFound], or [ErrExpression] if this version of the program cannot read the
// expression or zone.
func (s *Scheduler) Resume(ctx context.Context, db bus.Handle, id int64) error {
	return s.change(ctx, db, "resume", id, func(row store.Schedule, now time.Time) (store.ScheduleChange, error) {
		if !row.Paused {
			return store.ScheduleChange{Paused: new(false)}, nil
		}
		next, err := firstFire(row, row.CronExpression, row.CronTimezone, now)
		return store.ScheduleChange{Paused: new(false), AvailableAfter: next}, err
	})
}

// Trigger fires a schedule once, with the next poll of a processor, in addition to its fire times,
// which stay unchanged. A paused schedule fires this once, too. Calling Trigger again before it has
// fired changes nothing. It returns [ErrNotFound] for a missing schedule.
func (s *Scheduler) Trigger(ctx context.Context, db bus.Handle, id int64) error {
	return s.change(ctx, db, "trigger", id, func(store.Schedule, time.Time) (store.ScheduleChange, error) {
		return store.ScheduleChange{RunNow: true}, nil
	})
}

// UpdateSchedule sets the expression and zone of a schedule. It next fires at their first fire time
// after now and after its last fire, as in [Scheduler.Resume]. If the database's clock was ahead when
// it last fired, delete the schedule and write it again to fire earlier. A [Scheduler.Trigger] that
// has not fired yet is cancelled. It clears LastError, and a paused schedule stays paused. A program that
// writes the schedule by [Name] at boot overwrites the change.
//
// It returns [ErrExpression] before it accesses the database, and [ErrNotFound].
func (s *Scheduler) UpdateSchedule(ctx context.Context, db bus.Handle, id int64, expression, zone string) error {
	if err := checkExpression(expression, zone); err != nil {
		return fmt.Errorf("schedule: update schedule %d: %w", id, err)
	}
	return s.change(ctx, db, "update schedule", id, func(row store.Schedule, now time.Time) (store.ScheduleChange, error) {
		next, err := firstFire(row, expression, zone, now)
		return store.ScheduleChange{CronExpression: expression, CronTimezone: zone, AvailableAfter: next, Ran: true, Error: new("")}, err
	})
}

// UpdatePayload sets the payload of a schedule, which may be of another type, from its next fire
// on. It clears LastError; the next fire time stays. A program that writes the schedule by [Name]
// at boot overwrites the change.
//
// It returns [ErrNotFound], and the errors of [Scheduler.Upsert] for a payload.
func (s *Scheduler) UpdatePayload(ctx context.Context, db bus.Handle, id int64, payload bus.Payload) error {
	payloadType, text, schema, err := s.encode(payload, nil)
	if err != nil {
		return fmt.Errorf("schedule: update payload of %d: %w", id, err)
	}
	return s.change(ctx, db, "update payload of", id, func(row store.Schedule, _ time.Time) (store.ScheduleChange, error) {
		change := store.ScheduleChange{Payload: text, PayloadType: payloadType, Error: new("")}
		headers := store.Headers(row.Headers)
		if store.TakeSchema(headers) == schema {
			return change, nil
		}
		stored, err := store.EncodeHeaders(headers, store.Extras{Schema: schema})
		change.Headers = &stored
		return change, err
	})
}

// change changes one existing schedule. It locks the row before it reads the clock, so that a fire
// is either over or still to come.
func (s *Scheduler) change(
	ctx context.Context, db bus.Handle, what string, id int64,
	change func(row store.Schedule, now time.Time) (store.ScheduleChange, error),
) error {
	err := s.writing(ctx, db, func(st *store.Store, tx bun.Tx) error {
		if id == 0 { // a zero filter would select all
			return ErrNotFound
		}
		rows, now, err := st.Schedules.Lock(ctx, tx, store.ScheduleFilter{ID: id})
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return ErrNotFound
		}
		changed, err := change(rows[0], now)
		if err != nil {
			return err
		}
		_, err = st.Schedules.Update(ctx, tx, id, changed)
		return err
	})
	return dberr.Wrap(err, "schedule: %s %d", what, id)
}
