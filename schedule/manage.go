package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Schedule is a row of the table as [Scheduler.List] shows it. Its instants are
// in UTC, on the database's clock.
type Schedule struct {
	ID          int64
	Name        string // empty: unnamed
	Tag         string // empty: untagged
	PayloadType string
	Payload     []byte            // as the registry's codec encoded it
	Headers     map[string]string // nil: none
	Expression  string            // as it was written
	Zone        string
	// NextFire is when it fires next. While it is paused, that is when it would
	// have; [Scheduler.Resume] sets it anew. One that stays in the past although
	// processors run has a payload type that none of them has registered: they
	// log a warning.
	NextFire time.Time
	Paused   bool
	// LastFire is when it last fired; zero means never.
	LastFire time.Time
	// LastError says why it could not fire: an expression, zone or payload that
	// this version of the program cannot read, or an error of the produce chain.
	// It is tried again after a minute, and the text goes with the next fire or
	// with an update. At most 8 KiB.
	LastError string
	// CreatedAt is when it was written first.
	CreatedAt time.Time
}

// Filter selects schedules. Fields that are set must match exactly, and all of
// them. The zero value selects all.
type Filter struct {
	Name string
	Tag  string
}

// List returns the schedules that match, in the order in which they were first
// written. It returns all of them, payloads included, without a limit: keep
// schedules to what a table may hold that is read as a whole. Given a
// transaction it reads there.
func (s *Scheduler) List(ctx context.Context, db bun.IDB, filter Filter) ([]Schedule, error) {
	var out []Schedule
	err := s.reading(db, func(st *store.Store) error {
		rows, err := st.Schedules(ctx, db, store.ScheduleFilter{Name: filter.Name, Tag: filter.Tag})
		for _, row := range rows {
			out = append(out, shown(row))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("schedule: list: %w", err)
	}
	return out, nil
}

func shown(row store.Schedule) Schedule {
	s := Schedule{ID: row.ID, Name: row.Name, Tag: row.Tag, PayloadType: row.PayloadType, Payload: row.Payload,
		Expression: row.CronExpression, Zone: row.CronTimezone, NextFire: row.AvailableAfter.Time, Paused: row.Paused,
		LastFire: row.LastFiredAt.Time, LastError: row.LastError, CreatedAt: row.CreatedAt.Time}
	if len(row.Headers) > 0 {
		_ = json.Unmarshal(row.Headers, &s.Headers) // written by us
	}
	return s
}

// DeleteByTag deletes the schedules with the tag and returns how many there were;
// none is no error. An empty tag is bus.ErrBadOption. Messages they have produced
// stay.
func (s *Scheduler) DeleteByTag(ctx context.Context, db bun.IDB, tag string) (n int, err error) {
	if tag == "" {
		return 0, fmt.Errorf("schedule: delete by tag: %w: the tag is empty", bus.ErrBadOption)
	}
	err = s.writing(ctx, db, func(st *store.Store) (err error) {
		n, err = st.DeleteSchedules(ctx, db, store.ScheduleFilter{Tag: tag})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("schedule: delete by tag %q: %w", tag, err)
	}
	return n, nil
}

// DeleteByID deletes one schedule. It returns [ErrNotFound] when there is none.
// Messages it has produced stay.
func (s *Scheduler) DeleteByID(ctx context.Context, db bun.IDB, id int64) error {
	return s.one(ctx, db, "delete", id, func(st *store.Store) (bool, error) {
		if id == 0 { // a zero filter would select all
			return false, nil
		}
		n, err := st.DeleteSchedules(ctx, db, store.ScheduleFilter{ID: id})
		return n > 0, err
	})
}

// Pause keeps a schedule from firing until [Scheduler.Resume], also at a next
// fire time that has come already. Pausing twice is no error; a missing schedule
// is [ErrNotFound]. It takes effect when the transaction commits; a fire that is
// on its way then is not called back.
func (s *Scheduler) Pause(ctx context.Context, db bun.IDB, id int64) error {
	return s.one(ctx, db, "pause", id, func(st *store.Store) (bool, error) {
		return st.UpdateSchedule(ctx, db, id, store.ScheduleChange{Paused: new(true)})
	})
}

// Resume lets a paused schedule fire again, from the first fire time after now:
// what it missed while it was paused is skipped, and an @every schedule counts
// from now. Of a schedule that is not paused it sets the next fire time anew in
// the same way. It returns [ErrNotFound], or [ErrExpression] when this version of
// the program cannot read the expression or zone.
func (s *Scheduler) Resume(ctx context.Context, db bun.IDB, id int64) error {
	return s.one(ctx, db, "resume", id, func(st *store.Store) (bool, error) {
		rows, err := st.Schedules(ctx, db, store.ScheduleFilter{ID: id})
		if err != nil || id == 0 || len(rows) == 0 {
			return false, err
		}
		next, err := nextOnDatabaseClock(ctx, st, db, rows[0].CronExpression, rows[0].CronTimezone)
		if err != nil {
			return false, err
		}
		return st.UpdateSchedule(ctx, db, id, store.ScheduleChange{Paused: new(false), AvailableAfter: next})
	})
}

// RunNow lets a schedule fire at once, with the next poll of a processor; twice
// before that is once. After that a schedule of fixed times goes on as it was,
// and an @every schedule counts from this fire. A [Scheduler.Pause],
// [Scheduler.Resume] or [Scheduler.UpdateSchedule] before it has fired takes it
// back.
//
// A paused schedule is [ErrPaused], since it could not fire until it is resumed,
// which skips what was due before. A missing one is [ErrNotFound].
func (s *Scheduler) RunNow(ctx context.Context, db bun.IDB, id int64) error {
	return s.one(ctx, db, "run now", id, func(st *store.Store) (bool, error) {
		due, err := st.UpdateSchedule(ctx, db, id, store.ScheduleChange{Now: true, Running: true})
		if due || err != nil || id == 0 {
			return due, err
		}
		paused, err := st.Schedules(ctx, db, store.ScheduleFilter{ID: id})
		if err != nil || len(paused) == 0 {
			return false, err
		}
		return true, ErrPaused
	})
}

// UpdateSchedule gives a schedule another expression and zone. It fires next at
// the first fire time of these after now; a [Scheduler.RunNow] that has not fired
// yet is taken back. It clears LastError, and a paused schedule stays paused. A
// program that writes the schedule by [Name] at boot overwrites this then.
//
// It returns [ErrExpression] before it sends anything, and [ErrNotFound].
func (s *Scheduler) UpdateSchedule(ctx context.Context, db bun.IDB, id int64, expression, zone string) error {
	if err := checkExpression(expression, zone); err != nil {
		return fmt.Errorf("schedule: update schedule %d: %w", id, err)
	}
	return s.one(ctx, db, "update schedule", id, func(st *store.Store) (bool, error) {
		next, err := nextOnDatabaseClock(ctx, st, db, expression, zone)
		if err != nil {
			return false, err
		}
		return st.UpdateSchedule(ctx, db, id, store.ScheduleChange{CronExpression: expression, CronTimezone: zone, AvailableAfter: next, Error: new("")})
	})
}

// UpdatePayload gives a schedule another payload, which may be of another type,
// from its next fire on. It clears LastError; the next fire time stays. A program
// that writes the schedule by [Name] at boot overwrites this then.
//
// It returns [ErrNotFound], and what [Scheduler.Schedule] returns for a payload.
func (s *Scheduler) UpdatePayload(ctx context.Context, db bun.IDB, id int64, payload bus.Payload) error {
	if s.registry == nil {
		return fmt.Errorf("schedule: update payload of %d: %w", id, errUnmade)
	}
	payloadType, text, err := s.registry.Encode(payload)
	if err == nil {
		m := bus.Message{PayloadType: payloadType, Payload: text}
		err = m.Check(s.config.MaxPayload)
	}
	if err != nil {
		return fmt.Errorf("schedule: update payload of %d: %w", id, err)
	}
	return s.one(ctx, db, "update payload of", id, func(st *store.Store) (bool, error) {
		return st.UpdateSchedule(ctx, db, id, store.ScheduleChange{Payload: text, PayloadType: payloadType, Error: new("")})
	})
}

// one changes one schedule, which must exist.
func (s *Scheduler) one(ctx context.Context, db bun.IDB, what string, id int64, change func(*store.Store) (bool, error)) error {
	err := s.writing(ctx, db, func(st *store.Store) error {
		found, err := change(st)
		if err == nil && !found {
			return ErrNotFound
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("schedule: %s %d: %w", what, id, err)
	}
	return nil
}
